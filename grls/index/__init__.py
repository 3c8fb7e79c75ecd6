"""What may follow: the constraint index.

``rows`` sorts the token sequences of a corpus; every backend stands on these rows, so a state covers a
range of rows and counting, filtering and excluding passages is arithmetic on ranges. ``base`` is the
protocol. Three backends answer it: ``flat`` (a dictionary from prefix to next tokens, the readable
reference), ``marisa`` (the same map in marisa-trie) and ``array`` (the default: branching nodes only, in
NumPy arrays, memory-mapped): each makes a segment. ``union`` shows two segments as one index (passages added
later), ``merge`` makes one of them, and ``subset`` counts some of the passages by ranges of rows (filters,
removals). ``store`` builds a segment from a corpus, ``folder`` moves it to and from disk (``files``). What
does not fit the memory is sorted on disk (``runs``) and written straight to the files of ``array``
(``stream``, by ``npy``), which are the same files. ``tensors`` is a copy of ``array`` on a GPU.

``keys`` asks for less and more: spans that may be quoted in free text. The indexes above answer where a span
begins with its key, ``substring`` (a suffix array) where it may begin anywhere.
"""

from grls.index.base import Allowed, ConstraintIndex, Segment
from grls.index.folder import BACKENDS, load_index, save_index, save_stream
from grls.index.merge import merge
from grls.index.rows import Rows, SortedRows, sort_rows
from grls.index.store import build_index, index_sequences, index_tokens
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
    "merge",
    "save_index",
    "save_stream",
    "sort_rows",
]
