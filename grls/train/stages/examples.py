"""The training pairs of the two stages: memorise (front -> passage) and retrieve (query -> next passage)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import ConfigError, bounded
from grls.train.core.examples import Example, chain_passages, drawn_chain, gold_chains

PATH_SEPARATOR = ";"
"""Between subject, relation and object of a path."""

Reads = Literal["front", "whole", "keywords"]
_ENGLISH = Analyzer("en")


@dataclass(frozen=True)
class PassageInput:
    """The model input for a passage that is memorised.

    The front teaches to continue a text, but does not look like a query. A few words do.

    Args:
        reads: ``front``: the front of the passage, as in the paper; ``whole``: all of it; ``keywords``: a few
            of its content words in the order of the text, rare words more often, drawn
            anew each epoch. Of a list, each epoch draws one.
        words: Smallest and largest number of keywords.
        query: Put the marker of queries in front, as at retrieval; false: no marker, as in the paper.
    """

    reads: Reads | list[Reads] = "front"
    words: tuple[int, int] = (2, 6)
    query: bool = False

    @property
    def kinds(self) -> tuple[Reads, ...]:
        return (self.reads,) if isinstance(self.reads, str) else tuple(self.reads)

    def check(self) -> None:
        unknown = set(self.kinds) - set(get_args(Reads))
        if unknown or not self.kinds:
            raise ConfigError(
                f"expected reads to be of {', '.join(get_args(Reads))}, got {list(self.kinds)!r}."
            )
        low, high = self.words
        if not 1 <= low <= high:
            raise ConfigError(f"expected 1 <= fewest <= most words, got {self.words}.")


class MemoriseExamples:
    """Stage one: the model reads the front of a passage, or another input, and writes the rest or all.

    A passage without a content word is read by its front. The arguments are options
    of :class:`grls.train.stages.data.MemoriseData`.
    """

    def __init__(
        self,
        corpus: Corpus,
        codec: Codec,
        front: float = 0.7,
        unit: Literal["text", "path"] = "text",
        target: Literal["whole", "rest"] = "whole",
        reading: PassageInput | None = None,
        seed: int = 0,
    ):
        bounded("(0, 1)", front=front)
        reading = reading or PassageInput()
        if target == "rest" and reading.kinds != ("front",):
            raise ConfigError(
                "target `rest` is the passage without its front: it needs reads `front` and nothing else."
            )
        reading.check()
        self.corpus = corpus
        self.codec = codec
        self.target = target
        self.reading = reading
        self.seed = seed
        self._analyzer, self._idf = _ENGLISH, dict[str, float]()
        if "keywords" in reading.kinds:
            self._analyzer = Analyzer.guessed(corpus)
            self._idf = word_weights(corpus, self._analyzer)
        self._room = min(codec.limits.query, codec.limits.input - len(codec.model_input([])))
        # Arrays of a few bytes a token: a corpus may have too many tokens for lists of Python integers.
        parts: list[npt.NDArray[np.int32]] = []
        lengths: list[int] = []
        fronts: list[int] = []
        for batch in corpus.batches():
            rows = codec.passages(batch)
            parts.append(np.concatenate(rows).astype(np.int32))
            lengths += [len(row) for row in rows]
            if unit == "path":
                heads = [p._replace(text=p.text.rpartition(PATH_SEPARATOR)[0]) for p in batch]
                fronts += [len(row) - 1 for row in codec.passages(heads)]
            else:
                fronts += [round(front * (len(row) - 1)) for row in rows]
        self._tokens = np.concatenate(parts)
        self._lengths = np.array(lengths)
        self._starts = np.cumsum(self._lengths) - self._lengths
        # At least one token, and never the end token.
        self._fronts = np.minimum(np.maximum(fronts, 1), self._lengths - 1)

    def __len__(self) -> int:
        return len(self._lengths)

    def draw(self, number: int, epoch: int) -> Example:
        row, front = self._row(number), self._fronts[number]
        target = row if self.target == "whole" else row[front:]
        return Example(self._source(number, epoch, row[:front]), target)

    def _source(self, number: int, epoch: int, front: list[int]) -> list[int]:
        rng = random.Random(f"{self.seed}-{epoch}-{number}")
        kind = rng.choice(self.reading.kinds)
        tokens = front
        if kind == "whole":
            tokens = self._row(number)[:-1]  # without the end token
        elif kind == "keywords":
            count = rng.randint(*self.reading.words)
            words = drawn_words(self.corpus[number], self._idf, count, rng, self._analyzer)
            tokens = (self.codec.texts([" ".join(words)])[0] if words else []) or front
        if self.reading.query:
            return self.codec.model_input(tokens[: self._room])
        return self.codec.plain_input(tokens)

    def _row(self, number: int) -> list[int]:
        start = self._starts[number]
        row: list[int] = self._tokens[start : start + self._lengths[number]].tolist()
        return row

    def lengths(self) -> Sequence[int]:
        lengths: list[int] = self._lengths.tolist()
        return lengths


def _content(passage: Passage, analyzer: Analyzer) -> dict[str, str]:
    """Content words: folded -> as written."""
    return analyzer.content(f"{passage.title} {passage.text}")


def word_weights(corpus: Corpus, analyzer: Analyzer = _ENGLISH) -> dict[str, float]:
    """log((N + 1) / n) for each folded content word in n of N passages."""
    counts: Counter[str] = Counter()
    for passage in corpus:
        counts.update(_content(passage, analyzer).keys())
    return {word: math.log((len(corpus) + 1) / count) for word, count in counts.items()}


def drawn_words(
    passage: Passage,
    weights: dict[str, float],
    count: int,
    rng: random.Random,
    analyzer: Analyzer = _ENGLISH,
) -> list[str]:
    """Draw content words of a passage without repetition, in proportion to weights; in its order.

    Each word gets the key u^(1/w), with u uniform and w its weight; the ``count`` largest keys win
    (Efraimidis and Spirakis, 2006).
    """
    words = _content(passage, analyzer)
    keys = [rng.random() ** (1 / weights[folded]) for folded in words]
    written = list(words.values())
    best = sorted(range(len(written)), key=keys.__getitem__, reverse=True)[:count]
    return [written[row] for row in sorted(best)]


class RetrieveExamples:
    """Stage two: query and evidence so far -> next gold passage, and DONE after the last one.

    Gold passages come from ``evidence`` in its order; for a query without evidence they come from the
    qrels, in an order drawn anew each epoch, as where the metadata says that any order is right
    (``any_order: true``). Where the metadata holds equally good proofs (``proofs``: lists of passage
    ids), each epoch draws one. The arguments are options of :class:`grls.train.stages.data.RetrieveData`;
    a text as ``seed`` keeps the draws of two collections of one run apart.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        qrels: Qrels,
        corpus: Corpus,
        codec: Codec,
        multistep: bool = True,
        done: bool = True,
        shuffle: bool = False,
        truncate: bool = False,
        seed: int | str = 0,
    ):
        self.codec = codec
        self.multistep = multistep
        self.done = done and multistep
        self.seed = seed
        self.texts = codec.queries([q.id for q in queries], [q.text for q in queries], truncate)
        self.chains = [gold_chains(query, qrels) for query in queries]
        self.shuffle = [shuffle or free_order(query) for query in queries]
        self.queries = queries
        self._gold = chain_passages(queries, self.chains, corpus)
        rows = codec.passages(list(self._gold.values()))
        self.rows = dict(zip(self._gold, rows, strict=True))
        self.hops = [
            (q, hop) for q, chains in enumerate(self.chains) for hop in range(len(chains[0]) + self.done)
        ]

    def __len__(self) -> int:
        return len(self.hops)

    def draw(self, number: int, epoch: int) -> Example:
        query, hop = self.hops[number]
        chain = self.chain(query, epoch)
        before = self.evidence(query, chain[:hop]) if self.multistep else []
        target = self.codec.done_sequence if hop == len(chain) else self.rows[chain[hop]]
        return Example(self.codec.model_input(self.texts[query], before), target.tolist())

    def evidence(self, query: int, passages: Sequence[str]) -> list[TokenIds]:
        """Tokens of gold passages as evidence of a query, as a model input has them."""
        if not self.codec.limits.evidence:
            return [self.rows[name] for name in passages]
        question, known = self.queries[query].text, self._gold
        return list(self.codec.excerpts(question, [known[name] for name in passages]))

    def chain(self, query: int, epoch: int) -> list[str]:
        """The gold passages of a query in the order of this epoch, the same for all of its hops."""
        return drawn_chain(self.chains[query], self.shuffle[query], f"{self.seed}-{epoch}-{query}")

    def lengths(self) -> Sequence[int]:
        mean = np.mean([len(row) for row in self.rows.values()]) if self.rows else 0
        return [len(self.texts[q]) + int(hop * mean) * self.multistep for q, hop in self.hops]
