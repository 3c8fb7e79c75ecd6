"""Draws the passages that a generator learns to rescore: right ones, and those that retrievers propose."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.index.rows import Ints
from grls.models.head import RescoreInput, readout
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hybrid.priors import open_sources
from grls.train.generator.examples import HopExample, Hops
from grls.train.options import Rescore

_REMEMBERED = 50_000
"""Passages whose tokens are cached."""
_DEPTH = 60
"""Number of best passages of each retriever from which proposals are drawn."""


class Read(NamedTuple):
    """A passage that is read to its end token after hop number ``hop``."""

    hop: int
    tokens: tuple[int, ...]
    right: bool


class Proposals:
    """Draws the passages to rescore: the best ones of retrievers for each hop, without known ones.

    A draw is a function of the hop's seed.
    """

    def __init__(self, options: Rescore, corpus: Corpus, codec: Codec, device: str):
        search = SearchOptions(truncate_queries=True)
        self.sources = open_sources(corpus, options.retrievers, device, search)
        self.options = options
        self.corpus = corpus
        self.codec = codec
        self.readout = readout(codec)
        self._rescore_input = RescoreInput(options.tokens)
        self._tokens: dict[int, tuple[int, ...]] = {}

    def __call__(self, examples: Sequence[Hops]) -> list[Read]:
        """The passages to rescore, for a sample of the hops; hops are numbered one chain after another."""
        # The number of a hop, the hop, and whether its chain ends with DONE.
        chosen: list[tuple[int, HopExample, bool]] = []
        before, done = 0, (len(self.corpus),)
        for example in examples:
            ends = example[-1].gold == done
            hops = {  # hops of equal evidence are one
                hop.evidence: (before + n, hop, ends)
                for n, hop in reversed([*enumerate(example)])
                if hop.query
            }
            rng = random.Random(f"assess-{example[0].seed}")
            chosen += sorted(rng.sample(list(hops.values()), min(self.options.hops, len(hops))))
            before += len(example)
        ranked = self._ranked([hop for _, hop, _ in chosen])
        read: list[Read] = []
        for (number, hop, ends), best in zip(chosen, ranked, strict=True):
            read += self._read(number, hop, ends, best)
        return read

    def _ranked(self, hops: Sequence[HopExample]) -> list[list[Ints]]:
        """The best passages of each retriever for each hop, without passages that are gold or evidence."""
        if not hops:
            return []
        queries = [Query(str(n), hop.query) for n, hop in enumerate(hops)]
        evidence = [self.corpus.passages(hop.evidence) for hop in hops]
        ranked: list[list[Ints]] = [[] for _ in hops]
        for source in self.sources:
            score_hop = source.scores(queries, evidence)
            for n, hop in enumerate(hops):
                scores = np.array(score_hop(np.array([n]))[0, : len(self.corpus)])
                scores[[number for number in hop.known if number < len(self.corpus)]] = -np.inf
                depth = min(_DEPTH, len(scores))
                best = np.sort(np.argpartition(-scores, depth - 1)[:depth])
                # Passages without a common word are not proposed.
                ranked[n].append(best[scores[best] > source.least_score])
        return ranked

    def _read(self, number: int, hop: HopExample, ends: bool, best: Sequence[Ints]) -> list[Read]:
        """Right and proposed passages of a hop, and DONE where the chain ends with DONE."""
        options, done = self.options, len(self.corpus)
        rng = random.Random(f"assess-{hop.seed}-passages")
        right = rng.sample(hop.gold, min(options.right, len(hop.gold)))
        wrong = []
        for n in range(options.passages):
            passages = best[n % len(best)]
            if len(passages):
                wrong.append(int(passages[rng.randrange(len(passages))]))
        if ends and right != [done]:
            wrong.append(done)
        right_texts = {self._passage(passage) for passage in {*hop.known, *hop.gold} - {done}}
        labelled = [(self._passage(passage), True) for passage in right]
        labelled += [(tokens, False) for tokens in map(self._passage, wrong) if tokens not in right_texts]
        return [Read(number, *pair) for pair in dict.fromkeys(labelled)]

    def _passage(self, number: int) -> tuple[int, ...]:
        if number == len(self.corpus):
            return tuple(self._rescore_input.read(self.codec.done_sequence, self.codec))
        if number not in self._tokens:
            if len(self._tokens) >= _REMEMBERED:
                self._tokens.clear()
            (sequence,) = self.codec.passages(self.corpus.passages([number]))
            self._tokens[number] = tuple(self._rescore_input.read(sequence, self.codec))
        return self._tokens[number]
