"""Training pairs of a bi-encoder: a query (with the evidence so far), its right and wrong passages.

An example is drawn anew each epoch, as a function of (epoch, seed, query) alone. It also names the passages
that must not be negatives. Hard negatives of a hop are drawn from a ranking for the query with the evidence
of that hop. Where the evidence varies from epoch to epoch, each passage that may come first has a ranking of
its own for the second hop; those of later hops have the evidence in the order of the file.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.evidence import excerpt
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError, Option
from grls.io.jsonl import read_jsonl, string_of
from grls.io.progress import counted
from grls.models.biencoder import DONE_PASSAGE
from grls.models.text_encoder import passage_text
from grls.retrieve.base import ranking_fingerprint
from grls.retrieve.hops.finders import found_after
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.queries import evidence_numbers
from grls.retrieve.registry import BM25, Opening, load_named
from grls.train.core.examples import chain_passages, drawn_chain, gold_chains, own_passages
from grls.train.options import PairOptions

log = logging.getLogger(__name__)


NO_KEY = -1
"""Fills up the gold keys of an example; no text has this key."""

_LINKED = 10
"""Number of passages that hard negatives are drawn from where links find them, gold ones included."""
_FILLER = 1000
"""Number of random passages that fill up a short ranking; enough of them are not gold."""


Miner = Callable[[Sequence[Query], Sequence[Sequence[Passage]], int], list[list[str]]]
"""Ranks passages for queries with their evidence so far: (queries, evidence, k) -> at most k ids each, best
first."""


class Pair(NamedTuple):
    """One training example.

    Attributes:
        query: Query and evidence so far, as text.
        passages: Texts: the right passage, then the hard negatives.
        keys: A number for each of ``passages``; equal texts have equal numbers.
        gold: Numbers of the texts that are no negatives of the query: right at any hop, or its own; filled
            up with ``NO_KEY`` to one length.
        scores: The teacher's scores of ``passages``; empty without a teacher.
    """

    query: str
    passages: tuple[str, ...]
    keys: tuple[int, ...]
    gold: tuple[int, ...]
    scores: tuple[float, ...] = ()


class _Mined(NamedTuple):
    """The query (by number) and the hop of a ranking, from which hard negatives are drawn.

    ``first``: the evidence of the second hop; empty: that of the file.
    """

    query: int
    hop: int = 0
    first: str = ""


class BiEncoderExamples:
    """The pairs of all training queries.

    Where the metadata of a query holds equally good proofs (``proofs``), each epoch draws one; the
    passages of all proofs are gold.

    Args:
        query_text: Makes one text of a query and its evidence so far.
        miner: Ranks the passages from which hard negatives are drawn, for each hop of the gold chain. A
            short ranking is filled up at random; None: all are random.
        teacher: Scores pairs of query and passage; hard negatives are drawn from what it has scored, in
            place of the miner's.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        qrels: Qrels,
        corpus: Corpus,
        query_text: Callable[[str, Sequence[Passage]], str],
        options: PairOptions,
        miner: Miner | None = None,
        teacher: TeacherScores | None = None,
    ):
        if not queries:
            raise DataError("the training split holds no query; training needs queries with gold passages.")
        self.queries = queries
        self.query_text = query_text
        self.chains = [gold_chains(query, qrels) for query in queries]
        multistep = options.multistep
        if multistep is None:
            multistep = any(len(chain) > 1 for chains in self.chains for chain in chains)
            if not multistep:
                log.warning(
                    "every query has one gold passage, so neither hops nor DONE are trained (%s trains them, "
                    "of a reranker %s).",
                    Option("fit.multistep", True),
                    Option("hops.multistep", True),
                )
        self.options = replace(options, multistep=multistep)
        self._teacher = teacher
        if teacher is not None:
            if not options.hard_negatives:
                raise ConfigError(
                    f"a teacher orders right and wrong passages: set {Option('fit.hard_negatives')} above 0."
                )
            if multistep:
                raise ConfigError(
                    "a teacher scores passages for a query without evidence: set "
                    f"{Option('fit.multistep', False)}."
                )
            for query, chains in zip(queries, self.chains, strict=True):
                for chain in chains:
                    teacher.of(query.id, chain)
        self._passages = {DONE_ID: DONE_PASSAGE, **chain_passages(queries, self.chains, corpus)}
        self._numbers: dict[str, int] = {}
        own = own_passages(queries, qrels, corpus)
        self._add(corpus, (passage for passages in own for passage in passages))
        self._gold = [
            frozenset(self._key(passage) for chain in (*chains, passages) for passage in chain)
            for chains, passages in zip(self.chains, own, strict=True)
        ]
        self._width = max(len(keys) for keys in self._gold)
        self.done = options.done and multistep
        self.hops = [
            (q, hop) for q, proofs in enumerate(self.chains) for hop in range(len(proofs[0]) + self.done)
        ]
        self._negatives: dict[_Mined, list[str]] = {}
        if options.hard_negatives:
            self._mine(corpus, teacher or miner)

    def __len__(self) -> int:
        return len(self.hops)

    def draw(self, number: int, epoch: int) -> Pair:
        query, hop = self.hops[number]
        seed = f"{self.options.seed}-{epoch}-{query}"  # of the order, the same for all hops of the query
        chain = drawn_chain(self.chains[query], self._shuffles(query), seed)
        before = [self._passages[p] for p in chain[:hop]] if self.options.multistep else []
        names = [DONE_ID if hop == len(chain) else chain[hop]]
        if self._negatives:
            ranking = _Mined(query)
            if self.options.multistep:
                ranking = _Mined(query, hop, chain[0] if hop == 1 else "")
            rng = random.Random(f"{seed}-{hop}")
            names += rng.sample(self._negatives[ranking], self.options.hard_negatives)
        gold, teacher = self._gold[query], self._teacher
        return Pair(
            self.query_text(self.queries[query].text, before),
            tuple(passage_text(self._passages[name]) for name in names),
            tuple(self._key(name) for name in names),
            (*sorted(gold), *[NO_KEY] * (self._width - len(gold))),
            () if teacher is None else teacher.of(self.queries[query].id, names),
        )

    def passages(self) -> list[str]:
        gold = [passage for chains in self.chains for chain in chains for passage in chain]
        wrong = [passage for negatives in self._negatives.values() for passage in negatives]
        return [passage_text(self._passages[passage]) for passage in dict.fromkeys([*gold, *wrong])]

    def lengths(self) -> list[int]:
        """Approximate length of each example's query text in characters, for sorting."""
        texts = [len(passage_text(p)) for p in self._passages.values()]
        mean = sum(texts) // len(texts)
        return [len(self.queries[q].text) + hop * mean * bool(self.options.multistep) for q, hop in self.hops]

    def _shuffles(self, query: int) -> bool:
        return self.options.shuffle or free_order(self.queries[query])

    def _key(self, passage: str) -> int:
        text = passage_text(self._passages[passage])
        return self._numbers.setdefault(text, len(self._numbers))

    def _add(self, corpus: Corpus, passages: Iterable[str]) -> None:
        new = [p for p in dict.fromkeys(passages) if p not in self._passages]
        numbers = [n for n in corpus.numbers(new) if n is not None] if new else []
        self._passages.update({p.id: p for p in corpus.passages(numbers)} if numbers else {})

    def _mine(self, corpus: Corpus, miner: Miner | None) -> None:
        """Find wrong passages of each ranking, hardest first, each text once; without hops, of hop 0."""
        mined = []
        for query, hop in self.hops:
            if hop == 1 and self.options.multistep:  # a ranking for each passage that may come first
                shuffled = self._shuffles(query)
                firsts = [p for chain in self.chains[query] for p in (chain if shuffled else chain[:1])]
                mined += [_Mined(query, hop, first) for first in dict.fromkeys(firsts)]
            elif hop == 0 or self.options.multistep:
                mined.append(_Mined(query, hop))
        rankings: list[list[str]] = [[] for _ in mined]
        if miner is not None:
            queries = [self.queries[ranking.query] for ranking in mined]
            evidence = [
                [self._passages[name] for name in ([first] if first else self.chains[query][0][:hop])]
                for query, hop, first in mined
            ]
            rankings = miner(queries, evidence, self.options.ranked + max(map(len, self._gold)))
        self._add(corpus, (passage for passages in rankings for passage in passages))
        least = self.options.hard_negatives
        for ranking, passages in zip(mined, rankings, strict=True):
            wrong = self._distinct(ranking.query, passages)[: self.options.ranked]
            if len(wrong) < least and self._teacher is None:
                rng = random.Random(f"{self.options.seed}-{ranking.query}")
                filler = corpus.ids(rng.sample(range(len(corpus)), min(len(corpus), _FILLER + least)))
                self._add(corpus, filler)
                wrong = self._distinct(ranking.query, [*wrong, *filler])[:least]
            if len(wrong) < least:
                source = corpus.source if self._teacher is None else self._teacher.file
                raise DataError(
                    f"{source} has {counted(len(wrong), 'passage')} that are not gold for query "
                    f"{self.queries[ranking.query].id!r}; hard_negatives of {least} needs as many: lower it."
                )
            self._negatives[ranking] = wrong

    def _distinct(self, query: int, passages: Sequence[str]) -> list[str]:
        wrong: dict[int, str] = {}
        for passage in passages:
            key = self._key(passage)
            if key not in self._gold[query]:
                wrong.setdefault(key, passage)
        return list(wrong.values())


@dataclass(frozen=True)
class TeacherScores:
    """Scores of pairs by a slower and better model: query id -> passage id -> score; a :data:`Miner`, too."""

    file: Path
    scores: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, file: str | Path, queries: Sequence[Query], corpus: Corpus) -> TeacherScores:
        """Read ``{"query": id, "passage": id, "score": number}``, one object a line."""
        scores: dict[str, dict[str, float]] = {query.id: {} for query in queries}
        first_lines: dict[str, int] = {}
        for line, record in read_jsonl(file):
            query, passage = (string_of(record, key, file, line) for key in ("query", "passage"))
            score = record.get("score")
            if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < 1e30:
                raise DataError(f"expected 'score' to be a finite number, got {score!r}.", file, line)
            if query not in scores:
                raise DataError(
                    f"query {query!r} is not in the training split: remove the line, or give the split of "
                    f"that query as {Option('train_split')}.",
                    file,
                    line,
                )
            if passage in scores[query]:
                raise DataError(
                    f"query {query!r} and passage {passage!r} have a score already: remove one of the lines.",
                    file,
                    line,
                )
            scores[query][passage] = float(score)
            first_lines.setdefault(passage, line)
        for passage, number in zip(first_lines, corpus.numbers([*first_lines]), strict=True):
            if number is None:
                raise DataError(
                    f"passage {passage!r} is not in {corpus.source}: remove the line, or add the passage.",
                    file,
                    first_lines[passage],
                )
        return cls(Path(file), scores)

    def __call__(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int
    ) -> list[list[str]]:
        return [
            sorted(self.scores[query.id], key=lambda passage: -self.scores[query.id][passage])[:k]
            for query in queries
        ]

    def of(self, query: str, passages: Sequence[str]) -> tuple[float, ...]:
        for passage in passages:
            if passage not in self.scores[query]:
                raise DataError(
                    f"the score of query {query!r} and its gold passage {passage!r} is missing: add it ("
                    "the pair is trained on).",
                    self.file,
                )
        return tuple(self.scores[query][passage] for passage in passages)


class RetrieverMiner:
    """A :data:`grls.train.biencoder.examples.Miner`: each hop by a search of its own, with its evidence.

    Ranked hops that follow links give what links and their retriever find together: few passages, so that
    most of them are named. ``negatives`` is a retriever folder, or ``bm25``; ``words`` the most words of a
    passage in the evidence (0: all). ``remedy`` is for errors.
    """

    def __init__(
        self,
        negatives: str,
        corpus: Corpus,
        words: int,
        remedy: str = "set hard_negatives to 0",
    ):
        self.retriever = load_named(negatives, corpus, Opening(truncate_queries=True))
        self._name = "BM25" if negatives == BM25 else negatives
        self._words = words
        self._remedy = remedy

    def __call__(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int
    ) -> list[list[str]]:
        excerpts = [
            [excerpt(query.text, passage, self._words) for passage in passages]
            for query, passages in zip(queries, evidence, strict=True)
        ]
        rankings = found_after(self.retriever, queries, excerpts, k, None)
        if not any(ranking.hits for ranking in rankings):
            raise DataError(
                f"no training query shares a word with {self.retriever.corpus.source}, so {self._name} finds "
                f"no hard negatives: {self._remedy}."
            )
        found = [ranking.hits for ranking in rankings]
        if isinstance(self.retriever, RankedHops) and (prior := self.retriever.hop_search.prior):
            corpus = self.retriever.corpus
            for number, (query, passages) in enumerate(zip(queries, evidence, strict=True)):
                numbers = evidence_numbers(corpus, passages)
                found[number] = prior.weighed(query.text, numbers, found[number], None)[:_LINKED]
        return [[hit.id for hit in hits] for hits in found]

    def fingerprint(self) -> str:
        return ranking_fingerprint(self.retriever)
