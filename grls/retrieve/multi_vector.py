"""Late interaction: a vector for each token; each query token is matched with its nearest passage token.

Legend: N passages, T tokens of all passages, d dimension, Q queries, L vectors of a query, n passages that
are searched, t vectors of a passage, k hits.

The model is a ``MultiVectorEncoder`` of sentence-transformers, such as ColBERT (Khattab and Zaharia 2020,
arXiv 2004.12832). The score of a passage p is MaxSim, the sum over the query's vectors q_i of max_j q_i .
p_j; some models take the mean over i. The search is exact, over all passages or over those that a first
retriever proposes.

The folder holds the vectors in ``embeddings/``. Its ``grls.json`` may name a first retriever
(``"retriever": "../bm25-folder"`` or ``"bm25"``) and how many passages it proposes (``"passages": 100``); a
query has no more hits than that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
from sentence_transformers import MultiVectorEncoder

from grls.data.filters import Allow, Numbers
from grls.data.types import Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.index.external_sort import GrowingArray
from grls.io.progress import counted
from grls.io.timing import report_step
from grls.models.base import Floats, once_each
from grls.models.biencoder import Matrix
from grls.models.load.build import read_stages
from grls.models.sentence_model import PlainTexts, Role, open_library_model, reader_of
from grls.models.text_encoder import TextEncoder, together
from grls.retrieve.base import Description, Evidence, Retriever
from grls.retrieve.encoded import (
    REBUILD,
    EncodedRetriever,
    Parts,
    bounds_of,
    read_array,
    top,
    unusable_row,
)
from grls.retrieve.hops.finders import found_after
from grls.retrieve.registry import BM25, Opening, open_member, with_languages
from grls.retrieve.spec import MANIFEST, Member, relative

NO_VECTOR = -1e9
"""Score of a passage without a vector (the model leaves all of its tokens out), which is no hit."""

BLOCK = 1 << 14
"""Vectors of passages that are compared together: 8 MiB of 128 numbers each."""

_SLACK = 1e-5
"""Largest error of single precision, relative to the lengths of the vectors."""


class LateNetwork(PlainTexts, MultiVectorEncoder):
    """A model of one vector a token."""


class LateTexts(TextEncoder):
    """Encodes queries and passages as vectors of their tokens.

    ``max_tokens`` limits passages; None: the limit of the model, which also holds for queries. ``similarity``
    is ``maxsim`` or ``meanmaxsim``.
    """

    what = "a multi-vector encoder"

    def __init__(self, model: MultiVectorEncoder, max_tokens: int | None = None, stages: Sequence[str] = ()):
        reader: Any = reader_of(model, "document")
        super().__init__(
            LateNetwork.of(model), max_tokens or getattr(reader, "document_length", None), stages
        )
        if getattr(reader, "document_length", None) is not None:
            reader.document_length = self.max_tokens
        self.similarity = str(model.similarity_fn_name)

    @classmethod
    def load(cls, source: str, device: str = "auto", max_tokens: int | None = None) -> Self:
        network = open_library_model(MultiVectorEncoder, source, cls.what)
        return cls(network, max_tokens, read_stages(source)).to(device)

    def limit(self, role: Role) -> int:
        """The longest text that is read as a whole, in tokens; a model may read less of a query."""
        reader = self.reader(role)
        expansion = getattr(reader, "query_expansion", None) or {}
        length = getattr(reader, "query_length", None)
        if expansion.get("strategy") == "fixed":
            length = expansion["length"]
        return int(length) if role == "query" and length is not None else self.max_tokens

    def encode(self, texts: Sequence[str], role: Role, batch_size: int) -> list[Matrix]:
        """``[tokens, d]`` vectors of each text, float32."""
        if not texts:
            return []
        encode = self.model.encode_query if role == "query" else self.model.encode_document
        distinct, numbers = once_each(texts)

        def read(some: Sequence[str], size: int) -> Any:
            return encode(
                list(some), prompt=self._prompt(role), batch_size=size, show_progress_bar=False,
                convert_to_numpy=True,
            )  # fmt: skip

        output = read(distinct, together(self.model, role, distinct, batch_size, read))
        vectors = [np.asarray(rows, dtype=np.float32).reshape(-1, self.dimension) for rows in output]
        wrong = [text for text, rows in zip(distinct, vectors, strict=True) if not np.isfinite(rows).all()]
        if wrong:
            raise DataError(
                f"a vector of {wrong[0][:60]!r} is not finite ({len(wrong)} of {len(distinct)} such): the "
                "weights are damaged or overflow; use float32, or an earlier checkpoint."
            )
        return [vectors[number] for number in numbers]

    def _identity(self) -> tuple[list[Any], list[Any]]:
        return ["multi-vector-1"], [self.similarity]


class TokenVectors(NamedTuple):
    """Vectors of passages: ``vectors [T, d]``, float32; passage n has those from ``bounds[n]`` to ``bounds[n
    + 1]``.
    """

    vectors: Matrix
    bounds: Numbers

    def taken(self, numbers: Numbers) -> TokenVectors:
        begins = self.bounds[numbers]
        lengths = self.bounds[numbers + 1] - begins
        bounds = bounds_of(lengths)
        positions = np.repeat(begins - bounds[:-1], lengths) + np.arange(bounds[-1])
        return TokenVectors(self.vectors[positions], bounds)


def maxsim(query: Floats, passage: Floats) -> float:
    """The definition of MaxSim: a query ``[L, d]``, a passage ``[t, d]``; :class:`MaxSimSearch` is the fast
    way.
    """
    return float((query @ passage.T).max(axis=1).sum())


@dataclass(frozen=True)
class MaxSimSearch:
    """Finds the passages of largest MaxSim.

    All passages are scored in single precision, a block of vectors at a time. All whose scores could belong
    among the k best are then scored in double precision, each alone, so equal passages score alike.
    """

    tokens: TokenVectors
    mean: bool = False

    @property
    def known(self) -> Numbers:
        """Passages that have a vector, ascending."""
        return np.flatnonzero(np.diff(self.tokens.bounds) > 0)

    def best(self, queries: list[Matrix], k: int, numbers: Numbers) -> list[tuple[Numbers, Floats]]:
        """The k best among passages ``numbers [n]`` for queries ``[L, d]``; equal scores by number."""
        rankings = []
        table, longest = self.single(queries, numbers)
        for query, scores in zip(queries, table, strict=True):
            report_step()
            divisor, near = self._divisor(query), numbers
            if len(scores) > k:  # those whose scores in single precision are high enough
                lengths = float(np.linalg.norm(query, axis=1).sum())
                slack = _SLACK * lengths * longest / divisor
                near = numbers[scores >= np.partition(scores, -k)[-k] - slack]
            wide, exact = query.astype(np.float64), np.empty(len(near))
            for row, number in enumerate(near.tolist()):
                begin, end = self.tokens.bounds[number : number + 2]
                exact[row] = maxsim(wide, self.tokens.vectors[begin:end].astype(np.float64))
            rankings.append(top(exact / divisor, near, k))
        return rankings

    def single(self, queries: list[Matrix], numbers: Numbers) -> tuple[Floats, float]:
        """Scores ``[Q, n]`` in single precision, and the length of the longest vector of a passage."""
        stacked = np.concatenate([np.empty((0, self.tokens.vectors.shape[1]), np.float32), *queries])
        starts, longest = bounds_of([len(query) for query in queries]), 0.0
        scores = np.zeros((len(queries), len(numbers)))
        for first, last, rows, bounds in self._blocks(numbers):
            nearest = np.maximum.reduceat(stacked @ rows.T, bounds[:-1], axis=1)  # [all L, n]
            sums = np.concatenate([np.zeros((1, last - first)), np.cumsum(nearest, axis=0, dtype=np.float64)])
            scores[:, first:last] = sums[starts[1:]] - sums[starts[:-1]]
            longest = max(longest, float(np.einsum("td,td->t", rows, rows).max()))
        divisors = [self._divisor(query) for query in queries]
        return scores / np.array(divisors)[:, None], math.sqrt(longest)

    def _blocks(self, numbers: Numbers) -> Iterator[tuple[int, int, Matrix, Numbers]]:
        """Blocks of whole passages: first and last passage, their vectors, and the bounds in these."""
        begins, ends = self.tokens.bounds[numbers], self.tokens.bounds[numbers + 1]
        before = bounds_of(ends - begins)
        first = 0
        while first < len(numbers):
            last = max(int(np.searchsorted(before, before[first] + BLOCK, side="right")) - 1, first + 1)
            bounds = before[first : last + 1] - before[first]
            if ends[last - 1] - begins[first] == bounds[-1]:  # they lie side by side
                rows = self.tokens.vectors[begins[first] : ends[last - 1]]
            else:
                rows = self.tokens.taken(numbers[first:last]).vectors
            yield first, last, rows, bounds
            report_step()
            first = last

    def _divisor(self, query: Matrix) -> int:
        return max(len(query), 1) if self.mean else 1


class MultiVectorRetriever(EncodedRetriever):
    """Retrieves by MaxSim, among all passages or those of a first one; see :class:`EncodedRetriever`."""

    kind = system = "multi-vector"
    folders = ("retriever",)
    called = "a multi-vector retriever"
    encodes = LateTexts
    library = MultiVectorEncoder.__name__
    file = "embeddings"
    fields = ("retriever", "passages")
    least_score = NO_VECTOR

    _first: tuple[Retriever, int] | None = None
    _named: Member | None = None

    @staticmethod
    def check_rows(rows: TokenVectors, count: int, dimension: int) -> None:
        vectors, bounds = rows
        fits = vectors.ndim == 2 and vectors.shape[1] == dimension and bounds.shape == (count + 1,)
        if not fits or bounds[0] != 0 or bounds[-1] != len(vectors) or (np.diff(bounds) < 0).any():
            raise MismatchError(
                f"expected vectors of {counted(count, 'passage')} in {counted(dimension, 'dimension')}, got "
                f"{vectors.shape} for {len(bounds) - 1:,}: they belong to another corpus or model; {REBUILD}"
            )
        if (wrong := unusable_row(vectors)) is not None:
            passage = int(np.searchsorted(bounds, wrong, side="right")) - 1
            raise DataError(f"a vector of passage {passage} is not finite, or above 1e15; {REBUILD}")

    @staticmethod
    def rows_of(encoded: list[Matrix]) -> TokenVectors:
        return TokenVectors(np.concatenate(encoded), bounds_of([len(vectors) for vectors in encoded]))

    @staticmethod
    def concatenated(parts: list[TokenVectors]) -> TokenVectors:
        lengths = np.concatenate([np.diff(part.bounds) for part in parts])
        return TokenVectors(np.concatenate([part.vectors for part in parts]), bounds_of(lengths))

    @staticmethod
    def write(parts: Parts, file: Path) -> None:
        """``vectors [T, d]``, and the ``bounds [N + 1]`` of the passages."""
        file.mkdir()
        lengths, dimension = [], next(iter(parts())).vectors.shape[1]
        with GrowingArray(file / "vectors.npy", np.float32, dimension) as growing:
            for part in parts():
                growing.append(part.vectors)
                lengths.append(np.diff(part.bounds))
        np.save(file / "bounds.npy", bounds_of(np.concatenate(lengths)))

    @staticmethod
    def read(file: Path, passages: int, dimension: int) -> TokenVectors:
        bounds = read_array(file / "bounds.npy", np.int64)
        return TokenVectors(read_array(file / "vectors.npy", np.float32), np.array(bounds))

    def taken(self, numbers: Numbers) -> TokenVectors:
        rows: TokenVectors = self.rows
        return rows.taken(numbers)

    @staticmethod
    def each(rows: TokenVectors) -> Iterable[Matrix]:
        return np.split(rows.vectors, rows.bounds[1:-1])

    @staticmethod
    def size(rows: TokenVectors, passages: int) -> str:
        count, dimension = rows.vectors.shape
        mebibytes = 4 * count * dimension / 2**20
        return f", {count / passages:.1f} vectors of {dimension} dimensions each, {mebibytes:.1f} MiB"

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Self:
        opened = super().open(folder, spec, opening)
        file, count = folder / MANIFEST, spec.get("passages", 100)
        if "retriever" not in spec:
            if "passages" in spec:
                raise DataError("passages: how many a first retriever proposes; name it as retriever.", file)
            return opened
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise DataError(f"passages: expected a count of at least 1, got {count!r}.", file)
        inner = replace(opening, corpus=opened.corpus)  # an embedded BM25
        first = open_member(spec["retriever"], folder, "retriever", inner)
        member = spec["retriever"]
        if isinstance(member, str) and (member != BM25 or (folder / member).is_dir()):
            member = str(folder / member)
        return opened.behind(first, count, member)

    def behind(self, first: Retriever, passages: int = 100, named: Member | None = None) -> Self:
        """Rank only so many passages that another retriever proposes; returns this retriever.

        ``named`` is its folder or specification, for :meth:`save_pretrained`.
        """
        if first.corpus.fingerprint != self.corpus.fingerprint:
            raise MismatchError(
                f"the first retriever is over {first.corpus.source}, this one over {self.corpus.source}, "
                "another corpus: index them over the same one."
            )
        self._first, self._named = (first, passages), named
        return self

    def _recorded(self, folder: Path) -> dict[str, Any]:
        if self._first is None:
            return {}
        member = self._named
        if member is None:
            raise ConfigError("the first retriever has no name to save: give its folder to behind().")
        if isinstance(member, str) and member != BM25:
            member = relative(member, folder)
        spec = {"kind": self.kind, "retriever": member}
        return {
            "retriever": with_languages(spec, folder, self.corpus)["retriever"], "passages": self._first[1],
        }  # fmt: skip

    def describe(self) -> Description:
        alone = super().describe()
        if self._first is None:
            return alone
        first = self._first[0].describe().name
        options = {**alone.options, "first": first, "passages": self._first[1]}
        return replace(alone, options=options, label=f"{self.kind} over {first}")

    def fingerprint(self) -> str:
        alone = super().fingerprint()
        if self._first is None:
            return alone
        first, passages = self._first
        return hashlib.sha256(json.dumps([alone, first.fingerprint(), passages]).encode()).hexdigest()

    def groups(
        self, queries: Sequence[Query], evidence: Evidence, allow: Allow
    ) -> list[tuple[list[int], Numbers | None]]:
        """The allowed passages of each query, or the proposals of the first retriever."""
        if self._first is None:
            return super().groups(queries, evidence, allow)
        first, passages = self._first
        if any(evidence):
            proposed = [step.hits for step in found_after(first, queries, evidence, passages, allow)]
        else:
            proposed = first.retrieve(queries, passages, allow)
        numbers = [self.corpus.numbers([hit.id for hit in hits]) for hits in proposed]
        sets = [np.array(sorted(cast(list[int], ids)), dtype=np.int64) for ids in numbers]
        return [([query], allowed) for query, allowed in enumerate(sets)]

    @property
    def _search(self) -> MaxSimSearch:
        return MaxSimSearch(self.rows, self.encoder.similarity == "meanmaxsim")

    def best(
        self, encoded: list[Matrix], queries: Sequence[int], k: int, among: Numbers | None
    ) -> list[tuple[Numbers, Floats]]:
        numbers = self._search.known
        if among is not None:
            numbers = np.intersect1d(among, numbers, assume_unique=True)
        return self._search.best([encoded[query] for query in queries], k, numbers)

    def score(self, encoded: list[Matrix], queries: Numbers) -> Floats:
        """MaxSim ``[n, N]`` of queries by number, in single precision."""
        known = self._search.known
        table = np.full((len(queries), len(self.corpus)), NO_VECTOR)
        table[:, known] = self._search.single([encoded[query] for query in queries.tolist()], known)[0]
        return table
