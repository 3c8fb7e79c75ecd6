"""An index on disk: a folder with ``index.json`` (the manifest) and one ``.npy`` file per array.

The manifest holds the format version, the size and checksums of every file, and the fingerprints of the
tokenizer and the corpus of the index. Loading refuses files that do not match, and names the remedy. Building
an index: :mod:`grls.index.build`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from grls.errors import ConfigError, DataError, IndexFormatError, MismatchError, out_of_memory
from grls.index.array import ArrayIndex
from grls.index.array_files import REBUILD, describe_arrays, is_checked, is_entry, load_arrays
from grls.index.backends import BACKENDS, BUILT_IN, ROW_ARRAYS
from grls.index.base import Segment
from grls.index.external_sort.runs import Sequences
from grls.index.external_sort.stream import Runs, merge_runs, write_stream
from grls.index.fit import refuse_misfit, refuse_outside
from grls.index.rows import MAX_LENGTH, Array, Form, Offsets, Rows
from grls.io.files import atomic_folder, other_format, read_json, write_json
from grls.io.plugins import VARIABLE, load_plugins

FORMAT = 2
MANIFEST = "index.json"
FORMS = ("whole", "prefixes")


def save_stream(
    pieces: Iterable[tuple[Array, Array]],
    folder: str | Path,
    end: int,
    memory: int,
    form: Form = "whole",
    tokenizer: str = "",
    corpus: str = "",
) -> None:
    """Index a stream of passages (backend ``array``) directly in a folder, in bounded memory, atomically.

    The files equal those of :func:`index_tokens` and :func:`save_index`.

    Args:
        pieces: Tokens and offsets of consecutive passages, as in :func:`index_tokens`; a piece should be
            small compared with ``memory``.
        folder: Destination, also of the scratch files; an earlier index there is replaced.
        end: The end token.
        memory: Memory for sorting in bytes; other needs of memory: :mod:`grls.index.external_sort.stream`.
        form: ``whole`` or ``prefixes``.
        tokenizer: Fingerprint of the codec of the tokens.
        corpus: Fingerprint of the corpus.

    Raises:
        WriteError: The disk is full or the folder cannot be written.
    """
    with atomic_folder(folder, MANIFEST) as new:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=new) as scratch:
            sequences = (Sequences(*piece) for piece in pieces)
            sizes = write_stream(sequences, new, Path(scratch), end, memory, form)
        _write_manifest(new, ArrayIndex.backend, sizes, end, form, tokenizer, corpus)


def save_runs(runs: Runs, folder: str | Path, end: int, memory: int, form: Form = "whole") -> None:
    """Merge sorted runs directly into an index in a folder, atomically; they are left as they are.

    Args:
        runs: The sorted runs of all passages.
        folder: Destination, also of the scratch files; an earlier index there is replaced.
        end: The end token.
        memory: Memory for sorting in bytes.
        form: ``whole`` or ``prefixes``.

    Raises:
        WriteError: The disk is full or the folder cannot be written.
    """
    with atomic_folder(folder, MANIFEST) as new:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=new) as scratch:
            sizes = merge_runs(runs, new, Path(scratch), memory, form)
        _write_manifest(new, ArrayIndex.backend, sizes, end, form, "", "")


def save_index(index: Segment, folder: str | Path, tokenizer: str = "", corpus: str = "") -> None:
    """Write an index to a folder, atomically.

    Args:
        index: The index.
        folder: Destination; an earlier index there is replaced.
        tokenizer: Fingerprint of the codec of the index.
        corpus: Fingerprint of the corpus of the index.

    Raises:
        WriteError: The disk is full or the folder cannot be written.
    """
    with atomic_folder(folder, MANIFEST) as new:
        write_index(index, new, tokenizer, corpus)


def write_index(index: Segment, folder: Path, tokenizer: str, corpus: str) -> None:
    """Write an index into an existing folder; the caller gives the folder its final name."""
    if isinstance(index, ArrayIndex) and index.files is not None:
        for file in (Path(index.files.name) / "index").glob("*.npy"):
            _link(file, folder / file.name)
    else:
        rows = index.rows
        arrays = {
            "tokens": rows.tokens,
            "offsets": rows.offsets.blocks,
            "within": rows.offsets.within,
            "members": rows.members,
            "member_offsets": rows.member_offsets,
        }
        for name, array in (arrays | _stored_arrays(index)).items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    sizes = {
        "passages": len(index),
        "rows": len(index.rows),
        "tokens": len(index.rows.tokens),
        "longest": index.rows.longest,
    }
    _write_manifest(folder, index.backend, sizes, index.rows.end, index.rows.form, tokenizer, corpus)


def _stored_arrays(index: Segment) -> dict[str, Array]:
    """The arrays of the backend; their names are those that it declares, or they would not be read again."""
    arrays = index.arrays()
    if set(arrays) != set(index.stored):
        raise ConfigError(
            f"the backend {index.backend!r} stores the arrays {sorted(arrays)} and declares "
            f"{sorted(index.stored)}: name in its class attribute `stored` what arrays() returns."
        )
    return arrays


def _link(file: Path, other: Path) -> None:
    """Make a hard link to a file that never changes, or a copy if the file system has no hard links."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copyfile(file, other)


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
        "files": describe_arrays(folder),
    }
    write_json(folder / MANIFEST, manifest)


def load_index(
    folder: str | Path, tokenizer: str | None = None, corpus: str | None = None, verify: bool | None = None
) -> Segment:
    """Open an index, memory-mapped; of the backend ``array`` in a time that does not grow with its size.

    Sizes, types and shapes of all files are always compared with the manifest.

    Args:
        folder: The folder that :func:`save_index` wrote.
        tokenizer: The required fingerprint of the tokenizer; None accepts any.
        corpus: The required fingerprint of the corpus; None accepts any.
        verify: True: compare checksums, which reads every byte once; False: compare nothing; None: compare
            the checksums of a small index (up to ``CHECKED_BYTES``), and sixteen blocks of each file of a
            larger one. The blocks reveal a file that was cut, has holes or belongs to another index, but not
            a single changed byte.

    Raises:
        IndexFormatError: A file is missing, truncated or damaged, or has an unknown format.
        MismatchError: The index was built with another tokenizer or corpus.
    """
    path = Path(folder)
    if not (path / MANIFEST).is_file():
        raise IndexFormatError(f"{path}: no index here ({MANIFEST} is missing); {REBUILD}")
    try:
        manifest = read_json(path / MANIFEST)
    except DataError as error:
        raise IndexFormatError(f"{error} The file is damaged; {REBUILD}") from None
    if not isinstance(manifest, dict):
        raise IndexFormatError(f"{path / MANIFEST}: expected a JSON object; {REBUILD}")
    if manifest.get("backend") not in list(BACKENDS):
        load_plugins()
    if manifest.get("format") != FORMAT:
        raise IndexFormatError(f"{path}: {other_format(manifest.get('format'), FORMAT)}")
    if manifest.get("backend") not in list(BACKENDS):
        raise IndexFormatError(
            f"{path}: index backend {manifest.get('backend')!r}; this version reads {', '.join(BACKENDS)}: "
            f"name the module that registers the backend in {VARIABLE}, or {REBUILD}"
        )
    _refuse_incomplete(manifest, path / MANIFEST)
    for what, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and manifest[what] != expected:
            raise MismatchError(f"{path}: the index was built with another {what}; {REBUILD}")
    files = _named_files(manifest)
    checked = is_checked(files, verify)
    arrays = load_arrays(path, files, verify)
    if needed := set(BACKENDS[manifest["backend"]].stored) - set(arrays):
        raise _misfit_of(manifest, path, f"{min(needed)} is missing")
    refuse_misfit(_of_known_form(arrays, manifest), manifest["backend"], path)
    rows = _rows(manifest, arrays, path)
    if checked:
        refuse_outside(rows, _of_known_form(arrays, manifest), path)
    try:
        return BACKENDS[manifest["backend"]].restore(rows, arrays)
    except (KeyError, OverflowError, TypeError, RuntimeError, ValueError) as error:
        if out_of_memory(error):
            raise
        raise _misfit_of(manifest, path, str(error)) from None


def _of_known_form(arrays: dict[str, Array], manifest: dict[str, Any]) -> dict[str, Array]:
    """The arrays whose form is known here: those of the rows, and of the backends of the package.

    A registered backend checks its own in ``restore``.
    """
    own = manifest["backend"] in BUILT_IN
    return {name: array for name, array in arrays.items() if own or name in ROW_ARRAYS}


def _misfit_of(manifest: dict[str, Any], path: Path, what: str) -> IndexFormatError:
    return IndexFormatError(
        f"{path / MANIFEST}: its files do not fit the backend {manifest['backend']!r} ({what}); {REBUILD}"
    )


def _named_files(manifest: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files of an index that are opened: those of its backend, whatever else a manifest names."""
    known = {*ROW_ARRAYS, *BACKENDS[manifest["backend"]].stored}
    return {name: entry for name, entry in manifest["files"].items() if name in known}


def _rows(manifest: dict[str, Any], arrays: dict[str, Array], path: Path) -> Rows:
    """Make the rows from ``arrays`` and remove their arrays from it."""
    tokens, blocks, members, member_offsets = (
        arrays.pop(name) for name in ("tokens", "offsets", "members", "member_offsets")
    )
    offsets = Offsets(blocks, arrays.pop("within"))
    if not -1 < manifest["longest"] <= MAX_LENGTH:
        raise IndexFormatError(
            f"{path / MANIFEST}: the longest row has {manifest['longest']:,} tokens, at most {MAX_LENGTH:,} "
            f"are possible; {REBUILD}"
        )
    rows = Rows(
        tokens, offsets, members, member_offsets, manifest["end"], manifest["longest"], manifest["form"]
    )
    counts = {"passages": len(members), "rows": len(rows), "tokens": len(tokens)}
    for name, count in counts.items():
        if manifest[name] != count:
            raise IndexFormatError(f"{path}: {count} {name}, the manifest says {manifest[name]}; {REBUILD}")
    return rows


def _refuse_incomplete(manifest: dict[str, Any], file: Path) -> None:
    """Raise an error if the manifest lacks a key of :func:`write_index`."""
    kinds: dict[str, type] = {
        "end": int, "tokenizer": str, "corpus": str, "files": dict, "passages": int, "rows": int,
        "tokens": int, "longest": int, "form": str,
    }  # fmt: skip
    wrong = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    if not wrong and manifest["form"] not in FORMS:
        wrong = ["form"]
    if not wrong:
        files = manifest["files"]
        needed = {*ROW_ARRAYS, *files}
        wrong = [f"files.{name}" for name in sorted(needed) if not is_entry(files.get(name))]
    if wrong:
        raise IndexFormatError(f"{file}: the key {wrong[0]!r} is missing or malformed; {REBUILD}")
