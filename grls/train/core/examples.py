"""Training examples: pairs of model input and target sequence, and the gold chains that they are drawn from.

An example is drawn anew each epoch, as a function of (epoch, seed, number) alone. So a resumed run and every
worker of a distributed run see the same draw.
"""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar, get_args

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages, proofs_of
from grls.data.neighbours import Neighbours
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import ConfigError, DataError
from grls.io.progress import counted

log = logging.getLogger(__name__)


Row = TypeVar("Row")


class Example(NamedTuple):
    """One training pair.

    Attributes:
        source: Model input, token ids.
        target: Sequence to write, token ids with the end token.
        spans: First position, and position after the last one, of each quoted key in an interlaced target.
    """

    source: list[int]
    target: list[int]
    spans: tuple[tuple[int, int], ...] = ()


class Examples(Protocol):
    """A sized collection of examples that may vary from epoch to epoch."""

    def __len__(self) -> int: ...

    def draw(self, number: int, epoch: int) -> Example:
        """Example ``number`` as it is in ``epoch``."""
        ...

    def lengths(self) -> Sequence[int]:
        """The length of each example, in tokens, for sorting."""
        ...


def gold_chains(query: Query, qrels: Qrels) -> list[tuple[str, ...]]:
    """The gold chains of a query: its gold passages in order, and other proofs of the same length.

    Raises:
        DataError: The query has no gold passage.
    """
    gold = tuple(gold_passages(query, qrels))
    if not gold:
        raise DataError(
            f"query {query.id!r} has neither evidence nor a qrel above zero; training needs gold passages: "
            "add them, or remove the query from the split."
        )
    proofs = [tuple(dict.fromkeys(proof)) for proof in proofs_of(query)]  # what is used again is learned once
    return [gold, *(proof for proof in proofs if len(proof) == len(gold) and proof != gold)]


def drawn_chain(chains: Sequence[Sequence[str]], shuffle: bool, seed: str) -> list[str]:
    """One of the gold chains of a query, shuffled if asked; a function of the seed."""
    rng = random.Random(seed)
    chain = list(rng.choice(chains))
    if shuffle:
        rng.shuffle(chain)
    return chain


def gold_rows(
    queries: Sequence[Query],
    chains: list[list[tuple[str, ...]]],
    corpus: Corpus,
    encode: Callable[[Sequence[Passage]], Sequence[Row]],
) -> dict[str, Row]:
    """Encode every passage in the chains of the queries; the results by passage id.

    Raises:
        DataError: A passage is not in the corpus.
    """
    users = {
        passage: query.id
        for query, proofs in zip(queries, chains, strict=True)
        for proof in proofs
        for passage in proof
    }
    numbers = corpus.numbers(list(users))
    for (passage, query), number in zip(users.items(), numbers, strict=True):
        if number is None:
            raise DataError(
                f"gold passage {passage!r} of query {query!r} is not in {corpus.source}; add the passage or "
                "remove the reference."
            )
    rows = encode(corpus.passages([n for n in numbers if n is not None]))
    return dict(zip(users, rows, strict=True))


Reads = Literal["front", "whole", "keywords", "neighbour"]
TokenRow = list[int]

_ENGLISH = Analyzer("en")


@dataclass(frozen=True)
class PassageInput:
    """The model input for a passage that is memorised.

    The front teaches to continue a text, but does not look like a query. A few words or a similar passage do.

    Args:
        reads: ``front``: the front of the passage, as in the paper; ``whole``: all of it; ``keywords``: a few
            of its content words in the order of the text, rare words more often; ``neighbour``: a similar
            passage. Keywords and neighbours are drawn anew each epoch. Of a list, each epoch draws one.
        words: Smallest and largest number of keywords.
        neighbours: File of neighbours, written by ``grls prepare neighbours``; needed to read ``neighbour``.
        nearest: Number of nearest neighbours from which one is drawn.
        query: Put the marker of queries in front, as at retrieval; false: no marker, as in the paper.
    """

    reads: Reads | list[Reads] = "front"
    words: tuple[int, int] = (2, 6)
    neighbours: str | None = None
    nearest: int = 10
    query: bool = False

    @property
    def kinds(self) -> tuple[Reads, ...]:
        """``reads`` as a tuple."""
        return (self.reads,) if isinstance(self.reads, str) else tuple(self.reads)

    def check(self) -> None:
        """Refuse options that cannot work.

        Raises:
            ConfigError: A kind is unknown or missing, a count is out of range, or ``neighbour`` has no file.
        """
        unknown = set(self.kinds) - set(get_args(Reads))
        if unknown or not self.kinds:
            raise ConfigError(
                f"expected reads to be of {', '.join(get_args(Reads))}, got {list(self.kinds)!r}."
            )
        low, high = self.words
        if not 1 <= low <= high or self.nearest < 1:
            raise ConfigError(
                f"expected 1 <= fewest <= most words and nearest of at least 1, got {self.words} and "
                f"{self.nearest}."
            )
        if "neighbour" in self.kinds and self.neighbours is None:
            raise ConfigError(
                "reads `neighbour` needs a file: make one with `grls prepare neighbours` and name it in "
                "neighbours."
            )


class PassageReader:
    """Draws the model input of a passage.

    A passage without a content word, or without a neighbour, is read by its front.

    Args:
        reading: The options of the input.
        row: Gives the target sequence of a passage, by its number.

    Raises:
        ConfigError: See :meth:`PassageInput.check`.
        DataError: The file of neighbours is missing or malformed.
        MismatchError: The file of neighbours belongs to another corpus.
    """

    def __init__(
        self,
        corpus: Corpus,
        codec: Codec,
        reading: PassageInput,
        row: Callable[[int], TokenRow],
        seed: int = 0,
    ):
        reading.check()
        self.corpus = corpus
        self.codec = codec
        self.reading = reading
        self.row = row
        self.seed = seed
        self._analyzer, self._idf = _ENGLISH, dict[str, float]()
        if "keywords" in reading.kinds:
            self._analyzer = Analyzer.guessed(corpus)
            self._idf = word_weights(corpus, self._analyzer)
        self._neighbours: Neighbours | None = None
        if "neighbour" in reading.kinds:
            assert reading.neighbours is not None
            self._neighbours = Neighbours.read(reading.neighbours, corpus)
            alone = int((self._neighbours.numbers[:, 0] < 0).sum())
            if alone:
                every = counted(len(corpus), "passage")
                log.warning("without a neighbour, so that the front is read: %d of %s.", alone, every)
        head = len(codec.model_input([]))
        self._room = min(codec.limits.query, codec.limits.input - head)

    def read(self, number: int, epoch: int, front: TokenRow) -> TokenRow:
        """The model input for passage ``number`` in ``epoch``; ``front`` is its front."""
        rng = random.Random(f"{self.seed}-{epoch}-{number}")
        kind = rng.choice(self.reading.kinds)
        tokens = front
        if kind == "whole":
            tokens = self.row(number)[:-1]  # without the end token
        elif kind == "keywords":
            count = rng.randint(*self.reading.words)
            words = drawn_words(self.corpus[number], self._idf, count, rng, self._analyzer)
            tokens = (self.codec.texts([" ".join(words)])[0] if words else []) or front
        elif kind == "neighbour":
            assert self._neighbours is not None
            near = self._neighbours.of(number, self.reading.nearest)
            tokens = (self.row(rng.choice(near))[:-1] if near else []) or front
        return (
            self.codec.model_input(tokens[: self._room])
            if self.reading.query
            else self.codec.plain_input(tokens)
        )


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
    """Draw content words of a passage without repetition, in proportion to weights; in the passage's order.

    Each word gets the key u^(1/w), with u uniform and w its weight; the ``count`` largest keys win
    (Efraimidis and Spirakis, 2006).
    """
    words = _content(passage, analyzer)
    keys = [rng.random() ** (1 / weights[folded]) for folded in words]
    written = list(words.values())
    best = sorted(range(len(written)), key=keys.__getitem__, reverse=True)[:count]
    return [written[row] for row in sorted(best)]
