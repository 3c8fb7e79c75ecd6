"""How passages are written.

``beam`` is the constrained beam search; ``select`` picks its candidates; ``stop`` decides when a prefix
needs no further step; ``scores`` normalizes logits in the two score modes. ``exhaustive`` scores every
passage of a small corpus and is the specification of what the search approximates. ``hf`` is the one
adapter to transformers' own ``generate``.
"""

from grls.decode.beam import Decoder, Found
from grls.decode.hf import PrefixAllowedTokens

__all__ = ["Decoder", "Found", "PrefixAllowedTokens"]
