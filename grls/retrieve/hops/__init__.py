"""Retrieval hop by hop.

``retriever`` does so with any retriever, as ``options`` say. ``multistep`` goes on with a generator's own
probabilities, ``appending`` with any retriever's scores: the passages found join the query. ``pool`` makes
one ranking of several chains, and ``ranked`` one by the probability that a chain holds a passage;
``expected_f1`` chooses the set of highest expected F1.
"""
