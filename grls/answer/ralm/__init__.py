"""In-context retrieval-augmented language modelling (arXiv 2302.00083): a frozen model reads with documents.

``strides`` cuts a text, ``texts`` are those that are read, ``scoring`` gives log-probabilities behind
documents, ``choose`` says which of the retrieved documents come first (``choosers`` by the name that
``options`` give the rule), ``reader`` puts them together to a perplexity and ``generate`` to text that is
written with retrieval; ``reranker`` is the trained judge of documents, ``collect`` makes what it learns from.
``resumed`` does any of these for many texts, and goes on where it was killed; ``task`` opens all that it
needs. ``exclude`` keeps the texts' own passages out.
"""
