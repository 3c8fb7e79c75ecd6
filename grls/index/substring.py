"""A suffix array over the keys of a corpus: which tokens may follow any span of a key.

Legend: T tokens of all keys (a separator after each), U distinct tokens, N keys, S states, A allowed
tokens.

In :mod:`grls.index.array` a sequence begins at its beginning; here a span may begin anywhere, as in the
quotes of "From RAG to RICHES" (arXiv 2407.00361). The suffixes of all keys are sorted once (by
divsufsort, in linear time). The suffixes that begin with a span are adjacent, so a state is this interval
and the length of the span; a further token narrows it. The separator sorts before all tokens. So the
first suffix of an interval shows whether the span reaches the end of a key, and no span crosses keys.

The next tokens are read from the interval: of a large one every 64th suffix, and the block between two of
them if they differ. Results for large intervals are cached.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from grls.errors import DataError
from grls.index.files import load_arrays, read_manifest
from grls.index.keys import Following, KeyIndex, States
from grls.index.rows import Array, Ints, unsigned
from grls.io.files import atomic_folder
from grls.io.seal import seal

_LARGE = 4096
"""From this number of suffixes on, an interval is sampled and its result cached."""
_BLOCK = 64
_CACHED = 4096
"""The number of results that are cached."""
_SEPARATOR = 0

FORMAT = 2
SUBSTRING_MANIFEST = "substring.json"
_ARRAYS = ("ranks", "suffixes", "vocabulary", "starts")


class SubstringIndex(KeyIndex):
    """All spans of all keys.

    A state is (first suffix, end suffix, tokens written).

    Args:
        ranks: ``[T]`` unsigned; the rank of every token among the distinct tokens, from 1; 0 ends a key.
        suffixes: ``[T - N]`` unsigned; the starts of the sorted suffixes, without those of separators.
        vocabulary: ``[U]`` the distinct tokens, ascending.
        starts: ``[N + 1]`` the start of each key in ``ranks``.
    """

    width = 3

    def __init__(self, ranks: Array, suffixes: Array, vocabulary: Ints, starts: Ints):
        self._ranks = ranks
        self._suffixes = suffixes
        self._vocabulary = vocabulary
        self._starts = starts
        self._answers: OrderedDict[tuple[int, int, int], tuple[Ints, Ints]] = OrderedDict()

    @classmethod
    def build(cls, keys: Iterable[Array]) -> Self:
        """Sort the suffixes of N keys of at least one token, without an end token.

        Memory while sorting: 12 bytes a token with at most 65,535 distinct tokens, 24 bytes otherwise.
        """
        rows = [np.asarray(key, dtype=np.int64) for key in keys]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        if not len(rows):
            raise DataError("there is no key to retrieve: the corpus is empty.")
        if not lengths.all():
            raise DataError(f"key {int(np.flatnonzero(lengths == 0)[0])} has no token; leave it out.")
        tokens = np.concatenate(rows)
        vocabulary, numbers = np.unique(tokens, return_inverse=True)
        starts = np.concatenate(([0], np.cumsum(lengths + 1)))
        kind = unsigned(len(vocabulary) + 1)
        ranks = np.zeros(starts[-1], dtype=kind)
        ranks[np.arange(len(tokens)) + np.repeat(np.arange(len(rows)), lengths)] = numbers + 1
        # The suffix array of the ranks: suffixes of their big-endian bytes that begin where a rank begins.
        width = ranks.dtype.itemsize
        from pydivsufsort import divsufsort  # of the extra models

        of_bytes = np.asarray(divsufsort(ranks.astype(f">u{width}").view(np.uint8)))
        suffixes = of_bytes[of_bytes % width == 0].astype(np.int64) // width
        suffixes = suffixes[ranks[suffixes] != _SEPARATOR]
        return cls(ranks, suffixes.astype(unsigned(len(ranks), np.uint32)), vocabulary, starts)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def start(self) -> Ints:
        return np.array([0, len(self._suffixes), 0], dtype=np.int64)

    def follow(self, states: States) -> Following:
        answers = self._small(states)
        for s, (low, high, depth) in enumerate(states.tolist()):
            if high - low >= _LARGE:
                answers[s] = self._large(low, high, depth)
        sizes = np.array([len(tokens) for tokens, _ in answers], dtype=np.int64)
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        if not offsets[-1]:
            return Following(np.empty(0, np.int64), np.empty((0, 3), np.int64), offsets)
        lows = np.concatenate([bounds[:-1] for _, bounds in answers])
        highs = np.concatenate([bounds[1:] for _, bounds in answers])
        depth = np.repeat(states[:, 2] + 1, sizes)
        ranks = np.concatenate([following for following, _ in answers])
        return Following(self._vocabulary[ranks - 1], np.stack((lows, highs, depth), axis=1), offsets)

    def closes(self, states: States) -> npt.NDArray[np.bool_]:
        closed = np.zeros(len(states), dtype=bool)
        written = (states[:, 1] > states[:, 0]) & (states[:, 2] > 0)
        following = self._next(states[written, 0], states[written, 2])
        closed[written] = following == _SEPARATOR
        return closed

    def count(self, states: States) -> Ints:
        return states[:, 1] - states[:, 0]

    def keys(self, state: Ints, whole: bool = True, limit: int | None = None) -> Ints:
        low, high, depth = (int(part) for part in state)
        if whole:  # the suffixes whose key ends after the span come first

            def rank(suffix: int) -> int:
                return int(self._ranks[int(self._suffixes[suffix]) + depth])

            high = low + bisect_left(range(low, high), _SEPARATOR + 1, key=rank)
        if limit is not None:
            high = min(high, low + limit)
        starts = self._suffixes[low:high].astype(np.int64)
        return np.unique(np.searchsorted(self._starts, starts, side="right") - 1)

    def tokens(self, key: int) -> Ints:
        ranks = self._ranks[self._starts[key] : self._starts[key + 1] - 1].astype(np.int64)
        return self._vocabulary[ranks - 1]

    def arrays(self) -> dict[str, Array]:
        return {name: getattr(self, f"_{name}") for name in _ARRAYS}

    def save(self, folder: str | Path, tokenizer: str = "", corpus: str = "") -> None:
        with atomic_folder(folder, SUBSTRING_MANIFEST) as new:
            for name, array in self.arrays().items():
                np.save(new / f"{name}.npy", array, allow_pickle=False)
            manifest = {"format": FORMAT, "keys": len(self), "tokenizer": tokenizer, "corpus": corpus}
            seal(new / SUBSTRING_MANIFEST, manifest)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        tokenizer: str | None = None,
        corpus: str | None = None,
        verify: bool | None = None,
    ) -> Self:
        file = Path(folder) / SUBSTRING_MANIFEST
        manifest = read_manifest(file, FORMAT, {}, tokenizer, corpus)
        return cls(**load_arrays(file, manifest, _ARRAYS, verify))

    def _small(self, states: States) -> list[tuple[Ints, Ints]]:
        """Ranks and bounds of the tokens that follow each small interval; empty for large ones."""
        low, high, depth = states.T
        size = np.where(high - low < _LARGE, high - low, 0)
        ends = np.cumsum(size)
        owner = np.repeat(np.arange(len(states)), size)
        suffix = np.arange(int(size.sum())) + np.repeat(low - (ends - size), size)
        ranks = self._next(suffix, depth[owner])
        opens = np.ones(len(ranks), dtype=bool)
        opens[1:] = (ranks[1:] != ranks[:-1]) | (owner[1:] != owner[:-1])
        opens &= ranks != _SEPARATOR
        rank, first, of = ranks[opens], suffix[opens], owner[opens]
        bounds = np.searchsorted(of, np.arange(len(states) + 1)).tolist()
        return [(rank[a:b], np.append(first[a:b], high[s])) for s, (a, b) in enumerate(pairwise(bounds))]

    def _large(self, low: int, high: int, depth: int) -> tuple[Ints, Ints]:
        key = (low, high, depth)
        known = self._answers.get(key)
        if known is not None:
            self._answers.move_to_end(key)
            return known
        sampled = np.append(np.arange(low, high, _BLOCK), high - 1)
        ranks = self._next(sampled, depth)
        differ = np.flatnonzero(ranks[1:] != ranks[:-1])
        begin, size = sampled[differ] + 1, sampled[differ + 1] - sampled[differ]
        ends = np.cumsum(size)
        suffix = np.arange(int(size.sum())) + np.repeat(begin - (ends - size), size)
        before, after = self._next(suffix - 1, depth), self._next(suffix, depth)
        changes = before != after
        first = np.concatenate(([low], suffix[changes]))
        rank = np.concatenate((ranks[:1], after[changes]))
        if rank[0] == _SEPARATOR:
            first, rank = first[1:], rank[1:]
        answer = rank, np.append(first, high)
        self._answers[key] = answer
        if len(self._answers) > _CACHED:
            self._answers.popitem(last=False)
        return answer

    def _next(self, suffixes: Ints, depth: int | Ints) -> Ints:
        """The rank of the token after ``depth`` tokens of each suffix."""
        ranks: Ints = self._ranks[self._suffixes[suffixes].astype(np.int64) + depth].astype(np.int64)
        return ranks
