"""The verdicts of many queries: how many misses the beam and the model cause, and at which steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from grls.data.types import Query
from grls.explain.explain import Explainer
from grls.explain.verdict import MEANING, VERDICTS
from grls.io.counts import counted
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile, Record

Ask = tuple[Query, Sequence[str], Sequence[str]]
"""A query, gold passages of one hop, and the evidence before it."""

_FOUND = ("found", "duplicate")
_BAR = 40


class Summary(NamedTuple):
    """The verdicts of many gold passages.

    Attributes:
        queries: Number of queries.
        beams: Beam width.
        k: Passages to return.
        done_bias: Bias added to DONE's score (nats), if the model may write DONE.
        verdicts: Verdict -> number of gold passages.
        left: Step (from 1) at which the prefix left the beam -> number of missed passages.
        pruned_left: The same for passages that the beam lost (``pruned``).
        sufficient: Narrowest beam tried that finds the passage -> number of pruned passages; key ``more`` for
            passages that no beam found.
    """

    queries: int
    beams: int
    k: int
    done_bias: float
    verdicts: dict[str, int]
    left: dict[int, int]
    pruned_left: dict[int, int]
    sufficient: dict[str, int]


IDENTIFYING_FIELDS = ("query_id", "gold", "evidence")
"""The fields that identify a record."""


def of_ask(ask: Ask) -> tuple[str, list[str], list[str]]:
    """The values of :data:`IDENTIFYING_FIELDS` for an ask."""
    query, gold, evidence = ask
    return query.id, list(gold), list(evidence)


class _Counts:
    """The verdicts so far."""

    def __init__(self) -> None:
        self.verdicts: Counter[str] = Counter()
        self.left: Counter[int] = Counter()
        self.pruned_left: Counter[int] = Counter()
        self.sufficient: Counter[str] = Counter()

    def add(self, record: Record) -> None:
        """Count the verdicts of a record."""
        for verdict, step, sufficient in record["judged"]:
            self.verdicts[verdict] += 1
            if step is not None and verdict not in _FOUND:
                self.left[step] += 1
            if verdict == "pruned":
                self.pruned_left[step or 0] += 1
                self.sufficient[str(sufficient or "more")] += 1


def summarise(explainer: Explainer, asks: Sequence[Ask], file: GrowingFile | None = None) -> Summary:
    """Judge every gold passage of every ask.

    Args:
        explainer: The explainer.
        asks: Queries, gold passages and evidence to judge.
        file: Keeps the verdicts, an ask a record; its records belong to the first asks, which are not judged
            again.

    Raises:
        DataError: An id is not in the corpus, or a query is empty or too long.
    """
    counts = _Counts()
    done = 0
    for record in islice(() if file is None else file.each(), len(asks)):
        counts.add(record)
        done += 1
    with Progress(len(asks), "explain", "hops", done) as bar:
        for ask in asks[done:]:
            record = _judged(explainer, ask)
            if file is not None:
                file.add([record])
            counts.add(record)
            bar.update()
    return Summary(
        len({query.id for query, _, _ in asks}),
        explainer.generator.decoder(explainer.k).beams,
        explainer.k,
        explainer.stop.bias,
        {v: counts.verdicts[v] for v in VERDICTS},
        dict(sorted(counts.left.items())),
        dict(sorted(counts.pruned_left.items())),
        dict(sorted(counts.sufficient.items(), key=lambda item: (item[0] == "more", len(item[0]), item[0]))),
    )


def _judged(explainer: Explainer, ask: Ask) -> Record:
    """The record of an ask: verdict, step, and sufficient beam width of each gold passage."""
    judgements = explainer.judge(*ask)
    judged = [[judgement.verdict, step, judgement.sufficient] for judgement, step in judgements]
    return {**dict(zip(IDENTIFYING_FIELDS, of_ask(ask), strict=True)), "judged": judged}


def format_summary(s: Summary) -> str:
    """The summary as a table and a histogram."""
    total = sum(s.verdicts.values())
    missed = total - sum(s.verdicts[v] for v in _FOUND)
    bias = f", DONE's score {s.done_bias:+.2f}" if s.done_bias else ""
    lines = [
        f"{counted(s.queries, 'query')}, {counted(total, 'gold passage')}; {counted(s.beams, 'beam')}, k "
        f"{s.k}{bias}; {missed:,} missed",
        "",
    ]
    for verdict in VERDICTS:
        count = s.verdicts[verdict]
        if count:
            of = "" if verdict in _FOUND else f"{100 * count / missed:5.1f}% of the misses"
            lines.append(f"{verdict:<13}{count:>7,}{100 * count / total:7.1f}%   {MEANING[verdict]}")
            lines[-1] += f" ({of.strip()})" if of else ""
    if s.sufficient:
        wider = ", ".join(f"{width}: {count:,}" for width, count in s.sufficient.items())
        lines += ["", f"narrowest beam tried that finds the pruned passages: {wider}"]
    if s.left:
        lines += ["", "missed passages by the step at which they left the beam (■ pruned, □ other)"]
        most = max(s.left.values())
        for step, count in s.left.items():
            pruned = s.pruned_left.get(step, 0)
            filled = round(_BAR * pruned / most)
            bar = "■" * filled + "□" * (max(1, round(_BAR * count / most)) - filled)
            lines.append(f"{step:>5} {count:>6,} {bar}")
    return "\n".join(lines)
