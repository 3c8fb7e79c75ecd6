"""An index on disk: a folder with ``index.json`` (the manifest) and one ``.npy`` file an array.

The manifest carries the format version, the size and checksums of every file, and the fingerprints of the
tokenizer and the corpus the index was built with; loading refuses what does not match and says what to do.
What an index is built from is :mod:`grls.index.build`'s affair.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from grls.errors import IndexFormatError, MismatchError
from grls.index.array import ArrayIndex
from grls.index.array_files import REBUILD, describe_arrays, is_entry, load_arrays
from grls.index.base import Segment
from grls.index.external_sort.runs import Sequences
from grls.index.external_sort.stream import write_stream
from grls.index.flat import FlatIndex
from grls.index.marisa import MarisaIndex
from grls.index.rows import Array, Form, Offsets, Rows
from grls.io.files import atomic_folder, read_json, write_json

FORMAT = 2
"""1 had no ``within.npy``: its ``offsets.npy`` holds all offsets. It is read still."""
MANIFEST = "index.json"
BACKENDS: dict[str, type[Segment]] = {b.backend: b for b in (ArrayIndex, MarisaIndex, FlatIndex)}
FORMS = ("whole", "prefixes")
_ROW_ARRAYS = ("tokens", "offsets", "within", "members", "member_offsets")


def save_stream(
    pieces: Iterable[tuple[Array, Array]],
    folder: str | Path,
    end: int,
    memory: int,
    form: Form = "whole",
    tokenizer: str = "",
    corpus: str = "",
) -> None:
    """Index a stream of passages (backend ``array``) straight to a folder, in bounded memory, atomically.

    The files are those that :func:`index_tokens` and :func:`save_index` would write.

    Args:
        pieces: Tokens and offsets of some consecutive passages each, as :func:`index_tokens` takes them;
            a piece should be small against ``memory``.
        folder: Destination, and place of the scratch files; an earlier index there is replaced.
        end: The end token.
        memory: Bytes that sorting may take; what else is held is said in
            :mod:`grls.index.external_sort.stream`.
        form: ``whole`` or ``prefixes``.
        tokenizer: Fingerprint of the codec the tokens come from.
        corpus: Fingerprint of the corpus.

    Raises:
        WriteError: The disk is full or the folder cannot be written.
    """
    with atomic_folder(folder, MANIFEST) as new:
        with tempfile.TemporaryDirectory(prefix="scratch-", dir=new) as scratch:
            sequences = (Sequences(*piece) for piece in pieces)
            sizes = write_stream(sequences, new, Path(scratch), end, memory, form)
        _write_manifest(new, ArrayIndex.backend, sizes, end, form, tokenizer, corpus)


def save_index(index: Segment, folder: str | Path, tokenizer: str = "", corpus: str = "") -> None:
    """Write an index to a folder, atomically.

    Args:
        index: What to write.
        folder: Destination; an earlier index there is replaced.
        tokenizer: Fingerprint of the codec it was built with.
        corpus: Fingerprint of the corpus it was built from.

    Raises:
        WriteError: The disk is full or the folder cannot be written.
    """
    with atomic_folder(folder, MANIFEST) as new:
        write_index(index, new, tokenizer, corpus)


def write_index(index: Segment, folder: Path, tokenizer: str, corpus: str) -> None:
    """Write an index into an existing folder (which the caller makes final)."""
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
        for name, array in (arrays | index.arrays()).items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
    sizes = {
        "passages": len(index),
        "rows": len(index.rows),
        "tokens": len(index.rows.tokens),
        "longest": index.rows.longest,
    }
    _write_manifest(folder, index.backend, sizes, index.rows.end, index.rows.form, tokenizer, corpus)


def _link(file: Path, other: Path) -> None:
    """A second name for a file that nobody will change, or a copy where the file system has no such thing."""
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
    """Open an index, memory-mapped, in a time that does not grow with its size.

    Sizes, types and shapes of all files are always compared with the manifest.

    Args:
        folder: Where :func:`save_index` wrote it.
        tokenizer: Fingerprint the index must have been built with; None accepts any.
        corpus: Fingerprint the index must have been built from; None accepts any.
        verify: True: compare checksums, which reads every byte once. None: do so where the index is small
            (``CHECKED_BYTES``); of a larger one compare sixteen blocks of each file, which finds a file that
            was cut, has holes or belongs to another index, but not one changed byte. False: neither.

    Raises:
        IndexFormatError: A file is missing, truncated or damaged, or the format is another one.
        MismatchError: It was built with another tokenizer or corpus.
    """
    path = Path(folder)
    if not (path / MANIFEST).is_file():
        raise IndexFormatError(f"{path}: no index here ({MANIFEST} is missing); {REBUILD}")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict):
        raise IndexFormatError(f"{path / MANIFEST}: expected a JSON object; {REBUILD}")
    if manifest.get("format") not in (1, FORMAT) or manifest.get("backend") not in list(BACKENDS):
        raise IndexFormatError(
            f"{path}: index format {manifest.get('format')}, backend {manifest.get('backend')!r}; this "
            f"version reads the formats 1 and {FORMAT} of {', '.join(BACKENDS)}: {REBUILD}"
        )
    _refuse_incomplete(manifest, path / MANIFEST)
    for what, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and manifest[what] != expected:
            raise MismatchError(f"{path}: the index was built with another {what} than this one; {REBUILD}")
    files = manifest["files"]
    arrays = load_arrays(path, files, verify)
    rows = _rows(manifest, arrays, path)
    try:
        return BACKENDS[manifest["backend"]].restore(rows, arrays)
    except (KeyError, TypeError) as error:
        raise IndexFormatError(
            f"{path / MANIFEST}: its files are not those of the backend {manifest['backend']!r} ({error}); "
            f"{REBUILD}"
        ) from None


def _rows(manifest: dict[str, Any], arrays: dict[str, Array], path: Path) -> Rows:
    """Take the arrays of the rows out of ``arrays``."""
    tokens, blocks, members, member_offsets = (
        arrays.pop(name) for name in ("tokens", "offsets", "members", "member_offsets")
    )
    offsets = Offsets(blocks, arrays.pop("within", np.empty(0, dtype=np.uint16)))
    if manifest["format"] == 1:
        longest = int(np.diff(offsets.all()).max(initial=0))
        return Rows(tokens, offsets, members, member_offsets, manifest["end"], longest)
    rows = Rows(
        tokens, offsets, members, member_offsets, manifest["end"], manifest["longest"], manifest["form"]
    )
    found = {"passages": len(members), "rows": len(rows), "tokens": len(tokens)}
    for name, count in found.items():
        if manifest[name] != count:
            raise IndexFormatError(f"{path}: {count} {name}, the manifest says {manifest[name]}; {REBUILD}")
    return rows


def _refuse_incomplete(manifest: dict[str, Any], file: Path) -> None:
    """Raise where the manifest lacks what :func:`write_index` puts there."""
    kinds: dict[str, type] = {"end": int, "tokenizer": str, "corpus": str, "files": dict}
    arrays = {*_ROW_ARRAYS}
    if manifest["format"] == 1:
        arrays.remove("within")
    else:
        kinds |= {"passages": int, "rows": int, "tokens": int, "longest": int, "form": str}
    wrong = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    if not wrong and manifest.get("form", "whole") not in FORMS:
        wrong = ["form"]
    if not wrong:
        files = manifest["files"]
        needed = {*arrays, *files}
        wrong = [f"files.{name}" for name in sorted(needed) if not is_entry(files.get(name))]
    if wrong:
        raise IndexFormatError(f"{file}: the key {wrong[0]!r} is missing or malformed; {REBUILD}")
