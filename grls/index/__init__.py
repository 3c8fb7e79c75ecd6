"""The constraint index: which tokens may follow a prefix.

``rows`` sorts the token sequences of a corpus. All backends are built on these rows, so a state covers a
range of rows, and counting, filtering and removing passages is arithmetic on ranges. ``base`` is the
protocol; ``array`` is the default backend, memory-mapped, and ``backends`` holds the readable reference
(a dictionary) and one in marisa-trie. ``union`` joins two segments (passages added later), and ``subset``
counts selected passages.

``build`` makes a segment from a corpus (``options``: its options), ``external_sort`` one that does not
fit into memory, ``storage`` saves and loads it (``files``: its arrays). ``tensors`` is a copy of ``array``
on a GPU. ``ranges`` cuts an index into parts that one beam searches together. ``keys`` are spans that may
be quoted in free text, ``substring`` is a suffix array over them. ``index_check`` checks all invariants of
an index on disk.
"""

from typing import TYPE_CHECKING

from grls.io.recipes import on_demand

if TYPE_CHECKING:
    from grls.index.backends import BACKENDS as BACKENDS
    from grls.index.backends import register_backend as register_backend
    from grls.index.base import ConstraintIndex as ConstraintIndex
    from grls.index.base import Segment as Segment
    from grls.index.build import build_index as build_index
    from grls.index.build import index_sequences as index_sequences
    from grls.index.build import index_tokens as index_tokens
    from grls.index.storage import load_index as load_index
    from grls.index.storage import save_index as save_index
    from grls.index.storage import save_stream as save_stream
    from grls.index.subset import Subset as Subset
    from grls.index.union import UnionIndex as UnionIndex

_MODULES = {
    "BACKENDS": "backends",
    "ConstraintIndex": "base",
    "Segment": "base",
    "Subset": "subset",
    "UnionIndex": "union",
    "build_index": "build",
    "index_sequences": "build",
    "index_tokens": "build",
    "load_index": "storage",
    "register_backend": "backends",
    "save_index": "storage",
    "save_stream": "storage",
}
"""Public name -> its module."""

__all__ = list(_MODULES)

__getattr__ = on_demand(__name__, _MODULES)
