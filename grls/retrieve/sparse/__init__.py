"""Sparse retrieval (SPLADE): ``encode`` makes sparse vectors of texts, ``search`` scores passages by an
inverted index, ``shards`` encode a corpus on disk, ``retriever`` joins these, in memory and on disk.
"""
