"""How long the stages of a plan take: sums of counts times measured speeds.

The module knows no option of a stage, and decides nothing but which systems are cheap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from grls.fitting.effort import Effort
from grls.fitting.facts import DataFacts
from grls.fitting.machine import Machine
from grls.fitting.options import FitOptions
from grls.fitting.speeds import EncoderSpeeds, Speeds, WriterSpeeds

BEAMS = 10
RESCORED = 20
"""Passages that a generator rescores, on short passages."""

_START = 3.0
"""Seconds that every stage takes beside its work."""

_DENSE_CHAINS = _WORD_CHAINS = 5
_WORD_SEARCHES = 1.5
"""Searches of the dev queries that tune BM25's hops: other temperatures meet most chains again."""
_LONGER = 3.0
"""How much longer a query of BM25 with evidence takes than the question alone."""

_ALONE = 0.05
"""The share of the budget that comparing the generator alone, or BM25 ranked by hops, may take."""

_PRIOR_ROW = 4e-8
"""Seconds of both priors for a row of the index and an input."""

_SCORED = 5e-8
"""Seconds of bi-encoder or BM25 for a passage of the corpus and a query, beside the text of the query."""

_OPENED = 5.0
"""The most seconds to open a model that was trained here: its weights are stored plainly."""

_SETTING = 5e-4
"""Seconds to fuse the rankings of a query with one setting of the weights."""

_SEARCHES = 5
"""Searches of the dev queries that find the weights of priors."""

_LOW_MEMORY = 10.0
"""GiB of free memory below which activations are computed anew in the backward pass."""
_RECOMPUTED = 1.35
"""How much longer a step takes then."""


@dataclass(frozen=True)
class StageTimes:
    """Estimates of stages, in seconds.

    Args:
        facts: What the data are like.
        machine: What the machine can do.
        speeds: How long the parts take.
        options: What the user has chosen.
    """

    facts: DataFacts
    machine: Machine
    speeds: Speeds
    options: FitOptions

    @property
    def low_memory(self) -> bool:
        """Whether trainings have to save memory."""
        free = self.machine.gpu_memory if self.machine.gpu else self.machine.memory
        return free is not None and free < _LOW_MEMORY

    def is_cheap(self, system: str, effort: Effort) -> bool:
        """Whether ranking all queries that are compared with a system takes a small part of the budget."""
        facts, budget = self.facts, self.options.seconds
        queries = sum(facts.splits[split].queries for split in facts.ranked)
        return budget is None or queries * self._query(system, effort) <= _ALONE * budget

    def tune_words(self, effort: Effort) -> float:
        """Of tuning BM25's hops."""
        seconds = effort.dev * self._query("bm25-hops", effort) * _WORD_SEARCHES
        return seconds + _START + self.facts.passages * self.speeds.bm25_passage

    def biencoder(self, effort: Effort, epochs: int, dev: int) -> float:
        """Of training the bi-encoder, measured after each epoch on ``dev`` queries."""
        facts, speeds = self.facts, self._encoder
        hops = facts.splits[facts.dev].gold if facts.hops else 1
        looked = epochs * (effort.encoder_passages * speeds.passage + dev * hops * speeds.query)
        return _START + speeds.load + effort.encoder_steps * self._step(speeds.step) + looked

    def dense(self) -> float:
        """Of embedding all passages."""
        return self.opened(self.facts.passages * self._encoder.passage)

    def tune_dense(self, effort: Effort) -> float:
        """Of tuning the bi-encoder's hops."""
        inputs = effort.dev * ranked_inputs(self.facts.most_hops, _DENSE_CHAINS) * 2
        return self.opened(inputs * self._dense_query)

    def generator(self, effort: Effort, epochs: int, steps: int) -> float:
        """Of training the generator, measured on dev after each epoch."""
        facts, speeds = self.facts, self._writer
        hops = facts.splits[facts.dev].gold if facts.writer_hops else 1
        looked = effort.writer_dev * hops * self._search(BEAMS if effort.rescore else 0)
        indexed = facts.passages * speeds.indexed
        return _START + speeds.load + indexed + steps * self._step(speeds.step) + epochs * looked

    def index(self) -> float:
        """Of the constraint index."""
        return self.opened(self.facts.passages * self._writer.indexed)

    def tune(self, effort: Effort) -> float:
        """Of tuning the hybrid."""
        gold = self.facts.splits[self.facts.dev].gold if effort.hops > 1 else 1
        inputs = _SEARCHES * effort.dev * gold
        if effort.hops > 1:
            inputs += effort.dev * ranked_inputs(effort.hops, effort.chains) * 1.3
        seconds = inputs * self._search(0)
        if effort.rescore:
            seconds += effort.dev * self._search(RESCORED)
        return self.opened(seconds)

    def compare(self, effort: Effort, systems: list[str]) -> float:
        """Of ranking the queries that tune, choose and are reported on with all systems."""
        queries = sum(ranked_queries(self.facts, effort).values())
        seconds = sum(self._query(system, effort) for system in systems) * queries
        return self.opened(seconds + self.facts.passages * self.speeds.bm25_passage)

    def fusion(self, effort: Effort, members: int) -> float:
        """Of trying the weights of a fusion."""
        return _START + math.comb(9 + members, members - 1) * effort.dev * _SETTING

    def report(self) -> float:
        """Of choosing, and of writing the page and the card."""
        return 4 * _START

    def opened(self, seconds: float) -> float:
        """Of work together with opening the models."""
        parts = [part for part in (self.speeds.encoder, self.speeds.writer) if part is not None]
        return _START + sum(min(part.load, _OPENED) for part in parts) + seconds

    def _step(self, seconds: float) -> float:
        return seconds * (_RECOMPUTED if self.low_memory else 1)

    def _query(self, system: str, effort: Effort) -> float:
        """Seconds of one query."""
        facts = self.facts
        if system == "bm25":
            return self.speeds.bm25_query + facts.passages * _SCORED
        if system == "bm25-hops":
            inputs = ranked_inputs(facts.most_hops, _WORD_CHAINS)
            return inputs * _LONGER * self._query("bm25", effort)
        if system == "dense":
            return self._dense_query
        if system == "dense-hops":
            return self._dense_query * ranked_inputs(facts.most_hops, _DENSE_CHAINS)
        rescored = RESCORED if effort.rescore else 0
        if system == "generator":
            return self._writer.search + rescored * self._writer.rescored
        return ranked_inputs(effort.hops, effort.chains) * self._search(rescored)

    def _search(self, rescored: int) -> float:
        """Seconds of one input of the hybrid's search."""
        return self._writer.search + self.facts.rows * _PRIOR_ROW + rescored * self._writer.rescored

    @property
    def _dense_query(self) -> float:
        """Seconds of a query of the bi-encoder, with the evidence of a hop."""
        return self._encoder.query + self.facts.passages * _SCORED

    @property
    def _encoder(self) -> EncoderSpeeds:
        assert self.speeds.encoder is not None
        return self.speeds.encoder

    @property
    def _writer(self) -> WriterSpeeds:
        assert self.speeds.writer is not None
        return self.speeds.writer


def ranked_queries(facts: DataFacts, effort: Effort) -> dict[str, int]:
    """Split -> its queries that are ranked with every system; where a half tunes, as many choose."""
    whole = {split: facts.splits[split].queries for split in facts.ranked}
    most = {split: effort.dev if effort.dev < whole[facts.dev] else count for split, count in whole.items()}
    if facts.test != facts.dev:
        most[facts.test] = effort.test
    return {split: min(most[split], count) for split, count in whole.items()}


def ranked_inputs(hops: int, chains: int) -> int:
    """Inputs of a query ranked by hops: one in the first hop, one for each chain in the others."""
    return 1 + chains * (hops - 1)
