"""Retrieval hop by hop.

``retriever`` retrieves hop by hop with any retriever, and has ``options``. ``search`` is the loop over
chains: ``finders`` find what may come next, ``stop`` says where chains end, and ``combine`` makes chains or a
ranking of the scores. ``linked`` weighs by which passage names which.
"""
