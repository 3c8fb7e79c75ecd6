"""In-context retrieval-augmented language modelling (arXiv 2302.00083): a frozen model reads with
documents.

``reader`` cuts texts, orders the retrieved documents, computes log-probabilities behind them, and the
perplexity. ``reranker`` is the trained judge of documents. ``task`` opens the models, the texts and the
rule of order that ``options`` name, leaves out passages that belong to the texts, reads or writes many
texts, or makes the reranker's examples of them, and goes on after a kill.
"""
