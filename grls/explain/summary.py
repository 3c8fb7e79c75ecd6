"""The verdicts of many queries: how many misses the beam and the model cause, and at which steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from grls.data.types import Query
from grls.explain.explain import Explainer
from grls.explain.verdict import MEANING, VERDICTS
from grls.io.counts import counted
from grls.io.progress import Progress

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


def summarise(explainer: Explainer, asks: Sequence[Ask]) -> Summary:
    """Judge every gold passage of every ask.

    Args:
        explainer: The explainer.
        asks: Queries, gold passages and evidence to judge.

    Raises:
        DataError: An id is not in the corpus, or a query is empty or too long.
    """
    verdicts: Counter[str] = Counter()
    left: Counter[int] = Counter()
    pruned_left: Counter[int] = Counter()
    sufficient: Counter[str] = Counter()
    with Progress(len(asks), "explain", "hops") as bar:
        for ask in asks:
            for judgement, step in explainer.judge(*ask):
                verdicts[judgement.verdict] += 1
                if step is not None and judgement.verdict not in _FOUND:
                    left[step] += 1
                if judgement.verdict == "pruned":
                    pruned_left[step or 0] += 1
                    sufficient[str(judgement.sufficient or "more")] += 1
            bar.update()
    return Summary(
        len({query.id for query, _, _ in asks}),
        explainer.generator.decoder(explainer.k).beams,
        explainer.k,
        explainer.stop.bias,
        {v: verdicts[v] for v in VERDICTS},
        dict(sorted(left.items())),
        dict(sorted(pruned_left.items())),
        dict(sorted(sufficient.items(), key=lambda item: (item[0] == "more", len(item[0]), item[0]))),
    )


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
