"""Readers: a language model conditioned on what a retriever returns.

In-Context RALM (arXiv 2302.00083): ``strides`` cuts a text, ``scoring`` gives log-probabilities behind
documents, ``choose`` says which of the retrieved documents come first, ``ralm`` puts them together to a
perplexity and to text that is written with retrieval, ``reranker`` is the trained judge of documents.
"""
