"""What may follow: the constraint index.

``rows`` sorts the token sequences of a corpus; every backend stands on these rows, so a state covers a
range of rows and counting, filtering and excluding passages is arithmetic on ranges. ``base`` is the
protocol. Three backends answer it: ``flat`` (a dictionary from prefix to next tokens, the readable
reference), ``marisa`` (the same map in marisa-trie) and ``array`` (the default: branching nodes only, in
NumPy arrays, memory-mapped). ``store`` builds an index from a corpus and moves it to and from disk. What does
not fit the memory is sorted on disk (``runs``) and written straight to the files of ``array`` (``stream``, by
``npy``), which are the same files.
"""

from grls.index.base import Allowed, ConstraintIndex
from grls.index.rows import Rows, sort_rows
from grls.index.store import (
    BACKENDS,
    build_index,
    index_sequences,
    index_tokens,
    load_index,
    save_index,
    save_stream,
)

__all__ = [
    "BACKENDS",
    "Allowed",
    "ConstraintIndex",
    "Rows",
    "build_index",
    "index_sequences",
    "index_tokens",
    "load_index",
    "save_index",
    "save_stream",
    "sort_rows",
]
