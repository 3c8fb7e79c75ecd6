"""Retrievers: queries in, passages out.

``base`` holds the protocol of a single-step retriever (top-k distinct passages of a query). Every other
file is a way to do it, or wraps one: a single-step retriever returns ``list[list[Hit]]``, a multi-step
one chains, and both are written and scored by ``grls.evaluation`` alike.

- ``sparse`` is BM25, ``generative`` decodes passages (``options`` says how, ``decoders`` by which decoder,
  ``passages`` is what may be found, ``folder`` what it leaves on disk), ``dense`` compares embeddings
  (``dense_encode`` makes them, resumably; ``dense_search`` finds the nearest, exactly). ``open`` opens a
  folder of either kind. ``views`` makes passages of the views that some generators write.
- ``multistep`` goes hop by hop with a generative retriever, ``appending`` with any other one: the passages
  found join the query. ``pool`` makes one ranking of several chains, ``expected_f1`` one set.
- ``assess`` ranks what a generator has found by what it says of it, too, once it has read it to the end.
- ``neighbours`` asks a retriever for what is near to each passage of a corpus.
- ``hybrid`` lets other retrievers look ahead for a generator while it decodes; ``priors`` is what they say,
  and ``tuning`` finds what they are to count.
- ``fusion`` fuses rankings and chains of several retrievers, which ``ensemble`` runs.

``dense``, and ``hybrid`` and ``tuning`` which need it, are imported from their own modules:
sentence-transformers and faiss take seconds to load, and nothing else here needs them. Nothing here imports
``grls.train``.
"""

from grls.retrieve.appending import AppendingMultistep
from grls.retrieve.generative import GenerativeRetriever
from grls.retrieve.multistep import MultistepRetriever
from grls.retrieve.options import SearchOptions
from grls.retrieve.pool import pooled_ranking

__all__ = [
    "AppendingMultistep",
    "GenerativeRetriever",
    "MultistepRetriever",
    "SearchOptions",
    "pooled_ranking",
]
