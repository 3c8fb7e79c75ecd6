"""What a plan leaves out for the data or for want of time, and why."""

from __future__ import annotations

from grls.fitting.effort import Effort, Level, whole_steps
from grls.fitting.facts import LEAST_QUERIES, DataFacts
from grls.fitting.plan import Skipped
from grls.fitting.stages import StageMaker
from grls.io.counts import counted

WRITER_HOPS = "hops of the generator"
SKIPPED_PARTS = (
    "hops of BM25",
    "steps of the bi-encoder",
    "steps of the generator",
    "dev queries",
    "test queries",
)
TOO_LATE = "too little time was left for it"
NO_TIME = "not measured, since the budget is far too short for it"


def part_of_level(level: Level) -> str:
    """What a level has that the next one lacks."""
    if level.writer:
        return WRITER_HOPS if level.hops else "generator"
    return {"trained": "training of the bi-encoder", "frozen": "bi-encoder", "none": "BM25"}[level.encoder]


def few_queries(facts: DataFacts) -> str:
    """Why nothing is trained on a handful of queries."""
    count = facts.splits[facts.train].queries
    given = counted(count, "training query is", "training queries are")
    return f"{given} too few to learn from: give {LEAST_QUERIES} or more"


def _short_passages(facts: DataFacts) -> str:
    """Why a generator does without hops where passages are short: nothing is measured yet."""
    return (
        f"to save time, as passages are short ({facts.words:.0f} words): on the sets tried (EntailmentBank, "
        "StrategyQA) one search found as much for a third of the time. Where the trained bi-encoder finds "
        "clearly more by hops on your dev queries, the plan takes them"
    )


def parts_skipped(maker: StageMaker, effort: Effort) -> list[Skipped]:
    """What an effort leaves out within its level, and why."""
    facts, level = maker.facts, effort.level
    skipped = []
    if facts.hops and "bm25-hops" not in maker.systems(effort):
        skipped.append(Skipped(SKIPPED_PARTS[0], "for want of time"))
    encoder, writer = whole_steps(facts, bool(maker.machine.gpu))
    dev, test = facts.splits[facts.dev].queries, facts.splits[facts.test].queries
    amounts = [
        (effort.encoder_steps, encoder, level.encoder == "trained"),
        (effort.writer_steps, writer, level.writer),
        (effort.dev, min(dev, 200), True),
        (effort.test, test, facts.test != facts.dev),
    ]
    for name, (chosen, whole, there) in zip(SKIPPED_PARTS[1:], amounts, strict=True):
        if there and chosen < whole:
            skipped.append(Skipped(name, f"{chosen:,} of {whole:,}, for want of time"))
    if facts.few and level.encoder == "frozen":
        skipped.append(Skipped("training of the bi-encoder", few_queries(facts)))
    if level.writer and not effort.rescore:
        why = f"passages have {facts.words:.0f} words, and reading long ones to their end takes too long"
        skipped.append(Skipped("rescoring", why))
    if facts.hops and level.writer and not facts.writer_hops:
        skipped.append(Skipped(WRITER_HOPS, _short_passages(facts)))
    if not facts.hops:
        skipped.append(Skipped("hops", "most queries have one gold passage"))
    if facts.test == facts.dev:
        skipped.append(Skipped("test", f"there is no split {maker.options.test_split}: dev is reported"))
    return skipped
