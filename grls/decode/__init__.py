"""How passages are written.

``beam`` is the constrained beam search, written plainly. ``fast`` is the same search at full speed,
``device`` the same for a GPU: what its steps decide is ``decision``, ``step`` makes one piece of that and the
model, to be compiled, and ``replay`` keeps CUDA graphs. ``slots`` and ``beginnings`` (the first step) are
what these two share, and both are held against the plain one. ``select`` picks the candidates of a step;
``stop`` decides when a prefix needs no further step; ``scores`` normalizes logits in the two score modes.
``prior`` adds what is known of the passages beforehand. ``leaves`` is where a search left off: what it knows
of all that it did not write to the end. ``exhaustive`` scores every passage of a small corpus and is the
specification of what the search approximates; ``walk`` does so for a larger one.
``trace`` tells what a search did with one passage. ``hf`` is the one adapter to transformers' own
``generate``.

``assess`` asks a model about passages that are written already, read to their end.

``interleave`` writes free text and quoted keys in one pass; ``markers`` tell where a key begins and ends.
"""

from grls.decode.beam import Decoder, Found
from grls.decode.device import DeviceDecoder
from grls.decode.fast import FastDecoder
from grls.decode.hf import PrefixAllowedTokens

__all__ = ["Decoder", "DeviceDecoder", "FastDecoder", "Found", "PrefixAllowedTokens"]
