"""What retrievers share whose model encodes texts (dense, sparse, multi-vector).

``retriever`` is their base class, ``folder`` reads and checks what they have on disk, ``encode`` encodes a
corpus, and ``ranking`` ranks by the scores of all passages.
"""
