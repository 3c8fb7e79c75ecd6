"""How passages are written.

``beam`` is the constrained beam search, written plainly. ``fast`` is the same search at full speed, ``gpu/``
the same on a GPU; both are held against the plain one. ``slots`` and ``first_step`` are what these two share.
``select`` picks the candidates of a step; ``scope`` decides when a prefix needs no further step and what each
query may find; ``scores`` normalizes logits in the two score modes. ``prior`` adds what is known of the
passages beforehand. ``frontier`` is where a search left off: what it knows of all that it did not write to
the end. ``exhaustive`` scores every passage of a small corpus and is the specification of what the search
approximates; ``score_all`` does so for a larger one. ``trace`` tells what a search did with one passage,
``rescore`` asks a model about passages that are written already. ``hf`` is the adapter to transformers' own
``generate``.

``interleave/`` writes free text and quoted keys in one pass.
"""

from typing import TYPE_CHECKING

from grls.io.lazy import on_demand

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
