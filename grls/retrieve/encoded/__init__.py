"""Shared parts of retrievers whose model encodes texts (dense, sparse, multi-vector).

``retriever`` is their base class, ``folder`` reads and checks their files, ``encode`` encodes a corpus,
``shards`` does so on disk, in this process or by workers, ``tensor_file`` is a file larger than memory, and
``ranking`` ranks by the scores of all passages.
"""
