"""Retrievers: queries in, passages out.

``base`` is the protocol and what some can do beyond it, ``queries`` what all do with theirs. ``registry``
knows the kinds and opens a folder of any, ``build`` makes one of a model and a corpus; ``spec`` is what
stands in one, ``options`` those that any may hold. ``bm25`` looks words up (``bm25_options``: how).
``dense/``, ``sparse`` and ``multi_vector`` compare what a model makes of texts, in folders as of
``encoded``. ``generative/`` decodes passages, ``hybrid/`` lets others look ahead for a generator, ``hops/``
retrieves hop by hop, ``fusion/`` fuses what several find, ``rescored`` lets a cross-encoder read what one
finds. ``neighbours`` asks a retriever for the passages near to each passage; ``hub`` uploads a folder.

Nothing here imports ``grls.train``. The folder itself imports nothing: every name stands in its own module.
"""
