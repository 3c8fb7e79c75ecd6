"""Decodes passages under the constraint of an index.

``beam`` is the constrained beam search in a plain form. ``fast`` is the same search at full speed, ``gpu/``
the same on a GPU; both are tested against the plain one. ``slots`` and ``first_step`` are common to these
two; ``joining`` lets queries join a search that runs. ``select`` normalizes logits in the two score modes,
and picks the candidates of a step; ``scope`` decides which passages each query may find and when a prefix is
finished. ``prior`` adds the scores of priors. ``frontier`` keeps the prefixes at which a search stopped, to
estimate the probability of passages that were not written. ``score_all`` scores every passage: in a plain
form for a small corpus, which defines what the search approximates, and at full speed. ``trace`` explains how
a search treated one passage, ``rescore`` scores passages that are written already. ``hf`` is the adapter to
``generate`` of transformers.

``interleave/`` writes free text and quoted keys in one pass.
"""

from typing import TYPE_CHECKING

from grls.io.recipes import on_demand

if TYPE_CHECKING:
    from grls.decode.beam import Decoder, ScoredPassage
    from grls.decode.fast import FastDecoder
    from grls.decode.gpu.search import DeviceDecoder
    from grls.decode.hf import PrefixAllowedTokens

__all__ = ["Decoder", "DeviceDecoder", "FastDecoder", "PrefixAllowedTokens", "ScoredPassage"]

__getattr__ = on_demand(
    __name__,
    {
        "Decoder": "beam",
        "DeviceDecoder": "gpu.search",
        "FastDecoder": "fast",
        "PrefixAllowedTokens": "hf",
        "ScoredPassage": "beam",
    },
)
