"""Shared parts of retrievers whose model encodes texts (dense, sparse, multi-vector).

``retriever`` is their base class, ``folder`` reads and checks their files, ``encode`` encodes a corpus, and
``ranking`` ranks by the scores of all passages.
"""
