"""In-context retrieval-augmented language modelling (arXiv 2302.00083): a frozen model reads with documents.

``strides`` cuts a text, ``scoring`` gives log-probabilities behind documents, ``choose`` says which of the
retrieved documents come first, ``reader`` puts them together to a perplexity and ``generate`` to text that is
written with retrieval; ``reranker`` is the trained judge of documents, ``collect`` makes what it learns from.
``exclude`` keeps the texts' own passages out.
"""
