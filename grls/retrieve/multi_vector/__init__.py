"""Late interaction (ColBERT): ``encode`` makes vectors of the tokens of texts, ``vectors`` are those of all
passages, in memory and on disk; ``search`` finds the passages of largest MaxSim, exactly; ``shards`` encode a
corpus on disk; ``retriever`` joins these.
"""
