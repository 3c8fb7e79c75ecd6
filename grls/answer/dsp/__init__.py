"""Demonstrate-search-predict (arXiv 2212.14024) on DSPy, its authors' successor of DSP.

``programs`` holds the three programs of the paper, its branches and its baselines. ``retrieval`` wraps a
retriever as a DSPy module, ``lm`` a language model (``gather`` batches the calls of several threads).
``lines`` is the paper's template, ``patience`` draws again what cannot be read. ``build`` makes programs by
name, and demonstrations for them; ``run`` answers queries (``answering`` the questions of a data set),
``options`` holds the options, and ``trace`` records the steps of a program. ``needed`` imports DSPy, which is
an extra.
"""
