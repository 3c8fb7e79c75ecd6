"""Retrieval hop by hop.

``multistep`` goes on with a generator's own probabilities, ``appending`` with any retriever's scores: the
passages found join the query. ``pool`` makes one ranking of several chains, ``chained`` a plain retriever of
that; ``expected_f1`` chooses the set of highest expected F1.
"""
