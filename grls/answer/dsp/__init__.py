"""Demonstrate-search-predict (arXiv 2212.14024) on DSPy, its authors' successor of DSP.

``programs`` are the paper's three, ``baselines`` what it compares them with, ``branch`` several pipelines and
their majority. ``retrieval`` makes a retriever a DSPy module, ``lm`` a language model (``heard`` writes its
calls down, ``gather`` batches those of several threads). ``lines`` is the paper's template, ``patience``
asks again when an endpoint fails. ``demonstrate`` makes demonstrations, ``build`` makes programs by name,
``run`` answers queries (``answering`` those of a data set), ``options`` says how, ``trace`` says what a
program did. ``needed`` imports DSPy, which is an extra.
"""
