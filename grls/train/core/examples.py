"""What each stage learns: pairs of model input and target sequence.

An example is drawn anew each epoch from (epoch, seed, its number) alone, so a resumed run and every
worker of a distributed one see the same draw.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, any_order, gold_passages, proofs_of
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError
from grls.train.core.passage_inputs import PassageInput, PassageReader

PATH_SEPARATOR = ";"

Row = TypeVar("Row")


class Example(NamedTuple):
    """One training pair.

    Attributes:
        source: Model input, token ids.
        target: What to write, token ids with the end token.
        spans: Of each quoted key in an interlaced target its first place, and the place after its last one.
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
        """A length of each example to sort by, in tokens."""
        ...


class MemoriseExamples:
    """The model gets the front of a passage, or what else tells of it, and writes the rest or the whole.

    Args:
        corpus: The passages.
        codec: Text to tokens.
        front: Share of a passage's tokens that is its front.
        unit: ``text``: the front is a share of the tokens; ``path``: the front of
            ``subject; relation; object`` is subject and relation, whatever ``front`` says.
        target: ``whole``: the decoder writes the passage as retrieval does; ``rest``: what the front lacks.
        reading: What the model gets; None: the front.
        seed: Of the draws of what it gets.

    Raises:
        ConfigError: ``front`` is not between 0 and 1, or the reading cannot work (with this target).
        DataError: The reading's file of neighbours is missing or another one.
        MismatchError: It belongs to another corpus.
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
        if not 0 < front < 1:
            raise ConfigError(f"front must lie between 0 and 1, got {front}.")
        reading = reading or PassageInput()
        if target == "rest" and reading.kinds != ("front",):
            raise ConfigError("target `rest` is what the front lacks: it needs reads `front` alone.")
        self.seed = seed
        self._reader = PassageReader(corpus, codec, reading, self._row, seed)
        self.codec = codec
        self.target = target
        # A few bytes a token, as a corpus may have more tokens than lists of Python integers could hold.
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

    def draw(self, number: int, epoch: int) -> Example:  # noqa: D102
        row, front = self._row(number), self._fronts[number]
        target = row if self.target == "whole" else row[front:]
        return Example(self._reader.read(number, epoch, row[:front]), target)

    def _row(self, number: int) -> list[int]:
        start = self._starts[number]
        row: list[int] = self._tokens[start : start + self._lengths[number]].tolist()
        return row

    def lengths(self) -> Sequence[int]:  # noqa: D102
        lengths: list[int] = self._lengths.tolist()
        return lengths


class RetrieveExamples:
    """Query and evidence so far -> next gold passage, and after the last one DONE.

    Gold passages come from ``evidence`` in its order, or from the qrels in an order drawn anew each epoch
    where a query has none, or where its metadata says that any order is right (``any_order: true``). Where
    the metadata holds equally good proofs (``proofs``: lists of passage ids), each epoch draws one.

    Args:
        queries: The training queries.
        qrels: Their judgements.
        corpus: The passages.
        codec: Text to tokens.
        multistep: Learn hop by hop; otherwise every gold passage from the query alone.
        done: Learn DONE after the last hop (multi-step only).
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        truncate: Cut queries that are too long instead of refusing them.
        seed: Of the draws; a text keeps the draws of two collections of one run apart.

    Raises:
        DataError: A query has no gold passage, or names one that is not in the corpus.
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
        self.rows = gold_rows(queries, self.chains, corpus, codec.passages)
        self.places = [
            (q, hop) for q, chains in enumerate(self.chains) for hop in range(len(chains[0]) + self.done)
        ]

    def __len__(self) -> int:
        return len(self.places)

    def draw(self, number: int, epoch: int) -> Example:  # noqa: D102
        query, hop = self.places[number]
        chain = self.chain(query, epoch)
        before = [self.rows[p] for p in chain[:hop]] if self.multistep else []
        target = self.codec.done_sequence if hop == len(chain) else self.rows[chain[hop]]
        return Example(self.codec.model_input(self.texts[query], before), target.tolist())

    def chain(self, query: int, epoch: int) -> list[str]:
        """The gold passages of a query in this epoch's order, the same for all of its hops."""
        return drawn_chain(self.chains[query], self.shuffle[query], f"{self.seed}-{epoch}-{query}")

    def lengths(self) -> Sequence[int]:  # noqa: D102
        mean = np.mean([len(row) for row in self.rows.values()]) if self.rows else 0
        return [len(self.texts[q]) + int(hop * mean) * self.multistep for q, hop in self.places]


def gold_chains(query: Query, qrels: Qrels) -> list[tuple[str, ...]]:
    """The chains a query may be answered by: its gold passages in order, and other proofs of that length.

    Raises:
        DataError: The query has no gold passage.
    """
    gold = tuple(gold_passages(query, qrels))
    if not gold:
        raise DataError(
            f"query {query.id!r} has neither evidence nor a qrel above zero; training needs gold passages: "
            "add some or take the query out of the split."
        )
    proofs = map(tuple, proofs_of(query))
    return [gold, *(proof for proof in proofs if len(proof) == len(gold) and proof != gold)]


def free_order(query: Query) -> bool:
    """Whether the order of a query's gold passages is to be drawn: it has none, or any order is right."""
    return not query.evidence or any_order(query)


def drawn_chain(chains: Sequence[Sequence[str]], shuffle: bool, seed: str) -> list[str]:
    """One of the chains that answer a query, in an order of its own where asked; a function of the seed."""
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
    """What ``encode`` makes of every passage in the queries' chains, by its id.

    Raises:
        DataError: A passage is not in the corpus.
    """
    users = {p: query.id for query, some in zip(queries, chains, strict=True) for c in some for p in c}
    numbers = corpus.numbers(list(users))
    for (passage, query), number in zip(users.items(), numbers, strict=True):
        if number is None:
            raise DataError(
                f"gold passage {passage!r} of query {query!r} is not in {corpus.source}; add the passage or "
                "remove the reference."
            )
    rows = encode(corpus.passages([n for n in numbers if n is not None]))
    return dict(zip(users, rows, strict=True))
