"""What a data set is like: sizes, lengths, language, and what its gold passages ask for.

A query asks for hops where it has several gold passages: the second may be found only with the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from grls.data.dataset import gold_passages
from grls.data.language import guess
from grls.data.words import count
from grls.fitting.splits import DEV, TRAIN, DividedData, SourceData
from grls.io.counts import counted

LEAST_QUERIES = 8
"""Fewer queries to learn from train no model: a batch would hold no other query's passages."""

_SAMPLE = 2000
"""Passages whose words are counted, evenly spread over the corpus."""
_ASKS = 0.3
"""The share of queries with several gold passages from which a data set asks for hops."""
_SHORT = 40
"""The most words of a passage, on average, that is a short fact: reading it to its end costs little."""


@dataclass(frozen=True)
class DataFacts:
    """What a data set is like.

    Args:
        passages: Number of passages.
        words: Mean number of words of a passage, its title included.
        language: ISO 639-1 code of the corpus' language; None: it cannot be guessed.
        queries: Split -> number of queries.
        gold: Mean number of gold passages of a training query.
        most_gold: Largest number of gold passages of a training query.
        several: Share of training queries with several gold passages.
        tune: Name of the split that tunes.
    """

    passages: int
    words: float
    language: str | None
    queries: dict[str, int]
    gold: float
    most_gold: int
    several: float
    tune: str = DEV

    @property
    def hops(self) -> bool:
        """Whether the data ask for hops."""
        return self.several >= _ASKS

    @property
    def most_hops(self) -> int:
        """Number of hops that find nearly all gold passages of a query."""
        return max(1, min(self.most_gold, round(2 * self.gold), 4)) if self.hops else 1

    @property
    def few(self) -> bool:
        """Whether there are too few queries to learn from."""
        return self.queries[TRAIN] < LEAST_QUERIES

    @property
    def short(self) -> bool:
        """Whether passages are short facts, so that reading them to their end costs little."""
        return self.words <= _SHORT

    def lines(self) -> list[str]:
        """What the data set is like, for people."""
        sizes = ", ".join(f"{count:,} {name}" for name, count in self.queries.items())
        several = f"{self.several:.0%} with several" if self.several else "one each"
        language = self.language or "language unknown"
        return [
            f"{counted(self.passages, 'passage')} of {self.words:.0f} words ({language})",
            f"queries: {sizes}; gold passages: {self.gold:.1f} a query, {several}",
        ]


def data_facts(source: SourceData, divided: DividedData) -> DataFacts:
    """Describe a data set."""
    queries = {query.id: query for query in divided.queries}
    pseudo = TRAIN in divided.pseudo and DEV not in divided.pseudo  # each has one gold passage
    qrels, corpus = divided.qrels[DEV if pseudo else TRAIN], source.corpus
    train = [len(gold_passages(queries[name], qrels)) for name in qrels]
    sample = corpus.passages(range(0, len(corpus), max(1, len(corpus) // _SAMPLE))[:_SAMPLE])
    lengths = [count(f"{passage.title} {passage.text}") for passage in sample]
    language = guess(passage.text for passage in sample)
    several = sum(size > 1 for size in train) / len(train)
    return DataFacts(
        len(corpus), sum(lengths) / len(lengths), language, divided.counts(),
        sum(train) / len(train), max(train), several, divided.tune,
    )  # fmt: skip
