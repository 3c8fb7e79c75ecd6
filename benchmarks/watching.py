"""Watches of a training: its speed, and the seconds until it reaches a recall.

Both sides of ``benchmarks.train`` have the same clock. The module does not know how they train.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import ScoreMode
from grls.evaluation.metrics import recall_at
from grls.index.build import build_index
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.train.generator.examples import RetrieveExamples


@dataclass
class Meter:
    """Counts the hops of a training, and the tokens of their whole, uncut sources and targets."""

    hops: int = 0
    tokens: int = 0

    def add(self, source: int, target: int) -> None:
        """Count one hop with the numbers of tokens of its source and of its target."""
        self.hops += 1
        self.tokens += source + target


class Watch(Protocol):
    """Watches a training, and ends it."""

    def start(self) -> None:
        """Training begins."""
        ...

    def step(self, model: Any) -> bool:
        """A step is done; returns whether it was the last one."""
        ...


@dataclass
class Speed:
    """Hops and tokens a second, over ``steps`` steps after ``warmup`` steps."""

    meter: Meter
    warmup: int
    steps: int
    done: int = 0
    marks: list[tuple[float, int, int]] = field(default_factory=list)

    def start(self) -> None:  # noqa: D102
        self.done = 0

    def step(self, model: Any) -> bool:  # noqa: D102
        self.done += 1
        if self.done in (self.warmup, self.warmup + self.steps):
            self.marks.append((_now(), self.meter.hops, self.meter.tokens))
        return len(self.marks) == 2

    @property
    def rates(self) -> tuple[float, float]:
        """Hops and tokens a second."""
        (begin, hops, tokens), (end, more, others) = self.marks
        return (more - hops) / (end - begin), (others - tokens) / (end - begin)


@dataclass
class Climb:
    """Dev recall every ``every`` steps, until it reaches ``goal`` or ``cap`` seconds of training have passed.

    The clock is stopped while recall is measured.

    Attributes:
        curve: Seconds of training and recall.
    """

    recall: HopRecall
    modes: Sequence[ScoreMode]
    every: int
    goal: float
    cap: float
    done: int = 0
    seconds: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)

    def start(self) -> None:  # noqa: D102
        self._since = _now()

    def step(self, model: Any) -> bool:  # noqa: D102
        self.done += 1
        late = self.seconds + time.perf_counter() - self._since >= self.cap
        if self.done % self.every and not late:
            return False
        self.seconds += _now() - self._since
        self.curve.append((self.seconds, max(self.recall(model, mode) for mode in self.modes)))
        self._since = _now()
        return late or self.curve[-1][1] >= self.goal

    def reached(self, recall: float) -> float | None:
        """Seconds until a recall was first reached; None if it was not."""
        return next((seconds for seconds, measured in self.curve if measured >= recall), None)


def _now() -> float:
    """The time after a GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class HopRecall:
    """Recall@k of the dev hops: query and gold evidence so far -> the correct next passages.

    The hops are those of the first ``queries`` dev queries.
    """

    def __init__(self, data: str, codec: Codec, k: int, queries: int):
        self.k = k
        self.corpus = Corpus.read(data)
        self.codec = codec
        self.index = build_index(self.corpus, codec)
        dev, qrels = read_split(data, "dev", self.corpus)
        every = RetrieveExamples(dev[:queries], qrels, self.corpus, codec)
        chains = [every.draw(n, 0) for n in range(len(every))]
        self.hops = [hop for chain in chains for hop in chain if hop.gold != (len(self.corpus),)]

    def __call__(self, model: Any, mode: ScoreMode) -> float:
        """Mean recall of the constrained search, in [0, 1]; the model stays in its training or eval mode."""
        training = model.training
        options = SearchOptions(beams=max(self.k, 10), mode=mode)
        retriever = GenerativeRetriever(model, self.codec, self.corpus, self.index, options)
        exclude = [[retriever.done, *hop.evidence] for hop in self.hops]
        found = retriever.search([hop.source for hop in self.hops], self.k, exclude)
        model.train(training)
        values = [
            recall_at([hit.id for hit in retriever.hits(candidates)], self.corpus.ids(hop.gold), self.k)
            for candidates, hop in zip(found, self.hops, strict=True)
        ]
        return sum(values) / len(values)
