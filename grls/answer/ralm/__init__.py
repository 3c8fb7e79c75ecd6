"""In-context retrieval-augmented language modelling (arXiv 2302.00083): a frozen model reads with documents.

``texts`` reads the texts and ``strides`` cuts them. ``scoring`` computes log-probabilities behind documents,
``choose`` orders the retrieved documents (``choosers`` opens the rule that ``options`` name). ``reader``
computes the perplexity, and ``generate`` writes text with retrieval. ``reranker`` is the trained judge of
documents, ``collect`` makes its training examples. ``resumed`` does any of these for many texts and goes on
after a kill; ``task`` opens the models and files. ``exclude`` leaves out passages that belong to the texts.
"""
