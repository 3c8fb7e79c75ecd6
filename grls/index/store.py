"""Building an index from a corpus, and moving it to and from disk.

On disk an index is a folder: ``index.json`` (the manifest) and one ``.npy`` file an array. The manifest
carries the format version, the size and checksum of every file, and the fingerprints of the tokenizer and
the corpus the index was built with; loading refuses what does not match and says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from grls.corpus import Corpus
from grls.errors import ConfigError, DataError, IndexFormatError, MismatchError
from grls.files import atomic_folder, read_json, sha256, write_json
from grls.index.array import ArrayIndex
from grls.index.base import Segment
from grls.index.flat import FlatIndex
from grls.index.marisa import MarisaIndex
from grls.index.rows import Array, Rows, sort_rows
from grls.text import DONE_ID, Codec

FORMAT = 1
MANIFEST = "index.json"
BACKENDS: dict[str, type[Segment]] = {b.backend: b for b in (ArrayIndex, MarisaIndex, FlatIndex)}

_ROW_ARRAYS = ("tokens", "offsets", "members", "member_offsets")
_REBUILD = "build it again with `grls index`."


def index_sequences(sequences: Iterable[Array], end: int, backend: str = "array") -> Segment:
    """Index token sequences; passage n is the n-th sequence.

    Args:
        sequences: One array of token ids a passage, each ending in ``end``.
        end: The end token.
        backend: ``array``, ``marisa`` or ``flat``.

    Raises:
        ConfigError: The backend is unknown.
    """
    kept = [np.asarray(sequence) for sequence in sequences]
    lengths = [len(sequence) for sequence in kept]
    tokens = np.concatenate(kept) if kept else np.empty(0, dtype=np.int64)
    return index_tokens(tokens, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), end, backend)


def build_index(corpus: Corpus, codec: Codec, backend: str = "array", progress: bool = False) -> Segment:
    """Index a corpus and DONE. Passage n of the corpus is passage n here; DONE is number N.

    Args:
        corpus: N passages.
        codec: Turns passages into tokens.
        backend: ``array``, ``marisa`` or ``flat``.
        progress: Show a progress bar.

    Raises:
        DataError: The corpus is empty, or a passage has the id reserved for DONE.
    """
    _refuse_unusable(corpus)
    parts, lengths = _tokenized(corpus, codec, progress)
    lengths.append(len(codec.done_sequence))
    parts.append(codec.done_sequence.astype(parts[0].dtype))
    return index_tokens(np.concatenate(parts), np.concatenate(([0], np.cumsum(lengths))), codec.end, backend)


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
    parts, lengths = _tokenized(corpus, codec, progress=False)
    if before is not None:
        old = [before.tokens(passage).astype(parts[0].dtype) for passage in range(len(before))]
        parts, lengths = old + parts, [len(row) for row in old] + lengths
    return index_tokens(np.concatenate(parts), np.concatenate(([0], np.cumsum(lengths))), codec.end, backend)


def _tokenized(corpus: Corpus, codec: Codec, progress: bool) -> tuple[list[Array], list[int]]:
    """The sequences of a corpus in parts, and the length of each."""
    small = np.uint16 if len(codec.tokenizer) <= 1 << 16 else np.uint32
    parts: list[Array] = []
    lengths: list[int] = []
    with tqdm(
        total=len(corpus), desc="tokenize", unit=" passages", disable=None if progress else True
    ) as bar:
        for batch in corpus.batches():
            rows = codec.passages(batch)
            lengths += [len(row) for row in rows]
            parts.append(np.concatenate(rows).astype(small))
            bar.update(len(batch))
    return parts, lengths


def _refuse_unusable(corpus: Corpus) -> None:
    if not len(corpus):
        raise DataError(
            "the corpus is empty: there is nothing to retrieve. Add passages to it.", corpus.source
        )
    if corpus.numbers([DONE_ID])[0] is not None:
        raise DataError(f"the passage id {DONE_ID!r} is reserved; rename that passage.", corpus.source)


def index_tokens(tokens: Array, offsets: Array, end: int, backend: str = "array") -> Segment:
    """Index the sequences of N passages that stand one after another.

    Args:
        tokens: ``[T]`` all tokens; an unsigned 16-bit array is used as it is.
        offsets: ``[N + 1]`` where each sequence begins; the last is T.
        end: The end token.
        backend: ``array``, ``marisa`` or ``flat``.

    Raises:
        ConfigError: The backend is unknown.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"unknown index backend {backend!r}; expected one of {', '.join(BACKENDS)}.")
    return BACKENDS[backend].build(*sort_rows(tokens, offsets, end))


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
    arrays = {name: getattr(index.rows, name) for name in _ROW_ARRAYS} | index.arrays()
    files = {}
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        np.save(file, array, allow_pickle=False)
        files[name] = {"bytes": file.stat().st_size, "sha256": sha256(file)}
    manifest = {
        "format": FORMAT,
        "backend": index.backend,
        "passages": len(index),
        "rows": len(index.rows),
        "tokens": len(index.rows.tokens),
        "end": index.rows.end,
        "tokenizer": tokenizer,
        "corpus": corpus,
        "files": files,
    }
    write_json(folder / MANIFEST, manifest)


def load_index(
    folder: str | Path, tokenizer: str | None = None, corpus: str | None = None, verify: bool = True
) -> Segment:
    """Open an index, memory-mapped.

    Args:
        folder: Where :func:`save_index` wrote it.
        tokenizer: Fingerprint the index must have been built with; None accepts any.
        corpus: Fingerprint the index must have been built from; None accepts any.
        verify: Compare checksums (reads every byte once); sizes are always compared.

    Raises:
        IndexFormatError: A file is missing, truncated or damaged, or the format is another one.
        MismatchError: It was built with another tokenizer or corpus.
    """
    path = Path(folder)
    if not (path / MANIFEST).is_file():
        raise IndexFormatError(f"{path}: no index here ({MANIFEST} is missing); {_REBUILD}")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict):
        raise IndexFormatError(f"{path / MANIFEST}: expected a JSON object; {_REBUILD}")
    if manifest.get("format") != FORMAT or manifest.get("backend") not in BACKENDS:
        raise IndexFormatError(
            f"{path}: index format {manifest.get('format')}, backend {manifest.get('backend')!r}; this "
            f"version reads format {FORMAT} of {', '.join(BACKENDS)}: {_REBUILD}"
        )
    _refuse_incomplete(manifest, path / MANIFEST)
    for what, expected in (("tokenizer", tokenizer), ("corpus", corpus)):
        if expected is not None and manifest[what] != expected:
            raise MismatchError(f"{path}: the index was built with another {what} than this one; {_REBUILD}")
    arrays = {name: _load(path / f"{name}.npy", entry, verify) for name, entry in manifest["files"].items()}
    rows = Rows(**{name: arrays.pop(name) for name in _ROW_ARRAYS}, end=manifest["end"])
    try:
        return BACKENDS[manifest["backend"]].restore(rows, arrays)
    except (KeyError, TypeError) as error:
        raise IndexFormatError(
            f"{path / MANIFEST}: its files are not those of the backend {manifest['backend']!r} ({error}); "
            f"{_REBUILD}"
        ) from None


def _refuse_incomplete(manifest: dict[str, Any], file: Path) -> None:
    """Raise where the manifest lacks what :func:`write_index` puts there."""
    kinds = {"end": int, "tokenizer": str, "corpus": str, "files": dict}
    wrong = [key for key, kind in kinds.items() if not isinstance(manifest.get(key), kind)]
    if not wrong:
        files = manifest["files"]
        needed = {*_ROW_ARRAYS, *files}
        wrong = [f"files.{name}" for name in sorted(needed) if not _is_entry(files.get(name))]
    if wrong:
        raise IndexFormatError(f"{file}: the key {wrong[0]!r} is missing or malformed; {_REBUILD}")


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def _load(file: Path, entry: dict[str, Any], verify: bool) -> Array:
    if not file.is_file():
        raise IndexFormatError(f"{file}: the file is missing; {_REBUILD}")
    if file.stat().st_size != entry["bytes"]:
        raise IndexFormatError(
            f"{file}: {file.stat().st_size} bytes, expected {entry['bytes']} (truncated?); {_REBUILD}"
        )
    if verify and sha256(file) != entry["sha256"]:
        raise IndexFormatError(f"{file}: the checksum differs, the file is damaged; {_REBUILD}")
    # A plain view: indexing through the memmap class is several times slower.
    mapped: Array = np.load(file, mmap_mode="r", allow_pickle=False).view(np.ndarray)
    return mapped
