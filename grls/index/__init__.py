"""The constraint index: which tokens may follow a prefix.

``rows`` sorts the token sequences of a corpus. All backends are built on these rows, so a state covers a
range of rows, and counting, filtering and removing passages is arithmetic on ranges. ``base`` is the
protocol; ``array`` is the default backend, memory-mapped; ``backends`` holds the readable reference (a
dictionary) and one in marisa-trie, and knows all by name. ``subset`` counts selected passages.

``build`` makes a segment from a corpus (``options``: its options), ``external_sort`` one that does not
fit into memory, ``storage`` saves and loads it (``files``: its arrays). ``tensors`` is a copy of ``array``
on a GPU. ``ranges`` cuts an index into parts that one beam searches together. ``keys`` are spans that may
be quoted in free text, ``substring`` is a suffix array over them. ``index_check`` checks all invariants of
an index on disk.
"""

from typing import TYPE_CHECKING

from grls.io.recipes import on_demand

if TYPE_CHECKING:
    from grls.index.backends import register_backend as register_backend
    from grls.index.build import index_sequences as index_sequences
    from grls.index.storage import load_index as load_index
    from grls.index.storage import save_index as save_index

_MODULES = {
    "index_sequences": "build",
    "load_index": "storage",
    "register_backend": "backends",
    "save_index": "storage",
}
"""Name that the guides use -> its module; the package itself imports from the modules."""

__all__ = list(_MODULES)

__getattr__ = on_demand(__name__, _MODULES)
