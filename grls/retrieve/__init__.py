"""Retrievers: queries in, passages out.

``base`` is the protocol and the capabilities beyond it, ``queries`` the treatment of queries that all share.
``registry`` knows the kinds and opens a folder of any, ``build`` builds one from a model and a corpus;
``spec`` is the content of a folder's ``grls.json``, ``options`` those options that any kind may store there.

``bm25`` looks words up (``bm25_options``: how). ``dense/``, ``sparse/`` and ``multi_vector/`` compare
encoded texts; ``encoded/`` is what these three share. ``generative/`` decodes passages, ``hybrid/`` lets
other retrievers look ahead for a generator, ``hops/`` retrieves hop by hop, ``fusion/`` fuses rankings,
``rescored/`` lets a cross-encoder read the best passages of a ranking again.

``run`` asks a retriever the queries of a data set and saves the run. ``neighbours`` asks it for the passages
near to each passage; ``judge`` opens one that judges passages or queries; ``hub`` uploads a folder.

Nothing here imports ``grls.train``. The folder itself imports nothing: every name stands in its own module.
"""
