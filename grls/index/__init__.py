"""The constraint index: which tokens may follow a prefix.

``rows`` sorts the token sequences of a corpus. All backends are built on these rows, so a state covers a
range of rows, and counting, filtering and removing passages is arithmetic on ranges. ``base`` is the
protocol. It has three backends: ``array`` (the default: branching nodes only, in NumPy arrays,
memory-mapped, one file an array), and in ``backends`` a dictionary from prefix to next tokens (the readable
reference) and the same map in marisa-trie; others are added there. ``union`` makes one index of two
segments (passages added later), or copies both into one segment, and ``subset`` counts selected passages by
ranges of rows. ``build`` makes a segment from a corpus, also of shards that several workers have sorted;
``options`` are its options. ``storage`` saves and loads it, and refuses arrays that do not fit together.
``external_sort/`` builds an index that does not fit into memory. ``tensors`` is a copy of ``array`` on a
GPU. ``ranges/`` cuts an index into prefix ranges that one beam searches together, in several processes.

``keys`` are spans that may be quoted in free text, ``substring`` is a suffix array over them.
``corpus_check`` reports peculiarities of a corpus, and checks all invariants of an index on disk.
"""

from typing import TYPE_CHECKING

from grls.io.recipes import on_demand

if TYPE_CHECKING:
    from grls.index.backends import BACKENDS, register_backend
    from grls.index.base import Allowed, ConstraintIndex, Segment
    from grls.index.build import build_index, index_sequences, index_tokens
    from grls.index.rows import Rows, SortedRows, sort_rows
    from grls.index.storage import load_index, save_index, save_stream
    from grls.index.subset import Subset
    from grls.index.union import UnionIndex

__all__ = [
    "BACKENDS",
    "Allowed",
    "ConstraintIndex",
    "Rows",
    "Segment",
    "SortedRows",
    "Subset",
    "UnionIndex",
    "build_index",
    "index_sequences",
    "index_tokens",
    "load_index",
    "register_backend",
    "save_index",
    "save_stream",
    "sort_rows",
]

__getattr__ = on_demand(
    __name__,
    {
        "Allowed": "base",
        "BACKENDS": "backends",
        "ConstraintIndex": "base",
        "Rows": "rows",
        "Segment": "base",
        "SortedRows": "rows",
        "Subset": "subset",
        "UnionIndex": "union",
        "build_index": "build",
        "index_sequences": "build",
        "index_tokens": "build",
        "load_index": "storage",
        "register_backend": "backends",
        "save_index": "storage",
        "save_stream": "storage",
        "sort_rows": "rows",
    },
)
