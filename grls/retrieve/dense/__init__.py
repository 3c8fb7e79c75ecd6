"""Dense retrieval: ``encode`` embeds a corpus, resumably; ``search`` finds the nearest, exactly;
``retriever`` joins both with the bi-encoder, in memory and on disk.
"""
