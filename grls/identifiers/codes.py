"""Codes as identifiers: tokens of their own, from the vector that a bi-encoder gives a passage.

Legend: N passages, d dimensions, L levels, K codes of a level, M inner nodes of a tree.

Passages of like vectors get codes with a like beginning, and a model learns which code answers a query.

``residual``: at each level the nearest of K centroids is subtracted, and the rest goes to the next level
(k-means in place of the trained quantizers of TIGER, arXiv 2305.05065, and RIPOR, arXiv 2311.09134).

``product``: the vector is cut into L parts, each with K centroids of its own (Jégou et al. 2011).

``hierarchical``: the passages are parted into K clusters, and each of these again while it holds more than a
leaf may; the last token is the place in the leaf (DSI, arXiv 2202.06991, section 3.2; one vocabulary a level
as in NCI, arXiv 2206.02743).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal, Self

import faiss
import numpy as np
import numpy.typing as npt

from grls.data.corpus import Corpus
from grls.data.identifiers import Identifier, IdentifierKind, Ints, passage_keys
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.arguments import Count, options
from grls.models.biencoder import BiEncoderModel
from grls.models.text_encoder import passage_text

Vectors = npt.NDArray[np.float32]

_ITERATIONS = 20


@options("options")
class Codes(IdentifierKind):
    """The code of a passage. A passage that is added gets its code from the same encoder and code book.

    Args:
        encoder: A bi-encoder: a folder, that of a dense retriever, or a hub name. It is needed again to add
            passages, under the same name.
        method: ``residual``, ``product`` or ``hierarchical``.
        levels: Tokens of a code (not hierarchical).
        size: Codes of a level, or clusters of a node of the tree.
        leaf: The most passages of a leaf (hierarchical).
    """

    encoder: str = "all-MiniLM-L6-v2"
    method: Literal["residual", "product", "hierarchical"] = "residual"
    levels: Count = 4
    size: Count = 256
    leaf: Count = 100

    def __post_init__(self) -> None:
        if Path(self.encoder).is_dir():  # it is named from other folders, too
            object.__setattr__(self, "encoder", str(Path(self.encoder).resolve()))

    @property
    def vocabulary(self) -> list[str]:
        levels = self.levels
        names: list[str] = []
        if self.method == "hierarchical":
            levels, names = self.state["depth"], [f"<leaf_{place}>" for place in range(self.leaf)]
        return [f"<c{level}_{n}>" for level in range(levels) for n in range(self.size)] + names

    def learn(self, corpus: Corpus) -> None:
        if len(corpus) < self.size:
            raise ConfigError(
                f"the code book has {self.size} codes a level, and the corpus {len(corpus)} passages: "
                f"set {Option('options.size', len(corpus))} or less."
            )
        encoder = self._encoder()
        vectors = _vectors(encoder, corpus)
        if self.method == "product" and vectors.shape[1] % self.levels:
            raise ConfigError(
                f"vectors of {vectors.shape[1]} dimensions cannot be cut into {self.levels} equal parts: "
                f"choose {Option('options.levels')} so that it divides them."
            )
        self.state["encoder"] = encoder.fingerprint()
        if self.method == "hierarchical":
            self._grow(vectors)
        else:
            self.state["centroids"] = self._quantized(vectors)[1]
        self._take(corpus, vectors)

    def knowing(self, corpus: Corpus) -> Self:
        new = np.flatnonzero(self._places(corpus) < 0)
        if not len(new):
            return self
        added, known = corpus.select(new.tolist()), copy(self)
        known.__dict__["state"] = dict(self.state)
        try:
            encoder = self._encoder()
        except ConfigError as error:
            raise ConfigError(
                f"{len(new):,} passages have no code yet, and the encoder of the codes, {self.encoder}, "
                f"cannot be opened: put it back there. {error.text}"
            ) from error
        if encoder.fingerprint() != self.state["encoder"]:
            raise MismatchError(
                f"{self.encoder} is another encoder than that of the codes, so {len(new):,} passages cannot "
                "get one: put the old one back."
            )
        known._take(added, _vectors(encoder, added))
        return known

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        places = self._places(corpus)
        if len(none := np.flatnonzero(places < 0)):
            raise DataError(f"the passage {corpus[int(none[0])].id!r} has no code.", corpus.source)
        tree = self.method == "hierarchical"
        for place, code in zip(places.tolist(), self.state["codes"][places].tolist(), strict=True):
            names = [f"<c{level}_{n}>" for level, n in enumerate(code) if n >= 0]
            if tree:
                names += [f"<leaf_{n}>" for n in _numeral(int(self.state["in_leaf"][place]), self.leaf)]
            yield [tuple(names)]

    def _encoder(self) -> BiEncoderModel:
        model = Path(self.encoder) / "model"  # of a retriever
        return BiEncoderModel.load(str(model) if model.is_dir() else self.encoder)

    def _places(self, corpus: Corpus) -> Ints:
        """The number of each passage among those with codes; -1: it has none."""
        keys, order = passage_keys(corpus), np.argsort(self.state["keys"])
        found = order[np.searchsorted(self.state["keys"], keys, sorter=order) % len(order)]
        return np.where(self.state["keys"][found] == keys, found, -1)

    def _take(self, corpus: Corpus, vectors: Vectors) -> None:
        """Add the codes of passages to the state."""
        more: dict[str, Any] = {"keys": passage_keys(corpus), "codes": self.encode(vectors)}
        joined = {n: np.concatenate((self.state.get(n, value[:0]), value)) for n, value in more.items()}
        if self.method == "hierarchical":
            leaves = np.unique(joined["codes"], axis=0, return_inverse=True)[1].reshape(-1)
            order = np.argsort(leaves, kind="stable")
            counts = np.bincount(leaves)
            joined["in_leaf"] = np.empty(len(leaves), dtype=np.int64)
            joined["in_leaf"][order] = np.arange(len(leaves)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.state.update(joined)

    def encode(self, vectors: Vectors) -> npt.NDArray[np.int32]:
        """The codes ``[N, L]`` of vectors ``[N, d]``; of a tree, the paths to leaves, with -1 behind them."""
        if self.method == "hierarchical":
            return self._descend(vectors)
        return self._quantized(vectors, self.state["centroids"])[0]

    def _quantized(
        self, vectors: Vectors, book: Vectors | None = None
    ) -> tuple[npt.NDArray[np.int32], Vectors]:
        """Codes, and the centroids ``[L, K, d]``, of a product ``[L, K, d / L]``; ``book`` None: learned."""
        parts = np.split(vectors, self.levels, axis=1) if self.method == "product" else None
        codes, learned, rest = [], [], vectors
        for level in range(self.levels):
            part = rest if parts is None else parts[level]
            learned.append(_centroids(part, self.size) if book is None else book[level])
            codes.append(_nearest(part, learned[-1]))
            rest = part - learned[-1][codes[-1]]
        return np.stack(codes, axis=1).astype(np.int32), np.stack(learned)

    def _grow(self, vectors: Vectors) -> None:
        """The tree: ``centroids [M, K, d]`` and ``children [M, K]``, -1: a leaf, -2: no such cluster."""
        nodes: list[tuple[Vectors, Ints]] = []
        waiting: list[tuple[Ints, int, int, int]] = [(np.arange(len(vectors)), -1, -1, 1)]
        depth = 0
        for members, parent, cluster, level in waiting:  # it grows within
            centroids = _centroids(vectors[members], min(self.size, len(members)))
            nearest, children = _nearest(vectors[members], centroids), np.full(self.size, -2)
            children[: len(centroids)] = -1
            missing = np.zeros((self.size - len(centroids), vectors.shape[1]), dtype=np.float32)
            nodes.append((np.concatenate((centroids, missing)), children))
            if parent >= 0:
                nodes[parent][1][cluster] = len(nodes) - 1
            depth = max(depth, level)
            for n, count in enumerate(np.bincount(nearest).tolist()):
                if self.leaf < count < len(members):  # equal vectors cannot be parted
                    waiting.append((members[nearest == n], len(nodes) - 1, n, level + 1))
        centroids, children = map(np.stack, zip(*nodes, strict=True))
        self.state.update(centroids=centroids, children=children, depth=depth)

    def _descend(self, vectors: Vectors) -> npt.NDArray[np.int32]:
        centroids, children = self.state["centroids"], self.state["children"]
        paths = np.full((len(vectors), self.state["depth"]), -1, dtype=np.int32)
        nodes = np.zeros(len(vectors), dtype=np.int64)  # -1: in a leaf
        for level in range(self.state["depth"]):
            for node in np.unique(nodes[nodes >= 0]).tolist():
                rows = np.flatnonzero(nodes == node)
                paths[rows, level] = _nearest(vectors[rows], centroids[node][children[node] > -2])
            live = np.flatnonzero(nodes >= 0)
            nodes[live] = children[nodes[live], paths[live, level]]
        return paths


def _vectors(encoder: BiEncoderModel, corpus: Corpus) -> Vectors:
    return encoder.encode([passage_text(passage) for passage in corpus], "passage", progress=None)


def _centroids(vectors: Vectors, size: int) -> Vectors:
    means: Any = faiss.Kmeans(
        vectors.shape[1], size, niter=_ITERATIONS, seed=0, min_points_per_centroid=1, verbose=False
    )
    means.train(np.ascontiguousarray(vectors))
    centroids: Vectors = means.centroids
    return centroids


def _nearest(vectors: Vectors, centroids: Vectors) -> Ints:
    """``[N]`` the number of the centroid at the smallest distance."""
    plain: Any = faiss.knn(np.ascontiguousarray(vectors), np.ascontiguousarray(centroids), 1)[1]
    nearest: Ints = plain[:, 0]
    return nearest


def _numeral(number: int, base: int) -> list[int]:
    """A number in digits below ``base``, as many as it needs: 0, 1, …, base - 1, (0, 0), (0, 1), …"""
    digits: list[int] = []
    number += 1
    while number:
        number, digit = divmod(number - 1, base)
        digits.append(digit)
    return digits[::-1]
