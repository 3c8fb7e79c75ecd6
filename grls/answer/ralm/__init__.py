"""In-context retrieval-augmented language modelling (arXiv 2302.00083): a frozen model reads with documents.

``strides`` cuts texts. ``scoring`` computes log-probabilities behind documents, ``choose`` orders the
retrieved documents, and ``reader`` computes the perplexity. ``reranker`` is the trained judge of documents.
``resumed`` reads or writes many texts, or makes the reranker's examples of them, and goes on after a kill;
``task`` opens the models, the texts and the rule of order that ``options`` name, and leaves out passages that
belong to the texts.
"""
