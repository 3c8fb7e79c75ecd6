"""Retrievers: queries in, passages out.

``base`` is the protocol and the capabilities beyond it (``joins``: that queries join a search which runs),
``queries`` handles queries and filters for all kinds. ``registry`` lists the kinds and opens a folder of any
kind, ``build`` builds a folder from a model and a corpus. ``spec`` is the content of ``grls.json`` in a
folder, ``options`` the options that any kind may store there, and ``link`` the kind of a folder that only
names another one. ``shared`` opens a folder once that several members name. ``compose`` writes folders of
composite retrievers from those of their members, and ``corpora`` refuses passages that have changed since a
folder was made.

``bm25`` looks words up (``bm25_options``: its options). ``dense``, ``sparse`` and ``multi_vector`` compare
encoded texts; ``encoded`` is what these three share. ``generative/`` decodes passages, ``hybrid/`` adds
priors that look ahead for a generator, ``hops/`` retrieves hop by hop, ``fusion/`` fuses rankings,
``rescored/`` rescores the best passages of a ranking with a cross-encoder.

``update`` adds and removes passages of a folder of any kind, by ``changes``.

``run`` retrieves for the queries of a data set and saves the run. ``neighbours`` retrieves the neighbours of
each passage; ``judge`` opens a retriever that judges passages or queries. ``pack`` makes a self-contained
copy of a folder, ``checksums`` holds the checksums of its files, ``folder_check`` checks every invariant of a
folder and its members, ``card`` describes it, and ``hub`` uploads and downloads it by the names of
``hub_names``.

Nothing here imports ``grls.train``. The folder itself imports nothing: every name is in its own module.
"""
