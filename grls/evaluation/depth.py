"""Which measures can be told from a run: none that reads deeper than the run was cut off.

A run of 10 passages a query has no R@20: its value would be that of R@10. How deep a run is, says
:meth:`grls.runs.run.Run.depth`; which rank a measure reads to, says its name. Measures without a cut-off
(``RR``, ``AP``) read what the run holds, and runs are compared in them at the depth that all of them have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grls.errors import ConfigError, Option
from grls.evaluation.measures import cutoff
from grls.io.progress import counted
from grls.runs.run import Run

Value = TypeVar("Value")

_TO_LAST_GOLD = ("f1_known_number", "path_match", "Rprec")  # as deep as a query has gold passages


@dataclass(frozen=True)
class RunDepth:
    """How deep a run is.

    Attributes:
        ranks: The deepest rank that it tells; None: all.
        gold: The largest number of gold passages of a query.
        run: What errors call the run.
    """

    ranks: int | None
    gold: int = 0
    run: str = "the run"

    @classmethod
    def of(cls, run: Run, passages: int | None, gold: Sequence[Collection[str]]) -> RunDepth:
        """The depth of a run.

        Args:
            run: The run.
            passages: Size of the corpus; None: unknown.
            gold: The gold passages of each query.
        """
        return cls(run.depth(passages), max(map(len, gold), default=0), run.called)

    def tells(self, metric: str) -> bool:
        """Whether a metric (``recall@20``, ``nDCG@10``, ``f1_known_number``) can be told from the run."""
        reads = self.gold if metric.startswith(_TO_LAST_GOLD) else cutoff(metric)
        return self.ranks is None or reads <= self.ranks

    def within(self, values: Mapping[str, Value]) -> dict[str, Value | None]:
        """Metric -> value, None for a metric that cannot be told."""
        return {metric: value if self.tells(metric) else None for metric, value in values.items()}

    def refuse(self, metrics: Iterable[str], remedy: str = "leave out what reads deeper") -> None:
        """Refuse metrics that were asked for by name and cannot be told.

        Args:
            metrics: Their names.
            remedy: What to do other than to retrieve again.

        Raises:
            ConfigError: There is one.
        """
        deeper = [metric for metric in metrics if not self.tells(metric)]
        if deeper and self.ranks is not None:
            raise ConfigError(
                f"{self.run} was cut off at {counted(self.ranks, 'passage')} a query, so it has no "
                f"{', '.join(deeper)}: retrieve again with a larger {Option('k')}, or {remedy}."
            )

    def note(self) -> str:
        """A sentence on what has no value, for below a table; empty where every measure has one."""
        if self.ranks is None:
            return ""
        return (
            f"The run was cut off at {counted(self.ranks, 'passage')} a query: what reads deeper has no "
            "value (-), and measures without a cut-off (RR, AP) are of these passages."
        )


def shared_depth(depths: Sequence[RunDepth]) -> int | None:
    """The deepest rank that all runs tell; None: all."""
    return min((depth.ranks for depth in depths if depth.ranks is not None), default=None)


def shared_name(metric: str, depths: Sequence[RunDepth]) -> str:
    """A metric of runs that are compared at their shared depth: ``RR`` is then ``RR@10``.

    Metrics with a cut-off, and all metrics of runs that are equally deep, keep their names.
    """
    to_end = not cutoff(metric) and not metric.startswith(_TO_LAST_GOLD)
    differ = len({depth.ranks for depth in depths}) > 1
    return f"{metric}@{shared_depth(depths)}" if to_end and differ else metric


WHOLE = RunDepth(None)
"""Nothing was cut off."""
