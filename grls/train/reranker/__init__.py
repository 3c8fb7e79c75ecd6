"""Training a reranker of documents (arXiv 2302.00083): ``fit``, by its ``options``."""
