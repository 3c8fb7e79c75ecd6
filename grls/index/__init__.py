"""What may follow: the constraint index.

``rows`` sorts the token sequences of a corpus; every backend stands on these rows, so a state covers a
range of rows and counting, filtering and excluding passages is arithmetic on ranges. ``base`` is the
protocol. Three backends answer it: ``flat`` (a dictionary from prefix to next tokens, the readable
reference), ``marisa`` (the same map in marisa-trie) and ``array`` (the default: branching nodes only, in
NumPy arrays, memory-mapped). ``store`` builds an index from a corpus and moves it to and from disk.
"""

from grls.index.base import Allowed, ConstraintIndex, Segment
from grls.index.rows import Rows, SortedRows, sort_rows
from grls.index.store import BACKENDS, build_index, index_sequences, index_tokens, load_index, save_index

__all__ = [
    "BACKENDS",
    "Allowed",
    "ConstraintIndex",
    "Rows",
    "Segment",
    "SortedRows",
    "build_index",
    "index_sequences",
    "index_tokens",
    "load_index",
    "save_index",
    "sort_rows",
]
