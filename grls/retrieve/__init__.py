"""Retrievers: queries in, passages out.

``base`` is the protocol and the capabilities beyond it, ``queries`` handles queries and filters for all
kinds, ``hits`` gives the hits of a search by any of them. ``registry`` lists the kinds and opens a folder of
any kind; ``build`` builds a folder from a model and a corpus. ``spec`` is the content of ``grls.json`` in a
folder, with its checksums; ``options`` are those that any kind may store there. ``compose`` makes
composites in memory, and writes retrievers with their members.

``bm25`` looks words up. ``dense``, ``sparse`` and ``multi_vector`` compare
encoded texts; ``encoded`` is what these three share. ``generative/`` decodes passages, ``hybrid/`` adds
priors that look ahead for a generator, ``hops/`` retrieves hop by hop, ``fusion/`` fuses rankings,
``rescored/`` rescores the best passages of a ranking with a cross-encoder.

``update`` adds and removes passages of a folder. ``run`` retrieves for the queries of a data set and saves
the run. ``judge`` opens a retriever that judges passages or queries. ``folder_check`` checks the invariants
of a folder. ``hub`` uploads and downloads self-contained copies of a folder, by the names of ``hub_names``.

Nothing here imports ``grls.train``.
"""
