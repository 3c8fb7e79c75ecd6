"""Demonstrate-search-predict (arXiv 2212.14024) on DSPy, its authors' successor of DSP.

``programs`` holds the programs and baselines of the paper, with demonstrations, and answers queries
(``answering`` the questions of a data set). ``retrieval`` wraps a retriever as a DSPy module, ``lm``
opens language models and has the paper's template. ``calls`` records the steps of a program. ``options``
holds the options. ``needed`` imports DSPy, which is an extra.
"""
