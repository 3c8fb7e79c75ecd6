"""Dense retrieval: ``encode`` embeds a corpus, resumably; ``search`` finds the nearest, exactly;
``shards`` lets several workers embed; ``retriever`` joins these with the bi-encoder, in memory and on disk.
"""
