"""Building an index from a corpus, and moving it to and from disk.

On disk an index is a folder: ``index.json`` (the manifest) and one ``.npy`` file an array. The manifest
carries the format version, the size and checksums of every file, and the fingerprints of the tokenizer and
the corpus the index was built with; loading refuses what does not match and says what to do.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from grls.corpus import Corpus
from grls.errors import ConfigError, DataError, IndexFormatError, MismatchError
from grls.files import atomic_folder, read_json, write_json
from grls.index.array import ArrayIndex
from grls.index.base import Segment
from grls.index.files import REBUILD, describe, is_entry, load_arrays
from grls.index.flat import FlatIndex
from grls.index.marisa import MarisaIndex
from grls.index.rows import Array, Form, Offsets, Rows, sort_rows
from grls.index.runs import Sequences, cost
from grls.index.stream import SMALLEST_MEMORY, write_stream
from grls.progress import Progress, waiting
from grls.text import DONE_ID, Codec
from grls.views import Views

log = logging.getLogger(__name__)

FORMAT = 2
"""1 had no ``within.npy``: its ``offsets.npy`` holds all offsets. It is read still."""
MANIFEST = "index.json"
BACKENDS: dict[str, type[Segment]] = {b.backend: b for b in (ArrayIndex, MarisaIndex, FlatIndex)}
FORMS = ("whole", "prefixes")
_ROW_ARRAYS = ("tokens", "offsets", "within", "members", "member_offsets")


def index_sequences(
    sequences: Iterable[Array], end: int, backend: str = "array", form: Form = "whole"
) -> Segment:
    """Index token sequences; passage n is the n-th sequence.

    Args:
        sequences: One array of token ids a passage, each ending in ``end``.
        end: The end token.
        backend: ``array``, ``marisa`` or ``flat``.
        form: ``whole``, or ``prefixes`` (``array`` alone).

    Raises:
        ConfigError: The backend or the form is unknown, or they do not go together.
    """
    kept = [np.asarray(sequence) for sequence in sequences]
    lengths = [len(sequence) for sequence in kept]
    tokens = np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)
    return index_tokens(tokens, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), end, backend, form)


def build_index(
    corpus: Corpus | Views,
    codec: Codec,
    backend: str = "array",
    progress: bool = False,
    form: Form = "whole",
    memory: int | None = None,
    scratch: str | Path | None = None,
) -> Segment:
    """Index a corpus and DONE. Passage n of the corpus is passage n here; DONE is number N.

    Args:
        corpus: N passages; or their views, which then are what N counts and is numbered.
        codec: Turns passages into tokens.
        backend: ``array``, ``marisa`` or ``flat``.
        progress: Show a progress bar.
        form: ``whole``, or ``prefixes``: of each passage what tells it from the others (``array`` alone).
        memory: Bytes that building may take; a corpus that needs more is sorted on disk and comes back
            memory-mapped (``array`` alone). None: no bound.
        scratch: Where to sort on disk; the folder must exist, and what is put there goes with the index.
            None: the system's folder for temporary files.

    Raises:
        ConfigError: The options do not go together.
        DataError: The corpus is empty, or a passage has the id reserved for DONE.
    """
    _check_options(backend, form)
    if memory is not None and memory < SMALLEST_MEMORY:
        raise ConfigError(
            f"building an index needs at least {SMALLEST_MEMORY // 2**20} MiB, got {memory:,} bytes."
        )
    _refuse_unusable(corpus)
    with Progress(len(corpus), "tokenize", "passages", shown=progress) as bar, ExitStack() as after:

        def ended() -> None:
            bar.close()
            after.enter_context(waiting(f"sort {len(corpus):,} passages", progress))

        done = _sequences([codec.done_sequence], _token_type(codec))
        pieces = _followed(chain(_tokenized(corpus, codec, bar), (done,)), ended)
        kept: list[Sequences] = []
        needed = 0
        for piece in pieces:
            kept.append(piece)
            needed += cost(len(piece.tokens), len(piece.offsets) - 1, piece.tokens.itemsize)
            if memory is not None and backend == "array" and needed > memory:
                return _build_on_disk(_drained(kept, pieces), codec.end, memory, form, scratch)
        return index_tokens(*_joined(kept), codec.end, backend, form)


def build_segment(
    corpus: Corpus, codec: Codec, backend: str = "array", before: Segment | None = None
) -> Segment:
    """Index a few passages without DONE: the second segment of a :class:`~grls.index.union.UnionIndex`.

    Args:
        corpus: The passages.
        codec: Turns passages into tokens.
        backend: ``array``, ``marisa`` or ``flat``.
        before: A segment whose passages come before these.

    Raises:
        DataError: There is none, or one has the id reserved for DONE.
    """
    _refuse_unusable(corpus)
    pieces = list(_tokenized(corpus, codec))
    if before is not None:
        old = [before.tokens(passage) for passage in range(len(before))]
        pieces.insert(0, _sequences(old, _token_type(codec)))
    return index_tokens(*_joined(pieces), codec.end, backend)


def _refuse_unusable(corpus: Corpus | Views) -> None:
    if not len(corpus):
        raise DataError(
            "the corpus is empty: there is nothing to retrieve. Add passages to it.", corpus.source
        )
    if corpus.numbers([DONE_ID])[0] is not None:
        raise DataError(f"the passage id {DONE_ID!r} is reserved; rename that passage.", corpus.source)


def _token_type(codec: Codec) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if len(codec.tokenizer) <= 1 << 16 else np.uint32


def _tokenized(corpus: Corpus | Views, codec: Codec, bar: Progress | None = None) -> Iterator[Sequences]:
    """The passages as tokens, a batch at a time; in the end tells how many were cut."""
    before = codec.cut_passages
    for batch in corpus.batches():
        yield _sequences(codec.passages(batch), _token_type(codec))
        if bar is not None:
            bar.update(len(batch))
    cut = codec.cut_passages - before
    if cut:
        log.warning(
            "%d of %d passages are longer than %d tokens, and what is behind is neither written nor found "
            "(--max_passage_tokens of grls index).",
            cut, len(corpus), codec.limits.passage,
        )  # fmt: skip


def _sequences(rows: list[Any], kind: Any) -> Sequences:
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
    return Sequences(np.concatenate(rows).astype(kind), offsets)


def _followed(pieces: Iterator[Sequences], ended: Callable[[], None]) -> Iterator[Sequences]:
    """The pieces, and a call when the last one has been taken."""
    yield from pieces
    ended()


def _drained(kept: list[Sequences], rest: Iterator[Sequences]) -> Iterator[Sequences]:
    """``kept`` and then ``rest``; nothing is held once it has been handed on."""
    kept.reverse()
    while kept:
        yield kept.pop()
    yield from rest


def _joined(pieces: list[Sequences]) -> Sequences:
    shifts = np.cumsum([0, *(len(piece.tokens) for piece in pieces)])
    places = [piece.offsets[1:] + shift for piece, shift in zip(pieces, shifts, strict=False)]
    return Sequences(np.concatenate([p.tokens for p in pieces]), np.concatenate([[0], *places]))


def _build_on_disk(
    pieces: Iterator[Sequences], end: int, memory: int, form: Form, scratch: str | Path | None
) -> Segment:
    holder = tempfile.TemporaryDirectory(prefix=".grls-index-", dir=scratch)
    folder = Path(holder.name) / "index"
    save_stream(pieces, folder, end, memory, form)
    index = load_index(folder, verify=False)
    assert isinstance(index, ArrayIndex)
    index.files = holder
    return index


def _check_options(backend: str, form: str) -> None:
    if backend not in BACKENDS:
        raise ConfigError(f"unknown index backend {backend!r}; expected one of {', '.join(BACKENDS)}.")
    if form not in FORMS:
        raise ConfigError(f"unknown form {form!r}; expected one of {', '.join(FORMS)}.")
    if form == "prefixes" and backend != "array":
        raise ConfigError(f"the form 'prefixes' needs the backend 'array'; got {backend!r}.")


def index_tokens(
    tokens: Array, offsets: Array, end: int, backend: str = "array", form: Form = "whole"
) -> Segment:
    """Index the sequences of N passages that stand one after another.

    Args:
        tokens: ``[T]`` all tokens; an unsigned 16-bit array is used as it is.
        offsets: ``[N + 1]`` where each sequence begins; the last is T.
        end: The end token.
        backend: ``array``, ``marisa`` or ``flat``.
        form: ``whole``, or ``prefixes`` (``array`` alone).

    Raises:
        ConfigError: The backend or the form is unknown, or they do not go together.
    """
    _check_options(backend, form)
    return BACKENDS[backend].build(*sort_rows(tokens, offsets, end, form))


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
        memory: Bytes that sorting may take; what else is held is said in :mod:`grls.index.stream`.
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
        "files": describe(folder),
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
    if manifest.get("format") not in (1, FORMAT) or manifest.get("backend") not in BACKENDS:
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
