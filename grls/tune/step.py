"""What the steps of tuning share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, own_corpus, passage_queries, read_split
from grls.data.types import Passage, Query
from grls.evaluation.measures import ndcg
from grls.io.work import Journal
from grls.retrieve.base import Retriever
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions
from grls.retrieve.options import stored_hops, stored_search
from grls.retrieve.registry import Opening, open_member, open_spec
from grls.retrieve.spec import MANIFEST, Member
from grls.tune.options import TuneOptions

CHOSEN = ("priors", "search", "weights", "passages", "weight", "size")
"""The fields of ``grls.json`` that steps choose before they come to hops."""


class TuneChoice(NamedTuple):
    """The choice of a step.

    Attributes:
        changes: Fields of the folder's ``grls.json``.
        before: Its value before, in [0, 1]: of the folder's own setting (fusion, chains), or of the ranking
            without priors or rescoring.
        after: Its value with the choice.
        words: The choice, in words.
    """

    changes: dict[str, Any]
    measure: str
    before: float
    after: float
    words: str


class Quality(NamedTuple):
    """Recall@k of a search; among equal recalls, ``order`` decides: nDCG of the gold passages, in [0, 1]."""

    recall: float
    order: float = 0.0


class Step(NamedTuple):
    """A step of tuning, which the class of a kind names in ``tuned_by`` as ``module:name``.

    ``applies`` says whether a folder has what the step tunes.
    """

    name: str
    tune: Callable[[Tuning], TuneChoice]
    applies: Callable[[Tuning], bool] = lambda tuning: True


@dataclass
class Tuning:
    """A retriever under tuning; ``spec`` has what earlier steps have chosen.

    ``memory`` are the hits of hops, for :class:`~grls.retrieve.hops.retriever.RankedHops`.
    """

    folder: Path
    spec: dict[str, Any]
    dev: DevQueries
    grid: TuneOptions
    opening: Opening
    memory: dict[Any, Any] = field(default_factory=dict)
    journal: Journal = field(init=False)

    @property
    def hops(self) -> HopOptions:
        return stored_hops(self.spec, self.folder / MANIFEST) or USUAL_HOPS

    def inputs(self, corpus: Callable[[], Corpus]) -> tuple[DevQueries, int, str]:
        """The inputs to tune on, the cut-off k of their recall, and the name of this measure.

        What ranks in one step does so in every hop, too. So if the folder ranks by hops, every gold passage
        is a hop with the gold passages before it as evidence, and the first hit counts.
        """
        if self.hops.steps == "ranked":
            return self.dev.by_hop(corpus()), 1, "recall@1 of a hop"
        return self.dev, self.grid.k, f"recall@{self.grid.k}"

    def open(self, **search: Any) -> Retriever:
        """The retriever with all choices so far, in a single step, with some options of search."""
        opening = replace(self.opening, hop_by_hop=False)
        spec = self.spec
        if search:
            spec = {**spec, "search": {**spec.get("search", {}), **search}}
        return open_spec(self.folder, spec, opening)

    def open_member(self, member: Member, field: str, **changes: Any) -> Retriever:
        """A member, by its path or specification, with the search that the folder stores.

        ``field`` names it in the folder's ``grls.json``, for errors; ``changes`` are fields of the opening.
        """
        search = stored_search(self.spec, self.folder / MANIFEST)
        opening = replace(self.opening, search=self.opening.search or search, **changes)
        return open_member(member, self.folder, field, opening)


def earlier_choices(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of the steps before hops, which the measurements of hops depend on."""
    return {name: spec.get(name) for name in CHOSEN}


@dataclass
class DevQueries:
    """Q queries to tune on, or all their hops.

    Attributes:
        queries: ``[Q]``.
        gold: ``[Q]`` ids of the gold passages that are left.
        corpus: That of the data set.
        own: Ids of the queries that are passages (:func:`~grls.data.dataset.passage_queries`).
        evidence: ``[Q]`` the gold passages before each hop.
        hops: These are hops: recall@k of a hop is the share of the passages that k hits can hold.
    """

    queries: list[Query]
    gold: list[list[str]]
    corpus: Corpus | None = None
    own: Set[str] = frozenset()
    evidence: list[list[Passage]] = field(default_factory=list)
    hops: bool = False

    def __post_init__(self) -> None:
        self.evidence = self.evidence or [[] for _ in self.queries]

    @classmethod
    def read(cls, data: str, split: str, limit: int | None = None) -> DevQueries:
        corpus = own_corpus(data)
        queries, qrels = read_split(data, split, corpus, limit)
        own = frozenset() if corpus is None else passage_queries(queries, qrels, corpus)
        return cls(queries, [gold_passages(query, qrels) for query in queries], corpus, own)

    def quality(self, ids: Sequence[Sequence[str]], k: int) -> Quality:
        ids = others(self, ids)
        shares = []
        for ranking, names in zip(ids, map(set, self.gold), strict=True):
            most = min(k, len(names)) if self.hops else len(names)
            shares.append(len(names.intersection(ranking[:k])) / max(1, most))
        recall = fmean(shares)
        return Quality(recall, ndcg([ranking[:k] for ranking in ids], self.gold))

    def by_hop(self, corpus: Corpus) -> DevQueries:
        """Every gold passage as a hop, with the gold passages before it as evidence."""
        ids = list(dict.fromkeys(name for names in self.gold for name in names))
        numbers = corpus.numbers(ids) if ids else []
        numbers_of = {name: number for name, number in zip(ids, numbers, strict=True) if number is not None}
        texts = (
            dict(zip(numbers_of, corpus.passages([*numbers_of.values()]), strict=True)) if numbers_of else {}
        )
        hops: list[tuple[Query, list[Passage], list[str]]] = []
        for query, names in zip(self.queries, self.gold, strict=True):
            for hop in range(max(1, len(names))):
                evidence = [texts[name] for name in names[:hop] if name in texts]
                hops.append((query, evidence, names[hop:]))
        queries, evidence_of, gold = ([*column] for column in zip(*hops, strict=True))
        return DevQueries(queries, gold, self.corpus, self.own, evidence_of, True)


def others(dev: DevQueries, ids: Iterable[Iterable[str]]) -> list[list[str]]:
    """The ids of each query's passages, without the passage that the query itself is."""
    return [
        [i for i in row if i != query.id or i not in dev.own]
        for query, row in zip(dev.queries, ids, strict=True)
    ]
