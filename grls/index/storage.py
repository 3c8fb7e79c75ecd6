"""An index on disk: a folder with ``index.json`` (the manifest) and one ``.npy`` file per array.

The manifest holds the format version, the size and checksums of every file, and the fingerprints of the
tokenizer and the corpus of the index. Loading refuses files that do not match, and names the remedy. Building
an index: :mod:`grls.index.build`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from grls.errors import ConfigError, IndexFormatError, out_of_memory
from grls.index.array import ArrayIndex
from grls.index.backends import BACKENDS, BUILT_IN, ROW_ARRAYS
from grls.index.base import Segment
from grls.index.external_sort import Runs, Spill, merge_runs
from grls.index.files import (
    REBUILD,
    load_arrays,
    read_manifest,
)
from grls.index.options import Form
from grls.index.rows import MAX_LENGTH, Array, Offsets, Rows, Sequences
from grls.io.files import atomic_folder
from grls.io.recipes import VARIABLE, load_plugins
from grls.io.seal import chosen_verify, seal

FORMAT = 3
INDEX_MANIFEST = "index.json"
FORMS = ("whole", "prefixes")
_FIELDS = {"end": int, "passages": int, "rows": int, "tokens": int, "longest": int, "form": str}


def save_stream(
    pieces: Iterable[tuple[Array, Array]], folder: str | Path, end: int, memory: int, form: Form = "whole"
) -> None:
    """Index a stream of passages (backend ``array``) directly in a folder, in bounded memory, atomically.

    The files equal those of :func:`index_tokens` and :func:`save_index`; an earlier index there is replaced.

    Args:
        pieces: Tokens and offsets of consecutive passages, as in :func:`index_tokens`; a piece should be
            small compared with ``memory``.
        folder: Destination, also of the scratch files.
        end: The end token.
        memory: Memory for sorting in bytes; other needs of memory: :mod:`grls.index.external_sort`.
        form: ``whole`` or ``prefixes``.
    """

    def spilled(scratch: Path) -> Runs:
        spill = Spill(scratch, end, memory)
        spill.take(Sequences(*piece) for piece in pieces)
        return Runs(tuple(spill.runs), spill.passages, spill.top)

    save_runs(spilled, folder, end, memory, form, release=True)


def save_runs(
    runs: Callable[[Path], Runs], folder: str | Path, end: int, memory: int, form: Form, release: bool = False
) -> None:
    """Merge sorted runs directly into an index in a folder; see :func:`save_stream`.

    ``runs`` gets a folder for scratch files; ``release``: see :func:`grls.index.external_sort.merge_runs`.
    """
    with atomic_folder(folder, INDEX_MANIFEST) as new:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=new) as scratch:
            sizes = merge_runs(runs(Path(scratch)), new, Path(scratch), memory, form, release)
        _write_manifest(new, ArrayIndex.backend, sizes, end, form, "", "")


def save_index(index: Segment, folder: str | Path, tokenizer: str = "", corpus: str = "") -> None:
    """Write an index to a folder, atomically; an earlier index there is replaced.

    ``tokenizer`` and ``corpus`` are the fingerprints of its codec and corpus.
    """
    with atomic_folder(folder, INDEX_MANIFEST) as new:
        write_index(index, new, tokenizer, corpus)


def write_index(index: Segment, folder: Path, tokenizer: str, corpus: str) -> None:
    """Write an index into an existing folder; the caller gives the folder its final name."""
    if isinstance(index, ArrayIndex) and index.files is not None:
        for file in (Path(index.files.name) / "index").glob("*.npy"):  # they never change
            try:
                os.link(file, folder / file.name)
            except OSError:  # the file system has no hard links
                shutil.copyfile(file, folder / file.name)
    else:
        own = index.arrays()
        if set(own) != set(index.stored):  # or they would not be read again
            raise ConfigError(
                f"the backend {index.backend!r} stores the arrays {sorted(own)} and declares "
                f"{sorted(index.stored)}: name in its class attribute `stored` what arrays() returns."
            )
        for name, array in stored_arrays(index).items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    sizes = {
        "passages": len(index),
        "rows": len(index.rows),
        "tokens": len(index.rows.tokens),
        "longest": index.rows.longest,
    }
    _write_manifest(folder, index.backend, sizes, index.rows.end, index.rows.form, tokenizer, corpus)


def stored_arrays(index: Segment) -> dict[str, Array]:
    """File name -> array, of the rows and of the backend."""
    rows = index.rows
    return {
        "tokens": rows.tokens,
        "offsets": rows.offsets.blocks,
        "within": rows.offsets.within,
        "members": rows.members,
        "member_offsets": rows.member_offsets,
        **index.arrays(),
    }


def _write_manifest(
    folder: Path, backend: str, sizes: dict[str, int], end: int, form: Form, tokenizer: str, corpus: str
) -> None:
    manifest = {
        "format": FORMAT,
        "backend": backend,
        "form": form,
        **sizes,
        "end": end,
        "tokenizer": tokenizer,
        "corpus": corpus,
    }
    seal(folder / INDEX_MANIFEST, manifest)


def load_index(
    folder: str | Path, tokenizer: str | None = None, corpus: str | None = None, verify: bool | None = None
) -> Segment:
    """Open an index, memory-mapped; of the backend ``array`` in a time that does not grow with its size.

    Sizes, types and shapes of all files are always compared with the manifest.

    Args:
        folder: The folder that :func:`save_index` wrote.
        tokenizer: The required fingerprint of the tokenizer; None accepts any.
        corpus: The required fingerprint of the corpus; None accepts any.
        verify: Whether checksums are compared; see :func:`grls.io.seal.changed`. The blocks of a large index
            reveal a file that was cut, has holes or belongs to another index, but not a single changed byte.
    """
    path = Path(folder)
    file = path / INDEX_MANIFEST
    manifest = read_manifest(file, FORMAT, _FIELDS, tokenizer, corpus)
    if manifest.get("backend") not in list(BACKENDS):
        load_plugins()
    if manifest.get("backend") not in list(BACKENDS):
        raise IndexFormatError(
            f"{path}: index backend {manifest.get('backend')!r}; this version reads {', '.join(BACKENDS)}: "
            f"name the module that registers the backend in {VARIABLE}, or {REBUILD}"
        )
    if manifest["form"] not in FORMS:
        raise IndexFormatError(f"{file}: the key 'form' is malformed; {REBUILD}")
    backend = BACKENDS[manifest["backend"]]  # its files are opened, whatever else a manifest names
    if needed := [name for name in backend.stored if f"{name}.npy" not in manifest["files"]]:
        raise _misfit_of(manifest, path, f"{min(needed)} is missing")
    arrays = load_arrays(path / INDEX_MANIFEST, manifest, {*ROW_ARRAYS, *backend.stored}, verify)
    built_in = manifest["backend"] in BUILT_IN  # a registered backend checks its own arrays in ``restore``
    formed = {name: array for name, array in arrays.items() if built_in or name in ROW_ARRAYS}
    refuse_misfit(formed, manifest["backend"], path)
    tokens, members = arrays.pop("tokens"), arrays.pop("members")
    offsets = Offsets(arrays.pop("offsets"), arrays.pop("within"))
    longest = manifest["longest"]
    if not -1 < longest <= MAX_LENGTH:
        raise IndexFormatError(
            f"{path / INDEX_MANIFEST}: the longest row has {longest:,} tokens, at most {MAX_LENGTH:,} are "
            f"possible; {REBUILD}"
        )
    shared = arrays.pop("member_offsets")
    rows = Rows(tokens, offsets, members, shared, manifest["end"], longest, manifest["form"])
    counts = {"passages": len(members), "rows": len(rows), "tokens": len(tokens)}
    for name, count in counts.items():
        if manifest[name] != count:
            raise IndexFormatError(f"{path}: {count} {name}, the manifest says {manifest[name]}; {REBUILD}")
    if chosen_verify(verify, manifest):
        refuse_outside(rows, arrays if built_in else {}, path)
    try:
        return backend.restore(rows, arrays)
    except (KeyError, OverflowError, TypeError, RuntimeError, ValueError) as error:
        if out_of_memory(error):
            raise
        raise _misfit_of(manifest, path, str(error)) from None


def _misfit_of(manifest: dict[str, Any], path: Path, reason: str) -> IndexFormatError:
    return IndexFormatError(
        f"{path / INDEX_MANIFEST}: its files do not fit the backend {manifest['backend']!r} ({reason}); "
        f"{REBUILD}"
    )


_AT_ONCE = 1 << 20
"""Numbers that are compared together."""

_DIMENSIONS = {"spans": 2}
"""The dimensions of arrays that do not have one dimension."""

_KINDS = {"edge_nodes": "i"}
"""The kinds of NumPy types of arrays that are not unsigned."""


def refuse_misfit(arrays: dict[str, Array], backend: str, path: Path) -> None:
    """Refuse (IndexFormatError) arrays whose types, shapes or ends do not fit together.

    Checksums show that a file is as it was written, not that grls wrote it: a folder from elsewhere may hold
    any arrays. After this function, whose time does not grow with the index, and :func:`refuse_outside`, a
    search reads nothing outside an array.
    """
    for name, array in arrays.items():
        if array.ndim != _DIMENSIONS.get(name, 1) or array.dtype.kind not in _KINDS.get(name, "u"):
            raise _misfit(path, name, f"an array {array.shape} of {array.dtype} is none of an index")
    offsets, within = arrays["offsets"], arrays["within"]
    rows = (len(within) or len(offsets)) - 1
    blocks = rows // 32 + 1 if len(within) else rows + 1
    if rows < 0 or len(offsets) != blocks:
        raise _misfit(path, "offsets", f"{len(offsets):,} offsets do not fit {rows:,} rows")
    last = int(offsets[-1]) + (int(within[-1]) if len(within) else 0)
    if int(offsets[0]) + (int(within[0]) if len(within) else 0) or last != len(arrays["tokens"]):
        raise _misfit(path, "offsets", f"the rows end at {last:,} of {len(arrays['tokens']):,} tokens")
    members, shared = arrays["members"], arrays["member_offsets"]
    ends = (len(shared), int(shared[0]), int(shared[-1])) if len(shared) else (rows + 1, 0, rows)
    if ends != (rows + 1, 0, len(members)):
        raise _misfit(path, "member_offsets", f"{len(members):,} passages do not fit {rows:,} rows")
    if backend != "array":
        return
    nodes, edges = len(arrays["depths"]), len(arrays["edge_tokens"])
    first, spans = arrays["first_edges"], arrays["spans"]
    if nodes < 1 or spans.shape != (nodes, 2):
        raise _misfit(path, "spans", f"{spans.shape} is not two numbers for each of {nodes:,} nodes")
    if len(first) != nodes + 1 or int(first[0]) or int(first[-1]) != edges:
        raise _misfit(path, "first_edges", f"it does not fit {nodes:,} nodes with {edges:,} edges")
    if len(arrays["edge_nodes"]) != edges or edges != max(nodes + rows - 1, 0):
        raise _misfit(path, "edge_nodes", f"{edges:,} edges do not fit {nodes:,} nodes and {rows:,} rows")


def refuse_outside(rows: Rows, arrays: dict[str, Array], path: Path) -> None:
    """Refuse (IndexFormatError) numbers that point outside of an array; reads every number but tokens.

    The arrays have passed :func:`refuse_misfit`. Whether the rows are sorted, and the nodes are those of the
    rows: :mod:`grls.index.index_check`.
    """
    lengths = rows.lengths()
    longest = int(lengths.max(initial=0))
    if longest != rows.longest:
        raise IndexFormatError(
            f"{path / 'index.json'} has changed since it was written: it says that the longest row has "
            f"{rows.longest:,} tokens, which is {longest:,}; {REBUILD}"
        )
    if len(lengths) and int(lengths.min()) < 1:
        raise _misfit(path, "offsets", "a row is empty")
    for start in range(0, len(rows) if rows.form == "whole" else 0, _AT_ONCE):
        last = rows.offsets[np.arange(start, min(start + _AT_ONCE, len(rows))) + 1] - 1
        if (rows.tokens[last] != rows.end).any():
            raise _misfit(path, "tokens", f"a row does not end in the end token {rows.end}")
    _refuse_above(rows.members, len(rows.members) - 1, path, "members")
    _refuse_falling(rows.member_offsets, path, "member_offsets")
    if "first_edges" in arrays:
        _refuse_falling(arrays["first_edges"], path, "first_edges")
    if "spans" in arrays:
        _refuse_above(arrays["spans"].reshape(-1), len(rows), path, "spans")
        _refuse_falling(arrays["spans"].reshape(-1), path, "spans", within=2)
    if "edge_nodes" not in arrays:
        return
    # Edges lead down: to each further node once, in order, and to each row once.
    below, depths = arrays["edge_nodes"].astype(np.int64), arrays["depths"].astype(np.int64)
    first_edges = arrays["first_edges"].astype(np.int64)
    fanouts = first_edges[1:] - first_edges[:-1]
    inner = below >= 0
    leaves = np.sort(~below[~inner])
    in_order = np.array_equal(below[inner], np.arange(1, len(depths)))
    if not in_order or not np.array_equal(leaves, np.arange(len(lengths))):
        raise _misfit(path, "edge_nodes", "the edges do not lead once to each node and row")
    if (depths[below[inner]] <= np.repeat(depths, fanouts)[inner]).any():
        raise _misfit(path, "depths", "a node is not below the node before it")
    first_rows = arrays["spans"][:, 0].astype(np.int64)
    if len(lengths) and (depths >= lengths[np.minimum(first_rows, len(lengths) - 1)]).any():
        raise _misfit(path, "depths", "a node lies behind the end of its first row")


def _refuse_above(array: Array, most: int, path: Path, name: str) -> None:
    if len(array) and int(array.max()) > most:
        raise _misfit(path, name, f"the number {int(array.max()):,} is above {most:,}")


def _refuse_falling(array: Array, path: Path, name: str, within: int = 0) -> None:
    """Refuse numbers that fall: below the number before, or, in pairs, below the first of the pair."""
    for start in range(0, max(len(array) - 1, 0), _AT_ONCE):
        part = array[start : start + _AT_ONCE + (0 if within else 1)]
        pairs = (part[::2], part[1::2]) if within else (part[:-1], part[1:])
        if (pairs[1] < pairs[0]).any():
            raise _misfit(path, name, "its numbers must not fall")


def _misfit(path: Path, name: str, reason: str) -> IndexFormatError:
    return IndexFormatError(f"{path / name}.npy: {reason}; {REBUILD}")
