"""Late interaction: a vector for each token of a text, and each token of a query takes its nearest.

Legend: N passages, T tokens of all passages, L tokens of a query, d dimension, n passages at hand.

The model is a ``MultiVectorEncoder`` of sentence-transformers, such as ColBERT (Khattab and Zaharia 2020,
arXiv 2004.12832). A passage p scores MaxSim, the sum over the query's vectors q_i of max_j q_i . p_j; a model
may want the mean over i. The search is exact, over all passages or over what a first retriever proposes: in
single precision a block of passages at a time, then again in double precision for all that could belong among
the k best, so that equal passages score alike.

The folder (:mod:`grls.retrieve.encoded`) keeps the vectors as ``embeddings.safetensors``, memory-mapped:
``vectors [T, d]``, and ``bounds [N + 1]`` of the passages in them. Its ``grls.json`` may name a first
retriever: ``"retriever": "../bm25-folder"`` (or ``"bm25"``) and ``"passages": 100``, how many it proposes,
which is the most that is found.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self, cast

import numpy as np
from sentence_transformers import MultiVectorEncoder

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbers
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.external_sort.npy import GrowingArray
from grls.io.files import scratch_folder
from grls.models.base import Floats
from grls.models.biencoder import Matrix
from grls.models.load.build import read_stages
from grls.models.sentence_model import PlainTexts, library_type, open_library_model
from grls.models.text_encoder import Role, TextEncoder
from grls.retrieve.base import AllScores, Description, Retriever
from grls.retrieve.build import Building
from grls.retrieve.encoded import RanksByScores, encoded_passages, refuse_generative, top
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import BM25, Opening, open_member
from grls.retrieve.spec import MANIFEST, Member, relative

SHARD = 1024
"""Passages encoded between two moves to disk."""

BLOCK = 1 << 14
"""Vectors of passages that are compared together: 8 MiB of 128 numbers each."""

NO_VECTOR = -1e9
"""Score of a passage without a vector (the model leaves all of its tokens out), which is no hit."""

_SLACK = 1e-5
"""How far single precision may be off, relative to the lengths of the vectors."""

_REBUILD = "make it again with `grls index`."


class LateNetwork(PlainTexts, MultiVectorEncoder):
    """A model of one vector a token."""


class TokenVectors(NamedTuple):
    """Vectors of passages.

    Attributes:
        vectors: ``[T, d]``, float32; may be memory-mapped.
        bounds: ``[N + 1]``: passage n has those from ``bounds[n]`` to ``bounds[n + 1]``.
    """

    vectors: Matrix
    bounds: Numbers


class LateTexts(TextEncoder):
    """Encodes queries and passages as vectors of their tokens.

    Args:
        model: The network.
        max_tokens: Longest passage, see :class:`~grls.models.text_encoder.TextEncoder`; how much is read of a
            query is the model's own.
        stages: See there.

    Attributes:
        similarity: ``maxsim`` or ``meanmaxsim``.
    """

    what = "a multi-vector encoder"

    def __init__(self, model: MultiVectorEncoder, max_tokens: int | None = None, stages: Sequence[str] = ()):
        reader: Any = model[0]
        super().__init__(
            LateNetwork.of(model), max_tokens or getattr(reader, "document_length", None), stages
        )
        if getattr(reader, "document_length", None) is not None:
            reader.document_length = self.max_tokens
        self.similarity = str(model.similarity_fn_name)

    @classmethod
    def load(cls, source: str, device: str = "auto", max_tokens: int | None = None) -> Self:
        """Open a model of the library.

        Args:
            source: Folder or hub name.
            device: ``cpu``, ``cuda``, …; ``auto`` takes a GPU where there is one.
            max_tokens: Longest passage in tokens; None: what the model says.

        Raises:
            ConfigError: There is no such model, or it is something else.
        """
        network = open_library_model(MultiVectorEncoder, source, cls.what)
        return cls(network, max_tokens, read_stages(source)).to(device)

    def limit(self, role: Role) -> int:
        """The longest text that is read as a whole, in tokens; a model may read less of a query."""
        reader: Any = self.model[0]
        expanded = getattr(reader, "query_expansion", None) or {}
        own = getattr(reader, "query_length", None)
        if expanded.get("strategy") == "fixed":
            own = expanded["length"]
        return int(own) if role == "query" and own is not None else self.max_tokens

    def encode(self, texts: Sequence[str], role: Role, batch_size: int) -> list[Matrix]:
        """``[tokens, d]`` vectors of each text, float32.

        Raises:
            DataError: A vector is not finite.
        """
        if not texts:
            return []
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        found = encode(
            list(texts), prompt=self._prompt(role) or "", batch_size=batch_size, show_progress_bar=False,
            convert_to_numpy=True,
        )  # fmt: skip
        made = [np.asarray(one, dtype=np.float32).reshape(-1, self.dimension) for one in found]
        wrong = [text for text, one in zip(texts, made, strict=True) if not np.isfinite(one).all()]
        if wrong:
            raise DataError(
                f"a vector of {wrong[0][:60]!r} is not finite ({len(wrong)} of {len(texts)} texts such): the "
                "weights are damaged or overflow; use float32, or an earlier checkpoint."
            )
        return made

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["multi-vector-1"], [self.similarity]


class MultiVectorRetriever(RanksByScores):
    """Retrieves by MaxSim.

    Args:
        encoder: Encodes the queries.
        corpus: The N passages.
        tokens: Their vectors.
        batch_size: Texts encoded, and queries searched for, together.
        truncate_queries: Let queries longer than the limit be cut instead of refusing them.
        progress: Show progress bars.
        checked: The vectors are known to be finite, so they are not read through for it.

    Raises:
        DataError: The corpus cannot be used, or a vector is not finite.
        MismatchError: The vectors are not those of this corpus and model.
    """

    kind = "multi-vector"
    called = "a multi-vector retriever"
    file = "embeddings.safetensors"
    fields = ("retriever", "passages")
    least_score = NO_VECTOR

    encoder: LateTexts

    def __init__(
        self,
        encoder: LateTexts,
        corpus: Corpus,
        tokens: TokenVectors,
        batch_size: int = 32,
        truncate_queries: bool = False,
        progress: bool = False,
        checked: bool = False,
    ):
        super().__init__(encoder, corpus, batch_size, truncate_queries, progress)
        _check_form(tokens, len(corpus), encoder.dimension)
        if not checked:
            _check_finite(tokens)
        self.tokens = tokens
        self._first: tuple[Retriever, int] | None = None
        self._named: Member | None = None

    @property
    def temperature(self) -> float:
        """That of training: sums over a query's tokens are divided by nothing, means by 1 / 20."""
        return 0.05 if self.encoder.similarity == "meanmaxsim" else 1.0

    @classmethod
    def assemble(
        cls,
        encoder: LateTexts,
        corpus: Corpus,
        scratch: str | Path | None = None,
        batch_size: int = 32,
        progress: bool = False,
        **options: Any,
    ) -> Self:
        """Encode a corpus and put everything together.

        Args:
            encoder: The model.
            corpus: The passages.
            scratch: A folder where the vectors lie until the retriever is saved, so that memory stays small;
                None: in memory.
            batch_size: Texts encoded together.
            progress: Show progress bars.
            options: Other arguments of the constructor.
        """

        def encode(texts: Sequence[str]) -> list[Matrix]:
            return encoder.encode(texts, "passage", batch_size)

        shards = encoded_passages(encoder, corpus, encode, SHARD, progress)
        if scratch is None:
            rows = [one for shard in shards for one in shard]
            tokens = TokenVectors(np.concatenate(rows), _bounds([len(one) for one in rows]))
        else:
            tokens = _on_disk(shards, Path(scratch) / "vectors.npy", encoder.dimension)
        made = cls(encoder, corpus, tokens, batch_size, progress=progress, checked=True, **options)
        made._encoded_by = encoder.fingerprint()
        return made

    @classmethod
    def recognises(cls, model: str) -> bool:
        """Whether a model is a folder of a ``MultiVectorEncoder``."""
        return Path(model).is_dir() and library_type(model) == MultiVectorEncoder.__name__

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`."""
        refuse_generative(how, "a multi-vector encoder")
        start = perf_counter()
        encoder = LateTexts.load(model, how.device, how.limits.input)
        with scratch_folder(how.output) as scratch:
            made = cls.assemble(encoder, Corpus.read(corpus), scratch, how.batch_size, progress=True)
            made.save_pretrained(how.output)
            count, passages = len(made.tokens.vectors), len(made.corpus)
        return (
            f"{how.output}: {passages:,} passages, {count / passages:.1f} vectors of {encoder.dimension} "
            f"dimensions each, {4 * count * encoder.dimension / 2**20:.1f} MiB, "
            f"{perf_counter() - start:.1f} s"
        )

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder, and the first retriever that it may name; see :func:`grls.retrieve.registry.load`.

        Raises:
            DataError: The first retriever is gone, or ``passages`` is no count.
            MismatchError: It is over another corpus.
        """
        opened = super().open(folder, spec, how)
        file, count = folder / MANIFEST, spec.get("passages", 100)
        if "retriever" not in spec:
            if "passages" in spec:
                raise DataError("passages: how many a first retriever proposes; name it as retriever.", file)
            return opened
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise DataError(f"passages: expected a count of at least 1, got {count!r}.", file)
        over = replace(how, corpus=opened.corpus)  # an embedded BM25
        first = open_member(spec["retriever"], folder, "retriever", over)
        member = spec["retriever"]
        if isinstance(member, str) and (member != BM25 or (folder / member).is_dir()):
            member = str(folder / member)
        return opened.behind(first, count, member)

    def behind(self, first: Retriever, passages: int = 100, named: Member | None = None) -> Self:
        """From now on rank what another retriever proposes; returns this one.

        Args:
            first: The other one.
            passages: How many it proposes; no more are found.
            named: Its folder, or its specification, by which :meth:`save_pretrained` names it.

        Raises:
            MismatchError: It is over another corpus.
        """
        check_counts(passages=passages)
        if first.corpus.fingerprint != self.corpus.fingerprint:
            raise MismatchError(
                f"the first retriever is over {first.corpus.source}, this one over {self.corpus.source}, "
                "another corpus: index them over the same one."
            )
        self._first, self._named = (first, passages), named
        return self

    @classmethod
    def _load_encoder(cls, folder: Path, manifest: dict[str, Any]) -> LateTexts:
        return LateTexts.load(str(folder), "cpu", manifest["max_tokens"])

    @classmethod
    def _made(
        cls, encoder: LateTexts, corpus: Corpus, file: Path, checked: bool, options: dict[str, Any]
    ) -> Self:
        return cls(encoder, corpus, _read(file), checked=checked, **options)

    def _write(self, file: Path) -> None:
        _save(self.tokens, file)

    def _recorded(self, folder: Path) -> dict[str, Any]:
        if self._first is None:
            return {}
        member = self._named
        if member is None:
            raise ConfigError("the first retriever has no name to save: tell behind() its folder.")
        if isinstance(member, str) and member != BM25:
            member = relative(member, folder)
        return {"retriever": member, "passages": self._first[1]}

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        own: dict[str, Any] = {
            "max_input_tokens": self.encoder.max_tokens, "truncate_queries": self.truncate_queries,
        }  # fmt: skip
        if self._first is None:
            return Description(self.kind, self.encoder.similarity, own, stages=self.stages)
        first, passages = self._first
        told = first.describe()
        own |= {"first": told.name, "passages": passages}
        label = f"{self.kind} over {told.name}"
        return Description(self.kind, self.encoder.similarity, own, label, self.stages)

    def fingerprint(self) -> str:
        """SHA-256 of model and corpus, and of what proposes."""
        own = super().fingerprint()
        if self._first is None:
            return own
        first, passages = self._first
        return hashlib.sha256(json.dumps([own, first.fingerprint(), passages]).encode()).hexdigest()

    def encode(self, texts: Sequence[str]) -> list[Matrix]:
        """``[L, d]`` vectors of the text of each query."""
        return self.encoder.encode(texts, "query", self.batch_size)

    def among(self, queries: Sequence[Query], allow: Allow) -> list[tuple[list[int], Numbers | None]]:
        """What each query may find: what the first retriever proposes, where there is one."""
        if self._first is None:
            return super().among(queries, allow)
        first, passages = self._first
        found = first.retrieve(queries, passages, allow)
        numbers = [self.corpus.numbers([hit.id for hit in hits]) for hits in found]
        sets = [np.array(sorted(cast(list[int], some)), dtype=np.int64) for some in numbers]
        return [([n], some) for n, some in enumerate(sets)]

    def best(
        self, asked: list[Matrix], queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        """See :class:`~grls.retrieve.encoded.RanksByScores`."""
        vectors = [asked[query] for query in queries]
        numbers = np.arange(len(self.corpus)) if among is None else among
        numbers = numbers[np.diff(self.tokens.bounds)[numbers] > 0]
        scores, longest = self._single(vectors, numbers)
        return [self._exact(*one, numbers, longest, k) for one in zip(vectors, scores, strict=True)]

    def scores(self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]] = ()) -> AllScores:
        """MaxSim of all passages, in single precision; see :class:`~grls.retrieve.base.ScoresAll`."""
        asked = self.encode(self.texts(queries, evidence))
        known = np.flatnonzero(np.diff(self.tokens.bounds) > 0)

        def scores(numbers: Numbers) -> Floats:
            found = np.full((len(numbers), len(self.corpus)), NO_VECTOR)
            found[:, known] = self._single([asked[query] for query in numbers.tolist()], known)[0]
            return found

        return scores

    def _single(self, queries: list[Matrix], numbers: Numbers) -> tuple[Floats, float]:
        """``[Q, n]`` scores in single precision, and the length of the longest vector of a passage."""
        stacked = np.concatenate([np.empty((0, self.encoder.dimension), np.float32), *queries])
        starts, longest = _bounds([len(query) for query in queries]), 0.0
        found = np.zeros((len(queries), len(numbers)))
        for first, last, rows, bounds in self._blocks(numbers):
            nearest = np.maximum.reduceat(stacked @ rows.T, bounds[:-1], axis=1)  # [all L, n]
            sums = np.concatenate([np.zeros((1, last - first)), np.cumsum(nearest, axis=0, dtype=np.float64)])
            found[:, first:last] = sums[starts[1:]] - sums[starts[:-1]]
            longest = max(longest, float(np.einsum("td,td->t", rows, rows).max()))
        counts = [self._divisor(query) for query in queries]
        return found / np.array(counts)[:, None], math.sqrt(longest)

    def _blocks(self, numbers: Numbers) -> Iterator[tuple[int, int, Matrix, Numbers]]:
        """Some passages (all with vectors), whole ones at a time: from where to where, rows, their bounds."""
        begins, ends = self.tokens.bounds[numbers], self.tokens.bounds[numbers + 1]
        before = np.concatenate([[0], np.cumsum(ends - begins)])
        first = 0
        while first < len(numbers):
            last = max(int(np.searchsorted(before, before[first] + BLOCK, side="right")) - 1, first + 1)
            bounds = before[first : last + 1] - before[first]
            if ends[last - 1] - begins[first] == bounds[-1]:  # they lie side by side
                rows = self.tokens.vectors[begins[first] : ends[last - 1]]
            else:
                places = np.repeat(begins[first:last] - bounds[:-1], np.diff(bounds)) + np.arange(bounds[-1])
                rows = self.tokens.vectors[places]
            yield first, last, rows, bounds
            first = last

    def _exact(
        self, query: Matrix, scores: Floats, numbers: Numbers, longest: float, k: int
    ) -> tuple[Numbers, Floats]:
        """The k best, in double precision, of all whose scores in single precision are near enough."""
        if len(scores) > k:
            lengths = float(np.linalg.norm(query, axis=1).sum())
            slack = _SLACK * lengths * longest / self._divisor(query)
            numbers = numbers[scores >= np.partition(scores, -k)[-k] - slack]
        wide = query.astype(np.float64)
        found = np.empty(len(numbers))
        for place, number in enumerate(numbers.tolist()):
            begin, end = self.tokens.bounds[number : number + 2]
            found[place] = maxsim(wide, self.tokens.vectors[begin:end].astype(np.float64))
        return top(found / self._divisor(query), numbers, k)

    def _divisor(self, query: Matrix) -> int:
        return max(len(query), 1) if self.encoder.similarity == "meanmaxsim" else 1


def maxsim(query: Floats, passage: Floats) -> float:
    """Sum over a query's vectors ``[L, d]`` of the largest inner product with a passage's ``[t, d]``.

    It defines what :class:`MultiVectorRetriever` ranks by.
    """
    return float((query @ passage.T).max(axis=1).sum())


def _bounds(lengths: Sequence[int]) -> Numbers:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)


def _on_disk(shards: Iterator[list[Matrix]], file: Path, dimension: int) -> TokenVectors:
    """Vectors that are written as they come, memory-mapped."""
    lengths: list[int] = []
    with GrowingArray(file, np.float32, dimension) as growing:
        for shard in shards:
            growing.append(np.concatenate(shard))
            lengths += [len(one) for one in shard]
    return TokenVectors(np.load(file, mmap_mode="r").view(np.ndarray), _bounds(lengths))


def _save(tokens: TokenVectors, file: Path) -> None:
    """Write vectors as safetensors, a block at a time, so that mapped ones are never whole in memory."""
    size, bounds = tokens.vectors.nbytes, np.ascontiguousarray(tokens.bounds, dtype="<i8")
    header = {
        "vectors": {"dtype": "F32", "shape": list(tokens.vectors.shape), "data_offsets": [0, size]},
        "bounds": {"dtype": "I64", "shape": [len(bounds)], "data_offsets": [size, size + bounds.nbytes]},
    }
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with file.open("wb") as stream:
        stream.write(len(head).to_bytes(8, "little") + head)
        for start in range(0, len(tokens.vectors), BLOCK):
            stream.write(np.ascontiguousarray(tokens.vectors[start : start + BLOCK], dtype="<f4").data)
        stream.write(bounds.data)


def _read(file: Path) -> TokenVectors:
    """Vectors, memory-mapped.

    Raises:
        DataError: The file is damaged.
    """
    try:
        with file.open("rb") as stream:
            head = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(head))
        mapped = np.memmap(file, np.uint8, "r", offset=8 + head).view(np.ndarray)
        parts = {}
        for name, kind, dtype in (("vectors", "F32", "<f4"), ("bounds", "I64", "<i8")):
            if header[name]["dtype"] != kind:
                raise ValueError(f"{name} is {header[name]['dtype']}, not {kind}")
            first, last = header[name]["data_offsets"]
            parts[name] = mapped[first:last].view(dtype).reshape(header[name]["shape"])
    except (ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise DataError(f"the vectors cannot be read ({error}); {_REBUILD}", file) from None
    return TokenVectors(parts["vectors"], np.array(parts["bounds"]))


def _check_form(tokens: TokenVectors, passages: int, dimension: int) -> None:
    vectors, bounds = tokens
    fits = vectors.ndim == 2 and vectors.shape[1] == dimension and bounds.shape == (passages + 1,)
    if not fits or bounds[0] != 0 or bounds[-1] != len(vectors) or (np.diff(bounds) < 0).any():
        raise MismatchError(
            f"expected vectors of {passages:,} passages in {dimension} dimensions, got {vectors.shape} for "
            f"{len(bounds) - 1:,}: they belong to another corpus or model; {_REBUILD}"
        )


def _check_finite(tokens: TokenVectors) -> None:
    for start in range(0, len(tokens.vectors), BLOCK):
        wrong = np.flatnonzero(~np.isfinite(tokens.vectors[start : start + BLOCK]).all(axis=1))
        if len(wrong):
            passage = int(np.searchsorted(tokens.bounds, start + int(wrong[0]), side="right")) - 1
            raise DataError(f"a vector of passage {passage} is not finite; {_REBUILD}")
