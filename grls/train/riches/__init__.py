"""Training a language model to answer with quotes: ``examples``, ``data``, ``collate``, ``module``, and
``callbacks``, which answers dev queries.
"""
