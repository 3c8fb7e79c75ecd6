"""How much of everything a plan does, from what is least worth doing to the whole recipe.

A level says which systems there are; the richer it is, the more dev and test showed it to find
(docs/results.md). Within a level, one number between 0 and 1 says how much is done: each part grows from its
least to the recipe's amount, the most useful parts first.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from grls.fitting.facts import DataFacts

CPU_STEPS = (300, 500)
"""The most steps of bi-encoder and generator on a CPU: those of the recipes."""

GPU_STEPS = (3000, 5000)
"""The same on a GPU."""

ENCODER_BATCH = 32
ENCODER_EPOCHS = 3
WRITER_EPOCHS = 5

_WORD_HOPS = 0.05
"""The effort from which BM25 is ranked by hops, too: the least of all is done without."""


class Level(NamedTuple):
    """Which systems there are.

    Attributes:
        encoder: The bi-encoder: ``none``, ``frozen`` (as it is), or ``trained``.
        writer: There is a generator.
        hops: The generator's search goes hop by hop (where the data ask for it).
    """

    encoder: Literal["none", "frozen", "trained"]
    writer: bool
    hops: bool


LEVELS = (
    Level("trained", True, True),
    Level("trained", True, False),
    Level("trained", False, False),
    Level("frozen", False, False),
    Level("none", False, False),
)
"""The richest first."""

WITHOUT_ENCODER = (Level("none", True, True), Level("none", True, False), Level("none", False, False))
"""The levels where there is no bi-encoder."""


@dataclass(frozen=True)
class Effort:
    """How much of everything is done.

    Args:
        level: Which systems there are.
        encoder_steps: Training steps of the bi-encoder.
        encoder_passages: Passages in which its dev queries are searched after each epoch.
        writer_steps: Training steps of the generator.
        writer_dev: Dev queries that choose its best epoch.
        rescore: Whether the generator learns to rescore.
        word_hops: Whether BM25 is ranked by hops, too (where the data ask for it).
        hops: The most hops of the generator's search; 1: a single step.
        chains: Chains that are kept in it.
        dev: Dev queries that tune and choose.
        test: Test queries that the report compares on.
    """

    level: Level
    encoder_steps: int
    encoder_passages: int
    writer_steps: int
    writer_dev: int
    rescore: bool
    word_hops: bool
    hops: int
    chains: int
    dev: int
    test: int


class _Range(NamedTuple):
    """A part's least and greatest amount, and the effort at which the greatest is reached."""

    least: float
    most: float
    full: float

    def at(self, share: float) -> int:
        return round(self.least + (self.most - self.least) * min(1.0, share / self.full))


def encoder_examples(facts: DataFacts) -> int:
    """Training examples of the bi-encoder in an epoch: a hop each, and DONE."""
    train = facts.splits[facts.train]
    return round(train.queries * (train.gold + facts.hops))


def writer_batch(facts: DataFacts) -> int:
    """Queries of a training batch of the generator, as its recipe has it."""
    return 8 if facts.writer_hops else 16


def whole_steps(facts: DataFacts, gpu: bool) -> tuple[int, int]:
    """The steps of bi-encoder and generator in the whole recipe."""
    first, second = GPU_STEPS if gpu else CPU_STEPS
    encoder = ENCODER_EPOCHS * -(-encoder_examples(facts) // ENCODER_BATCH)
    writer = WRITER_EPOCHS * -(-facts.splits[facts.train].queries // writer_batch(facts))
    return min(first, encoder), min(second, writer)


def effort_at(level: Level, share: float, facts: DataFacts, gpu: bool, tight: bool = False) -> Effort:
    """How much is done at a level.

    Args:
        level: Which systems there are.
        share: Between 0, the least, and 1, the whole recipe.
        facts: What the data are like.
        gpu: There is a GPU.
        tight: The least of all that is tuned and compared is less still: for a run that is late.
    """
    encoder, writer = whole_steps(facts, gpu)
    dev, test = facts.splits[facts.dev].queries, facts.splits[facts.test].queries
    least_dev, least_test = (10, 20) if tight else (30, 100)
    hops = facts.most_hops if level.hops else 1
    usual = math.ceil(facts.splits[facts.train].gold)
    passages = min(facts.passages, 2000)
    taught = 0.6 if level.writer else 0.3  # a teacher and prior has to be good
    return Effort(
        level,
        encoder_steps=_Range(min(encoder, max(20, taught * encoder)), encoder, 0.5).at(share),
        encoder_passages=_Range(min(passages, 500), passages, 0.5).at(share),
        writer_steps=_Range(min(writer, max(80, 0.45 * writer)), writer, 0.7).at(share),
        writer_dev=_Range(min(dev, 20), min(dev, 60), 0.7).at(share),
        rescore=facts.short and level.writer,
        word_hops=facts.hops and share >= _WORD_HOPS,
        hops=_Range(min(hops, usual), hops, 0.8).at(share),
        chains=_Range(2, 5, 1.0).at(share),
        dev=_Range(min(dev, least_dev), min(dev, 200), 0.8).at(share),
        test=_Range(min(test, least_test), test, 0.4).at(share),
    )


def kept_effort(new: Effort, old: Effort, done: Collection[str]) -> Effort:
    """An effort whose parts that are done already stay as they were.

    Args:
        new: The effort of what is left.
        old: The effort until now.
        done: The keys of the stages that are done.
    """
    kept: dict[str, Any] = {"word_hops": old.word_hops} if done else {}
    if "biencoder dense" in done:
        kept |= {"encoder_steps": old.encoder_steps, "encoder_passages": old.encoder_passages}
    if "generator hybrid" in done:
        kept |= {"writer_steps": old.writer_steps, "writer_dev": old.writer_dev, "rescore": old.rescore}
    if any(key.startswith("tune ") and key != "tune bm25-hops" for key in done):
        kept["dev"] = old.dev
    if "tune hybrid" in done:
        kept |= {"hops": old.hops, "chains": old.chains}
    return replace(new, **kept)
