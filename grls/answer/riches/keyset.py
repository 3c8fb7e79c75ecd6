"""The keys of a corpus with their index, in memory or in a folder.

Legend: N keys, B bytes of their texts, M passages of all keys together.

On disk keys are a folder: ``keys.json`` (the manifest), four ``.npy`` files with the texts and the passages,
and the index in ``index/``. All of it is memory-mapped, and nothing is tokenized again. The manifest carries
the format version, checksums, and the origin of the keys; keys of another origin are refused.

Making of keys: :mod:`grls.answer.riches.keys`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

import numpy as np

from grls.errors import DataError, IndexFormatError, MismatchError
from grls.index.array_files import REBUILD, describe_arrays, is_entry, load_arrays
from grls.index.keys import KeyIndex, PrefixKeys
from grls.index.rows import Array, Ints
from grls.index.substring import SubstringIndex
from grls.io.files import atomic_folder, read_json, write_json

FORMAT = 1
MANIFEST = "keys.json"
_INDEX = "index"
_ARRAYS = ("texts", "text_offsets", "passages", "passage_offsets")
_Entry = TypeVar("_Entry")
_REMEDY = "name another folder, or remove this folder and run the command again"


class KeyOrigin(NamedTuple):
    """The data and options that keys were made from: two sets of keys of one origin are the same.

    Attributes:
        kind: The kind of key, see :data:`grls.answer.riches.keys.KeyKind`.
        anywhere: Whether a quote may begin anywhere in a key.
        markers: The texts that open and close a quote; no key holds them.
        tokenizer: Fingerprint of the tokenizer.
        corpus: Fingerprint of the corpus.
        source: Fingerprint of the file of propositions, or of the sections of the passages; empty for the
            other kinds.
    """

    kind: str
    anywhere: bool
    markers: tuple[str, str]
    tokenizer: str
    corpus: str
    source: str


@dataclass(frozen=True)
class Keys:
    """N keys and their index.

    Attributes:
        texts: The text of each key.
        passages: Numbers of the passages that each key stands for, ascending.
        index: The constraint index over the keys.
        origin: The data and options that the keys were made from.
    """

    texts: Sequence[str]
    passages: Sequence[tuple[int, ...]]
    index: KeyIndex
    origin: KeyOrigin

    @property
    def tokenizer(self) -> str:
        """Fingerprint of the tokenizer."""
        return self.origin.tokenizer

    @property
    def corpus(self) -> str:
        """Fingerprint of the corpus."""
        return self.origin.corpus

    @property
    def markers(self) -> tuple[str, str]:
        """The texts that open and close a quote; no key holds them."""
        return self.origin.markers

    def save(self, folder: str | Path) -> None:
        """Write the keys to a folder, atomically; earlier keys there are replaced.

        Raises:
            ConfigError: The folder holds other files.
            WriteError: The disk is full or the folder cannot be written.
        """
        with atomic_folder(folder, MANIFEST) as new:
            octets, places = _joined(np.frombuffer(text.encode(), np.uint8) for text in self.texts)
            numbers, offsets = _joined(np.array(numbers, dtype=np.int64) for numbers in self.passages)
            for name, array in zip(_ARRAYS, (octets, places, numbers, offsets), strict=True):
                np.save(new / f"{name}.npy", array, allow_pickle=False)
            self.index.save(new / _INDEX, self.tokenizer, self.corpus)
            manifest = {"format": FORMAT, "keys": len(self.texts), **self.origin._asdict()}
            write_json(new / MANIFEST, manifest | {"files": describe_arrays(new)})

    @classmethod
    def load(cls, folder: str | Path, origin: KeyOrigin, verify: bool | None = None) -> Self:
        """Open keys, memory-mapped.

        Args:
            folder: A folder that :meth:`save` wrote.
            origin: The origin that the keys must have.
            verify: Compare checksums; see :func:`grls.index.array_files.load_arrays`.

        Raises:
            IndexFormatError: A file is missing or damaged, or the format is another one.
            MismatchError: The keys have another origin.
        """
        path = Path(folder)
        manifest = _manifest(path)
        made = {name: manifest.get(name) for name in KeyOrigin._fields}
        for name, expected in origin._asdict().items():
            if made[name] != (list(expected) if isinstance(expected, tuple) else expected):
                raise MismatchError(f"{path}: {_difference(name, made[name], expected)}; {_REMEDY}.")
        try:
            arrays = load_arrays(path, {name: manifest["files"][name] for name in _ARRAYS}, verify)
            kind = SubstringIndex if origin.anywhere else PrefixKeys
            index: KeyIndex = kind.load(path / _INDEX, origin.tokenizer, origin.corpus, verify)
        except (IndexFormatError, DataError) as error:
            problem = str(error).removesuffix(f"; {REBUILD}").removesuffix("; build it again.")
            raise IndexFormatError(f"{problem}; {_REMEDY}.") from None
        texts = _Texts(arrays["texts"], arrays["text_offsets"])
        passages = _Numbers(arrays["passages"], arrays["passage_offsets"])
        if not len(index) == len(texts) == len(passages) == manifest.get("keys"):
            raise IndexFormatError(f"{path}: the files do not hold the same number of keys; {_REMEDY}.")
        return cls(texts, passages, index, origin)


class _Stored(Sequence[_Entry], Generic[_Entry]):
    """N entries that stand one after another in an array.

    Args:
        entries: ``[B]`` or ``[M]``.
        offsets: ``[N + 1]`` start of each entry, and the end.
    """

    def __init__(self, entries: Array, offsets: Array):
        self._entries = entries
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> _Entry: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[_Entry, ...]: ...

    def __getitem__(self, place: int | slice) -> _Entry | tuple[_Entry, ...]:
        if isinstance(place, slice):
            return tuple(self[n] for n in range(*place.indices(len(self))))
        number = range(len(self))[place]
        return self._read(self._entries[int(self._offsets[number]) : int(self._offsets[number + 1])])

    def _read(self, part: Array) -> _Entry:
        raise NotImplementedError


class _Texts(_Stored[str]):
    def _read(self, part: Array) -> str:
        return part.tobytes().decode()


class _Numbers(_Stored[tuple[int, ...]]):
    def _read(self, part: Array) -> tuple[int, ...]:
        return tuple(part.tolist())


def _joined(rows: Iterable[Array]) -> tuple[Array, Ints]:
    """Rows one after another, and their offsets."""
    kept = list(rows)
    return np.concatenate(kept), np.concatenate(([0], np.cumsum([len(row) for row in kept], dtype=np.int64)))


def _manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    if not file.is_file():
        raise IndexFormatError(f"{path}: no keys here ({MANIFEST} is missing); {_REMEDY}.")
    try:
        manifest = read_json(file)
    except DataError as error:
        raise IndexFormatError(f"{error} {_REMEDY}.") from None
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != FORMAT:
        raise IndexFormatError(f"{path}: format {version}, this version reads {FORMAT}; {_REMEDY}.")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(is_entry(files.get(name)) for name in _ARRAYS):
        raise IndexFormatError(f"{file}: the key 'files' is malformed; {_REMEDY}.")
    return dict(manifest)


def _difference(name: str, made: Any, expected: Any) -> str:
    """A sentence that says how the origin of stored keys differs."""
    if name == "source":
        return "these keys were made from other propositions or sections than those given"
    if name in ("tokenizer", "corpus"):
        return f"these keys were made with another {name} than this one"
    return f"these keys were made with {name} {made!r}, expected {expected!r}"
