"""Retrievers: queries in, passages out.

``base`` is the protocol and the capabilities beyond it, ``queries`` handles queries and filters for all
kinds, and ``hits`` gives the hits of a search by any of them, a chain's or a ranking's. ``registry`` lists
the kinds and opens a folder of any kind, once also where several members name it; ``build`` builds a folder
from a model and a corpus. ``spec`` is the content of ``grls.json`` in a folder, the checksums of its files,
and the refusal of passages that have changed since it was made; ``options`` are the options that any kind may
store there. ``compose`` makes composites in memory, and writes retrievers with their members.

``bm25`` looks words up (``bm25_options``: its options). ``dense``, ``sparse`` and ``multi_vector`` compare
encoded texts; ``encoded`` is what these three share. ``generative/`` decodes passages, ``hybrid/`` adds
priors that look ahead for a generator, ``hops/`` retrieves hop by hop, ``fusion/`` fuses rankings,
``rescored/`` rescores the best passages of a ranking with a cross-encoder.

``update`` adds and removes passages of a folder of any kind. ``run`` retrieves for the queries of a data set
and saves the run. ``neighbours`` retrieves the neighbours of each passage; ``judge`` opens a retriever that
judges passages or queries. ``folder_check`` checks every invariant of a folder and its members. ``hub``
uploads a self-contained copy of a folder with its card, and downloads it, by the names of ``hub_names``.

Nothing here imports ``grls.train``. The folder itself imports nothing: every name is in its own module.
"""
