"""Hops to train on: passages to memorise, queries hop by hop or with all of their hops, and mixtures of them.

All draws are functions of (seed, epoch, number) alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.train.core.examples import Examples, chain_passages, drawn_chain, gold_chains, own_passages
from grls.train.options import PassageInput, Shares

PATH_SEPARATOR = ";"
"""Between subject, relation and object of a path."""


class HopExample(NamedTuple):
    """One hop; passages are numbers.

    Attributes:
        source: Model input, token ids.
        gold: The right passages, or DONE.
        taken: The gold passage that becomes evidence of the next hop.
        query: The text of the query; empty where there is none.
        evidence: The passages retrieved so far.
        known: All passages that are not wrong: evidence, gold passages of any hop, and ``own``.
        seed: Seed of the draws for this hop.
        own: The passages that are the query itself, other than gold ones.
        front: Number of first tokens of the passage that are not written.
    """

    source: list[int]
    gold: tuple[int, ...]
    taken: int
    query: str
    evidence: tuple[int, ...]
    known: tuple[int, ...]
    seed: str
    own: tuple[int, ...] = ()
    front: int = 0


Hops = tuple[HopExample, ...]
"""An example: hops that are learned together, of one query."""


class MemoriseExamples:
    """Each passage as one hop without a query: the model reads its front, or all of it, and writes it.

    The arguments are options of :class:`grls.train.options.MemoriseDataOptions`.
    """

    def __init__(
        self,
        corpus: Corpus,
        codec: Codec,
        front: float = 0.7,
        unit: Literal["text", "path"] = "text",
        target: Literal["whole", "rest"] = "whole",
        reading: PassageInput = PassageInput(),  # noqa: B008
        seed: int = 0,
    ):
        self.codec = codec
        self.target = target
        self.reading = reading
        self.seed = seed
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
        self.numbers: Sequence[int] = range(len(self._lengths))
        """The passage of each example."""

    def __len__(self) -> int:
        return len(self.numbers)

    def draw(self, number: int, epoch: int) -> Hops:
        number = self.numbers[number]
        front = int(self._fronts[number])
        read = front if self.reading.reads == "front" else self._lengths[number] - 1  # without the end token
        tokens = self._tokens[self._starts[number] :][:read].tolist()
        if self.reading.query:
            source = self.codec.model_input(tokens[: self._room])
        else:
            source = self.codec.plain_input(tokens)
        seed = f"memorise-{self.seed}-{epoch}-{number}"
        skipped = front if self.target == "rest" else 0
        return (HopExample(source, (number,), number, "", (), (number,), seed, front=skipped),)

    def lengths(self) -> Sequence[int]:
        lengths: list[int] = self._lengths[self.numbers].tolist()
        return lengths


class RetrieveExamples:
    """Query and evidence so far -> next gold passage, and DONE after the last one.

    Gold passages come from ``evidence`` in its order; for a query without evidence they come from the
    qrels, in an order drawn anew each epoch, as where the metadata says that any order is right
    (``any_order: true``). Where the metadata holds equally good proofs (``proofs``: lists of passage
    ids), each epoch draws one.

    With ``together`` a query with all of its hops is one example, and where any order is right, all
    gold passages that are left are. Without, each hop is an example, and the one that is drawn is right.
    The other arguments are options of :class:`grls.train.options.RetrieveDataOptions`; a text as ``seed``
    keeps the draws of two collections of one run apart.
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
        together: bool = True,
    ):
        self.codec = codec
        self.multistep = multistep
        self.done = done and multistep
        self.seed = seed
        self.together = together
        self.texts = codec.queries([q.id for q in queries], [q.text for q in queries], truncate)
        self.chains = [gold_chains(query, qrels) for query in queries]
        self.shuffle = [shuffle or free_order(query) for query in queries]
        self.queries = queries
        self._gold = chain_passages(queries, self.chains, corpus)
        rows = codec.passages(list(self._gold.values()))
        self.rows = dict(zip(self._gold, rows, strict=True))
        self._end = len(corpus)  # the number of DONE
        own = own_passages(queries, qrels, corpus)
        ids = [*self.rows, *(passage for passages in own for passage in passages)]
        self._numbers = dict(zip(ids, (n or 0 for n in corpus.numbers(ids)), strict=True))
        self._own = [{self._numbers[passage] for passage in passages} for passages in own]
        hops = [range(len(chains[0]) + self.done) for chains in self.chains]
        self.items: list[tuple[int, Sequence[int]]] = [*enumerate(hops)]
        """The query and the hops of each example."""
        if not together:
            self.items = [(query, [hop]) for query, several in self.items for hop in several]

    def __len__(self) -> int:
        return len(self.items)

    def draw(self, number: int, epoch: int) -> Hops:
        query, hops = self.items[number]
        # The gold passages in the order of this epoch, the same for all hops of the query.
        chain = drawn_chain(self.chains[query], self.shuffle[query], f"{self.seed}-{epoch}-{query}")
        free = self.together and (self.shuffle[query] or not self.multistep)
        right = {self._numbers[name] for proof in self.chains[query] for name in proof}
        own = tuple(self._own[query] - right)
        known = (*right, *own, self._end)
        examples: list[HopExample] = []
        for hop in hops:
            before = chain[:hop] if self.multistep else []
            source = self.codec.model_input(self.texts[query], self._read(query, before))
            taken = self._numbers[chain[hop]] if hop < len(chain) else self._end
            gold: tuple[int, ...] = (taken,)
            if free and hop < len(chain):
                gold = tuple(self._numbers[name] for name in (chain[hop:] if self.multistep else chain))
            evidence = tuple(self._numbers[name] for name in before)
            seed = f"{self.seed}-{epoch}-{query}-{hop}"
            text = self.queries[query].text
            examples.append(HopExample(source, gold, taken, text, evidence, known, seed, own))
        return tuple(examples)

    def fixed_hops(self) -> Iterator[list[tuple[tuple[int, ...], tuple[int, ...], set[int]]]]:
        """For each query the hops whose evidence is the same in all epochs.

        Each with its evidence, what is right in any epoch, and all passages that are not wrong.
        """
        for query, (chains, shuffle) in enumerate(zip(self.chains, self.shuffle, strict=True)):
            gold = list(dict.fromkeys(self._numbers[name] for proof in chains for name in proof))
            known = {*gold, *self._own[query]}
            if self.multistep and len(chains) == 1 and not shuffle:
                hops = range(len(gold) + self.done)
                yield [(tuple(gold[:n]), tuple(gold[n : n + 1]) or (self._end,), known) for n in hops]
            else:
                yield [((), tuple(gold), known)]

    def _read(self, query: int, passages: Sequence[str]) -> list[TokenIds]:
        """Tokens of gold passages as evidence of a query."""
        if not self.codec.limits.evidence:
            return [self.rows[name] for name in passages]
        question, known = self.queries[query].text, self._gold
        return list(self.codec.excerpts(question, [known[name] for name in passages]))

    def lengths(self) -> Sequence[int]:
        mean = np.mean([len(row) for row in self.rows.values()]) if self.rows else 0
        if self.together:
            return [len(self.texts[q]) + int(mean * len(self.chains[q][0])) for q, _ in self.items]
        return [len(self.texts[q]) + int(hop * mean) * self.multistep for q, (hop,) in self.items]


def share_at(shares: Shares, progress: float) -> float:
    """The share at a point between 0, the first epoch, and 1, the last one."""
    first, last = shares if isinstance(shares, tuple) else (shares, shares)
    return first + (last - first) * progress


class Mixture:
    """The examples of a stage with other examples mixed in, so that the model forgets less.

    Each kind of example is an endless stream: all of its examples in a random order, then all again in
    another one. An epoch takes its share from each stream, from where the epoch before stopped. So no
    example comes twice before all have come once, and an epoch is a function of (seed, epoch) alone.

    Args:
        main: The examples of the stage; they get the share that the parts leave.
        parts: Other examples with their share.
        epochs: Number of epochs over which shares change from first to last; later epochs keep the last.
        size: Examples an epoch; None: as many as ``main`` has.
    """

    def __init__(
        self,
        main: Examples,
        parts: Sequence[tuple[Examples, Shares]],
        epochs: int = 1,
        size: int | None = None,
        seed: int = 0,
    ):
        self.size = len(main) if size is None else size
        for progress in (0, 1):
            now = [share_at(shares, progress) for _, shares in parts]
            if min(now, default=0) < 0 or sum(now) > 1 + 1e-9:
                raise ConfigError(f"expected shares of a mix from 0 to 1, together at most 1, got {now}.")
        self.shares = [shares for _, shares in parts]
        self.members: list[Examples] = [main, *(examples for examples, _ in parts)]
        if not all(map(len, self.members)):
            raise ConfigError("a part of the mix has no example; leave it out.")
        self.epochs = epochs
        self.seed = seed
        self._orders: dict[tuple[int, int], Ints] = {}
        self._starts = [np.zeros(len(self.members), dtype=np.int64)]
        self._lengths = [np.asarray(member.lengths()) for member in self.members]

    def __len__(self) -> int:
        return self.size

    def counts(self, epoch: int) -> list[int]:
        """Number of examples of each kind in an epoch, ``main`` first."""
        progress = min(epoch / (self.epochs - 1), 1) if self.epochs > 1 else 0
        sums = np.cumsum([0, *(share_at(shares, progress) for shares in self.shares)])
        ends = np.minimum(np.round(sums * self.size), self.size).astype(int)
        return [self.size - int(ends[-1]), *np.diff(ends).tolist()]

    def draw(self, number: int, epoch: int) -> Any:
        ends = np.cumsum(self.counts(epoch))
        member = int(np.searchsorted(ends, number, side="right"))
        position = number - (int(ends[member - 1]) if member else 0) + int(self._start(epoch)[member])
        turn, row = divmod(position, len(self.members[member]))
        return self.members[member].draw(int(self._order(member, turn)[row]), turn)

    def lengths(self) -> Sequence[int]:
        return self.lengths_in(0)

    def lengths_in(self, epoch: int) -> Sequence[int]:
        lengths: list[int] = []
        for member, count in enumerate(self.counts(epoch)):
            turns, rows = np.divmod(np.arange(count) + self._start(epoch)[member], len(self.members[member]))
            for turn in np.unique(turns).tolist():
                order = self._order(member, turn)
                lengths += self._lengths[member][order[rows[turns == turn]]].tolist()
        return lengths

    def _start(self, epoch: int) -> Ints:
        """Number of examples that earlier epochs took from each stream."""
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + np.array(self.counts(len(self._starts) - 1)))
        return self._starts[epoch]

    def _order(self, member: int, turn: int) -> Ints:
        if (member, turn) not in self._orders:
            if len(self._orders) >= 8 * len(self.members):
                self._orders.clear()
            rng = np.random.default_rng([self.seed, member, turn])
            self._orders[member, turn] = rng.permutation(len(self.members[member]))
        return self._orders[member, turn]
