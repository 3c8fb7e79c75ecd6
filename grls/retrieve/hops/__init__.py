"""Retrieval hop by hop.

``retriever`` retrieves hop by hop with any retriever, and has ``options``. ``multistep`` continues chains by
the log-probabilities of a generator; ``appending`` by the scores of any retriever, with the evidence appended
to the query. ``pool`` makes one ranking of several chains, ``ranked`` a ranking by the probability that a
chain holds a passage, and ``expected_f1`` chooses the set of passages with the highest expected F1. Of a
ranking, ``ranked_chains`` are the chains, ``shares`` the probabilities of a hop (``temperature``: the default
one; ``onward``: how probable it is that one more hop finds something), and ``tail`` the end. ``diverse``
limits chains with the same first passage. ``steps`` makes their hops, alone or in a search that other
retrievals join.
"""
