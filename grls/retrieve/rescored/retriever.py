"""A retriever of kind ``rescored``: a cross-encoder rescores the best passages of another retriever.

Legend: k hits of a query, n passages that are read.

The cross-encoder reads the first n passages x of a ranking together with the query. The first retriever gives
scores s(x), and the cross-encoder (:mod:`grls.models.cross_encoder`) logits z(x):

    score(x)  =  s(x) + w z(x),    or z(x) without a weight w.

Equal scores keep the order of the first retriever. All other passages follow in that order, as far from the
last rescored passage as they were from the n-th. n does not depend on k, so neither does the order of the
rescored passages. The folder holds ``grls.json``, and ``model/`` if the cross-encoder is embedded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from sentence_transformers import CrossEncoder

from grls.data.codec import CUT_QUERIES
from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow, Filter
from grls.data.types import RANKINGS, Hit, Query
from grls.errors import DataError, MismatchError
from grls.io.files import atomic_folder
from grls.io.progress import Progress, counted
from grls.io.seal import chosen_verify, seal
from grls.models.cross_encoder import PairScorer
from grls.models.sentence_model import library_type
from grls.models.text_encoder import passage_text
from grls.retrieve.base import (
    Description,
    Evidence,
    HopHits,
    LetsJoin,
    Plan,
    Retriever,
    ScoresDoneAfter,
    has_log_probabilities,
    runner_of,
)
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building
from grls.retrieve.hops.finders import found_after
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import BM25, Opening, open_member
from grls.retrieve.rescored.options import PASSAGES, Rereading
from grls.retrieve.spec import (
    FORMAT,
    MANIFEST,
    check_fields,
    from_fields,
    member_path,
    recorded,
)

MODEL = "model"
"""The folder of an embedded cross-encoder."""

_USED = ("batch_size", "truncate_queries")
"""Options of search that have an effect on the cross-encoder."""

_TOGETHER = 256
"""Queries whose passages are read from the corpus together."""


class RescoredRetriever:
    """Ranks the best passages of a retriever by the logits of a cross-encoder.

    ``name`` is that of the cross-encoder in manifests. ``batch_size`` pairs are read together.
    """

    kind = "rescored"
    tuned_by = ("grls.tune.weights:CROSS_ENCODER",)
    folders = ("retriever", "model")

    def __init__(
        self,
        retriever: Retriever,
        encoder: PairScorer,
        rereading: Rereading,
        name: str = MODEL,
        batch_size: int = 32,
        truncate_queries: bool = False,
    ):
        self.retriever = retriever
        self.encoder = encoder
        self.rereading = rereading
        self.name = name
        self.batch_size = batch_size
        self.truncate_queries = truncate_queries

    @staticmethod
    def open(folder: Path, spec: dict[str, Any], opening: Opening) -> RescoredRetriever:
        file = folder / MANIFEST
        check_fields(spec, ("retriever", "model", "passages"), ("weight", "fingerprint"), file)
        rereading = from_fields(Rereading, spec, file, "rescored")
        retriever = open_member(spec["retriever"], folder, "retriever", opening)
        model = spec["model"]  # a folder, relative to this one, or a hub name
        if not isinstance(model, str) or not model:
            raise DataError(f"model: expected a folder or hub name of a cross-encoder, got {model!r}.", file)
        path, (first, _, _) = member_path(model, folder), model.partition("/")
        is_path = model == MODEL or model.startswith((".", "/", "~")) or model.count("/") > 1
        if not path.is_dir() and (is_path or (folder / first).is_dir()):
            raise DataError(
                f"model names {model}, and there is no cross-encoder at {path}: move it back, or write "
                "where it is.",
                file,
            )
        rescored = rescored_by(retriever, str(path) if path.is_dir() else model, rereading, opening)
        print_ = rescored.encoder.fingerprint()
        if chosen_verify(opening.verify) is not False and spec.get("fingerprint", print_) != print_:
            raise MismatchError(
                f"{file}: model is another cross-encoder than this retriever was made with (fingerprint): "
                "bring back the right one, or take the field out and tune weight and passages again."
            )
        return rescored

    @classmethod
    def recognises(cls, model: str) -> bool:
        return Path(model).is_dir() and library_type(model) == CrossEncoder.__name__

    @classmethod
    def build(cls, model: str, corpus: str, building: Building) -> str:
        """Build a folder that rescores the passages of BM25."""
        encoder, passages = PairScorer.load(model, building.device), Corpus.read(corpus)
        words = BM25Retriever(passages)
        first = {"kind": BM25, "analyzer": recorded(words.analyzer)}
        retriever = cls(words, encoder, Rereading(PASSAGES))
        spec = {"kind": cls.kind, "retriever": first, "model": MODEL, **recorded(retriever.rereading)}
        with atomic_folder(building.output, MANIFEST) as new:
            (new / MODEL).mkdir()
            encoder.write(new / MODEL)
            passages.write(corpus_file(new))
            seal(new / MANIFEST, {"format": FORMAT, **spec})
        return (
            f"{building.output}: {counted(len(passages), 'passage')}, the first {PASSAGES} of BM25 are read"
        )

    @property
    def corpus(self) -> Corpus:
        return self.retriever.corpus

    def describe(self) -> Description:
        first, weight = self.retriever.describe(), self.rereading.weight
        own = {
            "cross_encoder": self.name,
            "cross_encoder_passages": self.rereading.passages,
            "cross_encoder_weight": weight,
        }
        return replace(
            first,
            system=self.kind,
            score_mode="cross_encoder" if weight is None else f"{first.score_mode} + cross_encoder",
            options={**first.options, **own},
            label=f"{first.name}, rescored",
            steps=first.steps if first.steps in RANKINGS else "single",
            sets=False,
        )

    def fingerprint(self) -> str:
        parts = [self.retriever.fingerprint(), self.encoder.fingerprint(), repr(self.rereading)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def sums(self) -> dict[str, str]:
        """The field of ``grls.json`` by which its cross-encoder is known."""
        return {"fingerprint": self.encoder.fingerprint()}

    def untuned(self) -> str:
        return f"{self.retriever.fingerprint()} {self.encoder.fingerprint()}"

    def read(
        self, queries: Sequence[Query], passages: int, evidence: Evidence | None = None
    ) -> list[tuple[list[Hit], list[float]]]:
        """Hits of the first retriever (or of the hop after the evidence), and their logits."""
        if evidence is None:
            rankings = self.retriever.retrieve(queries, passages)
            return list(zip(rankings, self._logits(queries, rankings), strict=True))
        rankings = [step.hits for step in found_after(self.retriever, queries, evidence, passages)]
        return list(zip(rankings, self._logits(queries, rankings, evidence), strict=True))

    def _reread(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        evidence: Evidence | None = None,
    ) -> list[list[Hit]]:
        if self.rereading.weight == 0:
            return [list(hits) for hits in rankings]
        ranked: list[list[Hit]] = []
        count = sum(len(hits[: self.rereading.passages]) for hits in rankings)
        with Progress(count, "rescore", "passages", shown=None) as bar:
            for start in range(0, len(queries), _TOGETHER):
                part = slice(start, start + _TOGETHER)
                first = [hits[: self.rereading.passages] for hits in rankings[part]]
                before = None if evidence is None else evidence[part]
                logits = self._logits(queries[part], first, before, bar.update)
                for hits, row in zip(rankings[part], logits, strict=True):
                    ranked.append(rank_again(hits, row, self.rereading.weight))
        return ranked

    def _logits(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        evidence: Evidence | None = None,
        decided: Callable[[int], object] | None = None,
    ) -> list[list[float]]:
        """The logits of all hits; ``decided`` is called with the number of pairs read since the last call.

        A query that would be cut is refused, unless ``truncate_queries`` is set; evidence may be cut.
        """
        distinct = list(dict.fromkeys(hit.id for hits in rankings for hit in hits))
        numbers = [number for number in self.corpus.numbers(distinct) if number is not None]
        texts = {passage.id: passage_text(passage) for passage in self.corpus.passages(numbers)}
        if not self.truncate_queries:
            pairs = [(q, texts[hit.id]) for q, hits in zip(queries, rankings, strict=True) for hit in hits]
            if cut := self.encoder.cut_queries([(query.text, text) for query, text in pairs]):
                row, tokens = cut[0]
                raise DataError(
                    f"query {pairs[row][0].id!r} has {tokens} tokens, but the cross-encoder reads "
                    f"{self.encoder.max_tokens} of a query and a passage together: its end would be cut. "
                    f"Shorten it, or accept the cut with {CUT_QUERIES}."
                )
        read = [query.text for query in queries]
        if evidence is not None:
            read = [self.encoder.query_text(*pair) for pair in zip(read, evidence, strict=True)]
        texts_read = [
            (text, texts[hit.id]) for text, hits in zip(read, rankings, strict=True) for hit in hits
        ]
        flat = iter(self.encoder.logits(texts_read, self.batch_size, decided).tolist())
        return [[next(flat) for _ in hits] for hits in rankings]

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        queries = queries_of(queries)
        first = self.retriever.retrieve(queries, max(k, self.rereading.passages), allow)
        return [hits[:k] for hits in self._reread(queries, first)]

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow = None
    ) -> list[HopHits]:
        """First retriever and cross-encoder read the evidence; without a weight, logits compare with no
        DONE.
        """
        first = found_after(self.retriever, queries, evidence, max(k, self.rereading.passages), allow)
        ranked = self._reread(queries, [step.hits for step in first], evidence)
        ends = [None if self.rereading.weight is None else step.done for step in first]
        return [HopHits(hits[:k], end) for hits, end in zip(ranked, ends, strict=True)]

    @property
    def runner(self) -> Any:
        return runner_of(self.retriever)

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        """Its first retrieval joins a search."""
        hits = yield from cast(LetsJoin, self.retriever).plan(query, max(k, self.rereading.passages), allow)
        return self._reread([query], [hits])[0][:k]


class RescoredHops(RescoredRetriever):
    """A :class:`RescoredRetriever` whose first retriever scores DONE.

    The cross-encoder knows no DONE: DONE keeps the first retriever's score, as a passage of logit 0 does, so
    a weight is needed to compare them.
    """

    @property
    def learned_done(self) -> bool | None:
        return self.retriever.learned_done if isinstance(self.retriever, ScoresDoneAfter) else None


def rescored_by(
    retriever: Retriever, model: str, rereading: Rereading, opening: Opening
) -> RescoredRetriever:
    """Load the cross-encoder of a folder or hub name, and rescore with it.

    Of the options of search, only batch size and ``truncate_queries`` reach it. It computes in bfloat16 where
    that is the precision, else in float32.
    """
    precision = "bfloat16" if opening.precision == "bfloat16" else "float32"
    encoder = PairScorer.load(model, opening.device, precision)
    options: dict[str, Any] = {"name": Path(model).name if Path(model).is_dir() else model}
    if (search := opening.searching) is not None:
        options |= {name: getattr(search, name) for name in _USED}
    return over(retriever, encoder, rereading, **options)


def over(
    retriever: Retriever, encoder: PairScorer, rereading: Rereading, **options: Any
) -> RescoredRetriever:
    """A :class:`RescoredHops` where hops can end with DONE, else a :class:`RescoredRetriever`."""
    scores_done = has_log_probabilities(retriever) or isinstance(retriever, ScoresDoneAfter)
    ends = rereading.weight is not None and scores_done
    return (RescoredHops if ends else RescoredRetriever)(retriever, encoder, rereading, **options)


def rank_again(hits: Sequence[Hit], logits: Sequence[float], weight: float | None) -> list[Hit]:
    """One ranking, best first, by ``[n]`` logits of the first n hits; weight None: logits replace scores."""
    count = len(logits)
    if not count:
        return list(hits)
    pairs = zip(hits, logits, strict=False)
    ranked = [
        hit._replace(score=logit if weight is None else hit.score + weight * logit) for hit, logit in pairs
    ]
    ranked.sort(key=lambda hit: -hit.score)
    low, last = ranked[-1].score, hits[count - 1].score
    return ranked + [hit._replace(score=min(low, low + (hit.score - last))) for hit in hits[count:]]
