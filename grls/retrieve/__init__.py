"""Retrievers: queries in, passages out.

``base`` is the protocol and what some can do beyond it, ``queries`` what all do with theirs. ``registry``
knows the kinds and opens a folder of any; ``spec`` is what stands in one, ``options`` those that any may
hold. ``bm25`` looks words up, ``dense/`` compares embeddings, ``generative/`` decodes passages, ``hybrid/``
lets others look ahead for a generator, ``hops/`` retrieves hop by hop, ``fusion/`` fuses what several find,
``rescored`` lets a cross-encoder read what one finds. ``neighbours`` asks a retriever for the passages near
to each passage; ``hub`` uploads a folder.

Nothing here imports ``grls.train``. What needs sentence-transformers or faiss is imported from its own
module: they take seconds to load.
"""

from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.appending import AppendingMultistep
from grls.retrieve.hops.multistep import MultistepRetriever
from grls.retrieve.hops.pool import pooled_ranking

__all__ = [
    "AppendingMultistep",
    "GenerativeRetriever",
    "MultistepRetriever",
    "SearchOptions",
    "pooled_ranking",
]
