"""What a data set is like: sizes, lengths, languages, and what its gold passages ask for.

A query asks for hops where it has several gold passages: the second may be found only with the first. The
module reads the whole data set once, and refuses what cannot be learned from before any training starts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order, gold_passages, read_split
from grls.data.language import guess
from grls.data.types import Passage, Query
from grls.data.words import count
from grls.errors import DataError
from grls.fitting.splits import DEV, TUNE
from grls.io.counts import counted

_SAMPLE = 2000
"""Passages whose words are counted, evenly spread over the corpus."""

LEAST_QUERIES = 8
"""Fewer queries to learn from train no model: a batch would hold no other query's passages."""

_ASKS = 0.3
"""The share of queries with several gold passages from which a data set asks for hops."""

_SHORT = 40
"""The most words of a passage, on average, that is a short fact: reading it to its end costs little."""


@dataclass(frozen=True)
class SplitFacts:
    """What a split of queries is like.

    Args:
        queries: Number of queries with a gold passage.
        gold: Mean number of gold passages of a query.
        most_gold: Largest number of gold passages of a query.
        several: Share of queries with several gold passages.
        ordered: Share of those whose gold passages stand in retrieval order.
        words: Mean number of words of a query.
    """

    queries: int
    gold: float
    most_gold: int
    several: float
    ordered: float
    words: float

    @property
    def order(self) -> str:
        """How many of the queries with several gold passages have them in order, for people."""
        if self.ordered in (0, 1):
            return "in order" if self.ordered else "in any order"
        return f"{self.ordered:.0%} of these in order, {1 - self.ordered:.0%} in any order"


@dataclass(frozen=True)
class DataFacts:
    """What a data set is like.

    Args:
        passages: Number of passages.
        words: Mean number of words of a passage, its title included.
        language: ISO 639-1 code of the corpus' language; None: it cannot be guessed.
        splits: The splits by name, those that are missing left out; where one half of the dev queries tunes,
            both halves.
        train: Name of the split to learn from.
        dev: Name of the split that tunes and chooses.
        test: Name of the split that the report compares on: the dev split if there is no test split.
        unseen: Share of the dev split's gold passages that are gold of no training query.
    """

    passages: int
    words: float
    language: str | None
    splits: dict[str, SplitFacts]
    train: str
    dev: str
    test: str
    unseen: float

    @property
    def hops(self) -> bool:
        """Whether the data ask for hops."""
        return self.splits[self.train].several >= _ASKS

    @property
    def few(self) -> bool:
        """Whether there are too few queries to learn from."""
        return self.splits[self.train].queries < LEAST_QUERIES

    @property
    def rows(self) -> float:
        """Rows of the index of all spans: one for each word."""
        return self.passages * self.words

    @property
    def most_hops(self) -> int:
        """Number of hops that find nearly all gold passages of a query."""
        train = self.splits[self.train]
        return max(1, min(train.most_gold, round(2 * train.gold), 4)) if self.hops else 1

    @property
    def short(self) -> bool:
        """Whether passages are short facts, so that reading them to their end costs little."""
        return self.words <= _SHORT

    def lines(self) -> list[str]:
        """What the data set is like, for people."""
        train = self.splits[self.train]
        sizes = ", ".join(f"{split.queries:,} {name}" for name, split in self.splits.items())
        several = f"{train.several:.0%} with several ({train.order})" if train.several else "one each"
        return [
            f"{counted(self.passages, 'passage')} of {self.words:.0f} words "
            f"({self.language or 'language unknown'})",
            f"queries: {sizes}; {train.words:.0f} words each",
            f"gold passages: {train.gold:.1f} a query, {several}; {self.unseen:.0%} of those of {self.dev} "
            f"are never gold in {self.train}",
        ]


def data_facts(data: str | Path, train: str, dev: str, test: str) -> DataFacts:
    """Read a data set and describe it.

    Args:
        data: Data set folder.
        train: Name of the split to learn from.
        dev: Name of the split that tunes and chooses.
        test: Name of the split that the report compares on; it may be missing.

    Raises:
        DataError: The data set is missing or malformed, a gold passage is in no corpus, or a split that is
            needed has no query with a gold passage.
    """
    corpus = Corpus.read(data)
    reported = test if (Path(data) / "qrels" / f"{test}.tsv").is_file() else dev
    wanted = (train, dev, *((DEV,) if dev == TUNE else ()), reported)
    read = {name: read_split(data, name, corpus) for name in dict.fromkeys(wanted)}
    gold = {name: _gold(data, name, *split) for name, split in read.items()}
    facts = {name: _split_facts(read[name][0], gold[name]) for name in read}
    sample = _sampled(corpus)
    lengths = [count(f"{passage.title} {passage.text}") for passage in sample]
    return DataFacts(
        passages=len(corpus),
        words=sum(lengths) / len(lengths),
        language=guess(passage.text for passage in sample),
        splits=facts,
        train=train,
        dev=dev,
        test=reported,
        unseen=_unseen(gold[train].values(), gold[dev].values()),
    )


def _gold(data: str | Path, name: str, queries: Sequence[Query], qrels: Qrels) -> dict[str, list[str]]:
    """The gold passages of each query that has any."""
    gold = {query.id: gold_passages(query, qrels) for query in queries}
    gold = {query: passages for query, passages in gold.items() if passages}
    if not gold:
        raise DataError(
            "no query of the split has a gold passage (a grade above 0): add some, or choose another split.",
            Path(data) / "qrels" / f"{name}.tsv",
        )
    return gold


def _split_facts(queries: Sequence[Query], gold: dict[str, list[str]]) -> SplitFacts:
    judged = [query for query in queries if query.id in gold]
    counts = [len(gold[query.id]) for query in judged]
    several = [query for query in judged if len(gold[query.id]) > 1]
    ordered = [query for query in several if not free_order(query)]
    return SplitFacts(
        queries=len(judged),
        gold=sum(counts) / len(counts),
        most_gold=max(counts),
        several=len(several) / len(judged),
        ordered=len(ordered) / len(several) if several else 0.0,
        words=sum(count(query.text) for query in islice(judged, _SAMPLE)) / min(len(judged), _SAMPLE),
    )


def _unseen(train: Collection[Sequence[str]], dev: Collection[Sequence[str]]) -> float:
    """The share of gold passages of dev queries that are gold of no training query."""
    seen = {passage for passages in train for passage in passages}
    every = [passage for passages in dev for passage in passages]
    return sum(passage not in seen for passage in every) / len(every)


def _sampled(corpus: Corpus) -> list[Passage]:
    step = max(1, len(corpus) // _SAMPLE)
    return corpus.passages(range(0, len(corpus), step)[:_SAMPLE])
