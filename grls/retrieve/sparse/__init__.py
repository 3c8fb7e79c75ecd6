"""Sparse retrieval (SPLADE): ``encode`` makes sparse vectors of texts, ``search`` scores passages by an
inverted index, ``retriever`` joins both, in memory and on disk.
"""
