"""Retrieval hop by hop.

``retriever`` retrieves hop by hop with any retriever, and has ``options``. ``multistep`` continues chains by
the log-probabilities of a generator; ``appending`` by the scores of any retriever, with the evidence appended
to the query. ``pool`` makes one ranking of several chains, ``ranked`` a ranking by the probability that a
chain holds a passage (``tail``: its end; ``temperature``: its default temperature), and ``expected_f1``
chooses the set of passages with the highest expected F1. ``steps`` makes their hops, alone or in a search
that other retrievals join.
"""
