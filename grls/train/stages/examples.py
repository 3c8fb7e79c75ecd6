"""The training pairs of the two stages: memorise (front -> passage) and retrieve (query -> next passage)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError, bounded
from grls.train.core.examples import Example, chain_passages, drawn_chain, gold_chains

PATH_SEPARATOR = ";"
"""Between subject, relation and object of a path."""


@dataclass(frozen=True)
class PassageInput:
    """The model input for a passage that is memorised.

    Args:
        reads: ``front``: the front of the passage, as in the paper; ``whole``: all of it.
        query: Put the marker of queries in front, as at retrieval; false: no marker, as in the paper.
    """

    reads: Literal["front", "whole"] = "front"
    query: bool = False


USUAL_INPUT = PassageInput()


class MemoriseExamples:
    """Stage one: the model reads the front of a passage, or all of it, and writes the rest or all.

    The arguments are options of :class:`grls.train.stages.data.MemoriseData`.
    """

    def __init__(
        self,
        corpus: Corpus,
        codec: Codec,
        front: float = 0.7,
        unit: Literal["text", "path"] = "text",
        target: Literal["whole", "rest"] = "whole",
        reading: PassageInput = USUAL_INPUT,
    ):
        bounded("(0, 1)", front=front)
        if target == "rest" and reading.reads != "front":
            raise ConfigError("target `rest` is the passage without its front: it needs reads `front`.")
        self.corpus = corpus
        self.codec = codec
        self.target = target
        self.reading = reading
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
        tokens = row[:-1] if self.reading.reads == "whole" else row[:front]  # without the end token
        if self.reading.query:
            return Example(self.codec.model_input(tokens[: self._room]), target)
        return Example(self.codec.plain_input(tokens), target)

    def _row(self, number: int) -> list[int]:
        start = self._starts[number]
        row: list[int] = self._tokens[start : start + self._lengths[number]].tolist()
        return row

    def lengths(self) -> Sequence[int]:
        lengths: list[int] = self._lengths.tolist()
        return lengths


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
