"""The verdicts of many queries: how many misses are the beam's, how many the model's, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from grls.data.types import Query
from grls.explain.explain import Explainer
from grls.explain.verdict import MEANING, VERDICTS
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile, Record

Ask = tuple[Query, Sequence[str], Sequence[str]]
"""A query, gold passages of one hop, and the evidence before it."""

_FOUND = ("found", "duplicate")
_BAR = 40


class Summary(NamedTuple):
    """The verdicts of many gold passages.

    Attributes:
        queries: How many queries.
        beams: Beam width.
        k: Passages asked for.
        done_bias: Added to DONE's score (nats), where DONE may be written.
        verdicts: Verdict -> how many gold passages.
        left: Of those missed: step (from 1) at which the prefix left the beam -> how many.
        pruned_left: The same, of those that the beam lost (``pruned``).
        sufficient: Of those pruned: the narrowest beam tried that finds them -> how many; key ``more`` where
            none did.
    """

    queries: int
    beams: int
    k: int
    done_bias: float
    verdicts: dict[str, int]
    left: dict[int, int]
    pruned_left: dict[int, int]
    sufficient: dict[str, int]


TOLD_APART = ("query_id", "gold", "evidence")
"""Which fields of a record say what was judged."""


def of_ask(ask: Ask) -> tuple[str, list[str], list[str]]:
    """The fields of :data:`TOLD_APART` of an ask."""
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
        """Count what was judged of an ask."""
        for verdict, step, sufficient in record["judged"]:
            self.verdicts[verdict] += 1
            if step is not None and verdict not in _FOUND:
                self.left[step] += 1
            if verdict == "pruned":
                self.pruned_left[step or 0] += 1
                self.sufficient[str(sufficient or "more")] += 1


def summarise(
    explainer: Explainer, asks: Sequence[Ask], dynamic: bool = False, file: GrowingFile | None = None
) -> Summary:
    """Judge every gold passage of every ask.

    Args:
        explainer: How to search.
        asks: What to judge.
        dynamic: DONE may be written (from the second hop on).
        file: Where what was judged is kept, an ask a record; those that it holds are the first asks, and are
            not judged anew.

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
            record = _judged(explainer, ask, dynamic)
            if file is not None:
                file.add([record])
            counts.add(record)
            bar.update()
    return Summary(
        len({query.id for query, _, _ in asks}),
        explainer.generator.decoder(explainer.k).beams,
        explainer.k,
        explainer.done_bias if dynamic else 0.0,
        {v: counts.verdicts[v] for v in VERDICTS},
        dict(sorted(counts.left.items())),
        dict(sorted(counts.pruned_left.items())),
        dict(sorted(counts.sufficient.items(), key=lambda item: (item[0] == "more", len(item[0]), item[0]))),
    )


def _judged(explainer: Explainer, ask: Ask, dynamic: bool) -> Record:
    """What is kept of an ask: of each gold passage verdict, step, and the beam that is wide enough."""
    found = explainer.judge(*ask, dynamic)
    judged = [[judgement.verdict, step, judgement.sufficient] for judgement, step in found]
    return {**dict(zip(TOLD_APART, of_ask(ask), strict=True)), "judged": judged}


def format_summary(s: Summary) -> str:
    """The summary as a table and a histogram."""
    total = sum(s.verdicts.values())
    missed = total - sum(s.verdicts[v] for v in _FOUND)
    bias = f", DONE's score {s.done_bias:+.2f}" if s.done_bias else ""
    lines = [
        f"{s.queries:,} queries, {total:,} gold passages; {s.beams} beams, k {s.k}{bias}; {missed:,} missed",
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
        lines += ["", f"narrowest beam tried that finds the pruned ones: {wider}"]
    if s.left:
        lines += ["", "missed passages by the step at which they left the beam (■ pruned, □ other)"]
        most = max(s.left.values())
        for step, count in s.left.items():
            pruned = s.pruned_left.get(step, 0)
            filled = round(_BAR * pruned / most)
            bar = "■" * filled + "□" * (max(1, round(_BAR * count / most)) - filled)
            lines.append(f"{step:>5} {count:>6,} {bar}")
    return "\n".join(lines)
