"""In-context retrieval-augmented language modelling (arXiv 2302.00083): a frozen model reads documents.

``reader`` cuts texts, orders the retrieved documents, computes log-probabilities behind them, and the
perplexity. ``reranker`` is the trained judge of documents. ``task`` opens what ``options`` name, and reads
many texts, or makes the reranker's examples of them.
"""
