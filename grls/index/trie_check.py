"""Whether bytes are a trie that the marisa library can walk: the library compares no place with its arrays.

Bytes of a stranger would make it read beyond its arrays, or walk for ever. The layout is that of its sources
(``lib/marisa/grimoire``): a header, then a level of nodes. A level is bit vectors (``louds``: the children of
each node in unary; ``terminal``: which nodes end a key; ``links``: which nodes have a text, not a letter),
letters, and the numbers of the texts. The texts stand in ``tail``, or are the nodes of a further level, which
follows at once; then come a cache of edges, the number of children of the root, and flags.

Legend: n nodes of a level, parents first; node 0 is the root. All numbers are unsigned, little-endian.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from grls.index.rows import Array, Ints

_HEADER = b"We love Marisa.\0"
_LEVELS = 127
"""The most levels that the library builds."""
_NONE = 0xFFFFFFFF
_NO_LINK = 0xFFFFFF


def check_trie(content: bytes, longest: int) -> None:
    """Check the bytes of a trie.

    Args:
        content: The bytes.
        longest: Bytes of the longest key.

    Raises:
        ValueError: The library could not walk them, or a key is longer.
    """
    file = _Parts(content)
    _need(file.take(len(_HEADER)).tobytes() == _HEADER, "it has another header")
    _lengths(file, 1, longest)
    _need(not file.left, "it goes on after its end")


def _need(holds: object, what: str) -> None:
    if not holds:
        raise ValueError(what)


class _Parts:
    """The parts of a file, one after the other."""

    def __init__(self, content: bytes):
        self._bytes, self._place = np.frombuffer(content, dtype=np.uint8), 0

    @property
    def left(self) -> int:
        return len(self._bytes) - self._place

    def take(self, size: int) -> Array:
        _need(size <= self.left, "it ends within a part")
        self._place += size
        return self._bytes[self._place - size : self._place]

    def number(self, kind: str = "<u4") -> int:
        return int.from_bytes(self.take(np.dtype(kind).itemsize).tobytes(), "little")

    def vector(self, kind: str, width: int = 1) -> Array:
        """Numbers, in rows of ``width``; padding after them fills up eight bytes."""
        size = self.number("<u8")
        _need(size % (np.dtype(kind).itemsize * width) == 0, "a part has a broken size")
        array = np.frombuffer(self.take(size).tobytes(), dtype=kind)
        self.take(-size % 8)
        return array if width == 1 else array.reshape(-1, width)

    def bits(self, zeros: bool = False, ones: bool = False) -> Array:
        """A bit vector, with places of its zeros and ones; without any bit it has no part."""
        units = self.vector("<u8")
        size, count = self.number(), self.number()
        counts = self.vector("<u4", 3), self.vector("<u4"), self.vector("<u4")
        _need(len(units) == -(-size // 64), "a bit vector has another size")
        unpacked = np.unpackbits(units.view(np.uint8), bitorder="little").view(np.bool_)
        bits = unpacked[:size]
        _need(not unpacked[size:].any() and int(bits.sum()) == count, "a bit vector has other ones")
        expected = [_ranks(bits), *(_selected(places, size) for places in (zeros and ~bits, ones and bits))]
        same = all(map(np.array_equal, counts, expected if size else [part[:0] for part in expected]))
        _need(same, "the counts of a bit vector are not those of its bits")
        return bits

    def small_numbers(self, expected: int) -> Ints:
        """So many numbers of a few bits each."""
        units = self.vector("<u8")
        bits, mask, count = self.number(), self.number(), self.number("<u8")
        _need(bits <= 32 and mask == (1 << bits) - 1, "its numbers have another number of bits")
        _need(count == expected, "the numbers of its texts are not one for each")
        _need(bits * count <= 64 * len(units) and (len(units) or not count), "numbers are missing")
        places = np.arange(count, dtype=np.uint64) * np.uint64(bits)
        unit, shift = (places // np.uint64(64)).astype(np.int64), places % np.uint64(64)
        units = np.append(units, np.zeros(1, np.uint64))
        high = np.where(shift > 0, units[unit + 1] << ((np.uint64(64) - shift) % np.uint64(64)), 0)
        numbers: Ints = ((units[unit] >> shift | high.astype(np.uint64)) & np.uint64(mask)).astype(np.int64)
        return numbers


def _ranks(bits: Array) -> Array:
    """``[blocks + 1, 3]`` ones before each 512 bits, and within them before each further 64 bits, packed."""
    blocks = -(-len(bits) // 512)
    units = np.zeros(blocks * 512, dtype=np.bool_)
    units[: len(bits)] = bits
    within = units.reshape(blocks, 8, 64).sum(axis=2, dtype=np.uint32).cumsum(axis=1, dtype=np.uint32)
    ranks = np.zeros((blocks + 1, 3), dtype=np.uint32)
    ranks[1:, 0] = within[:, 7].cumsum()
    for column, shifts in ((1, (0, 7, 15, 23)), (2, (0, 9, 18))):
        for n, shift in enumerate(shifts):
            ranks[:-1, column] |= within[:, 4 * (column - 1) + n] << np.uint32(shift)
    return ranks


def _selected(bits: Array | bool, size: int) -> Array:
    """The places of every 512th of these bits, and the number of all bits; nothing if none are asked for."""
    places = np.empty(0, np.int64) if isinstance(bits, bool) else np.append(np.flatnonzero(bits)[::512], size)
    return places.astype(np.uint32)


class _Nodes(NamedTuple):
    """The nodes of a level.

    Attributes:
        parents: ``[n]`` their parents; -1 for the root.
        letters: ``[n]`` their letters, or the last eight bits of the number of their text.
        where: The nodes that have a text.
        extras: Of these, the other bits of its number.
    """

    parents: Ints
    letters: Array
    where: Ints
    extras: Array


def _lengths(file: _Parts, level: int, longest: int) -> Ints:
    """Check a level; returns ``[n]`` the bytes on the way from the root to each node."""
    _need(level <= _LEVELS, f"it has more than {_LEVELS} levels")
    louds, terminal, links = file.bits(zeros=level == 1, ones=True), file.bits(ones=level == 1), file.bits()
    letters, where = file.vector("u1"), np.flatnonzero(links)
    extras, tail = file.small_numbers(len(where)), file.vector("u1")
    _need(not len(file.bits()), "its texts have ends of their own")
    count = len(letters)
    nodes = _Nodes(_parents(louds, count), letters, where, extras)
    ends = count + 1 if level == 1 else 0
    _need(len(terminal) == ends and not terminal[-1:].any(), "other nodes than its own end a key")
    _need(len(links) == count and not links[0], "other nodes than its own have a text")
    bytes_of = np.ones(count, dtype=np.int64)
    bytes_of[0] = 0
    texts = nodes.letters[nodes.where] | extras << 8
    if not len(nodes.where):
        _need(not len(tail), "it has texts of no node")
    elif len(tail):
        bytes_of[nodes.where] = _texts(tail, texts)
    else:
        below = _lengths(file, level + 1, longest)
        _need(texts.min() >= 1 and texts.max() < len(below), "a text is no node of the next level")
        bytes_of[nodes.where] = below[texts]
    _check_cache(file.vector("<u4", 3).astype(np.int64), nodes, level == 1)
    _need(file.number() == int((nodes.parents == 0).sum()), "its root has another number of children")
    file.number()  # flags, which the library checks
    return _ways(nodes.parents, bytes_of, longest)


def _parents(louds: Array, count: int) -> Ints:
    """``[n]`` the parent of each node: the ones of its children stand before its zero."""
    places = np.flatnonzero(louds)
    _need(count and len(louds) == 2 * count + 2 and len(places) == count, "it has another number of nodes")
    parents: Ints = places - np.arange(count) - 1
    in_order = not places[0] and (parents[1:] >= 0).all() and (parents[1:] < np.arange(1, count)).all()
    _need(in_order, "a node is not below one before it")
    return parents


def _texts(tail: Array, starts: Ints) -> Ints:
    """The bytes of the texts that start at these places; each ends before the next zero."""
    _need(not tail[-1] and starts.max() < len(tail), "a text does not end")
    ends = np.flatnonzero(tail == 0)
    lengths: Ints = ends[np.searchsorted(ends, starts)] - starts
    _need(lengths.min() >= 1, "a text is empty")
    return lengths


def _ways(parents: Ints, lengths: Ints, longest: int) -> Ints:
    """``[n]`` the bytes on the way to each node: the children of one generation are the next one."""
    first, end = 0, 1
    while end < len(parents):
        first, end = end, int(np.searchsorted(parents, end))
        lengths[first:end] += lengths[parents[first:end]]
        _need(lengths[first:end].max() <= longest, f"a key has more than {longest:,} bytes")
    return lengths


def _check_cache(cache: Ints, nodes: _Nodes, top: bool) -> None:
    """Check the edges that are looked at first: their number is a power of two, and all are edges."""
    _need(len(cache) and not len(cache) & (len(cache) - 1), "its cache has another size")
    slots = np.flatnonzero(cache[:, 1] != _NONE)
    _need((np.delete(cache[:, 0], slots) == _NONE).all(), "an empty place of its cache has a parent")
    parents, children, labels = cache[slots].T
    inside = not len(slots) or (children.min() >= 1 and children.max() < len(nodes.parents))
    _need(inside, "its cache has another node")
    extras = np.full(len(nodes.parents), _NO_LINK)
    extras[nodes.where] = nodes.extras
    same = (nodes.parents[children] == parents).all() and (nodes.letters[children] == labels & 0xFF).all()
    _need(same and (extras[children] == labels >> 8).all(), "its cache has another edge")
    plain = labels >> 8 == _NO_LINK
    if top:  # there a letter is not compared again
        expected = (parents ^ parents << 5 ^ labels & 0xFF) & (len(cache) - 1)
        _need((slots == expected)[plain].all(), "its cache has an edge of another letter")
