"""The page of a run that compares its systems, with significance against the one that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grls.evaluation.measures import MEASURES, measure_names
from grls.fitting.account import account_of
from grls.fitting.options import DEPTH
from grls.fitting.systems import FittedSystem
from grls.fitting.work import FitWork
from grls.io.progress import duration
from grls.report.blocks import NONE, Block, Cell, Section, Subsection, Table, Text
from grls.report.measure import score_runs
from grls.report.page import build_page
from grls.report.render import write_report
from grls.report.runs import load_groups


def write_page(
    work: FitWork,
    systems: Sequence[FittedSystem],
    split: str,
    kept: FittedSystem,
    title: str,
    content: dict[str, Any],
) -> Path:
    """Write ``report.html``, ``report.md`` and their figures.

    Args:
        work: The run.
        systems: The systems on the page.
        split: The split whose runs are compared.
        kept: The system that the others are tested against.
        title: The heading.
        content: What ``fit.json`` says of the run so far.

    Returns:
        The page.
    """
    k = work.options.k
    ks = sorted({1, k, 10, DEPTH})
    files = [f"{work.run(split, system.folder)}.jsonl" for system in systems]
    groups = [score_runs(group, ks, measure_names(MEASURES)) for group in load_groups(files, work.data)]
    page = build_page(groups, ks, k, kept.name, seed=work.options.seed, title=title, place=work.output)
    page = page._replace(sections=(_of_run(content), *page.sections))
    return write_report(page, str(work.output / "report"))[0]


def _of_run(content: dict[str, Any]) -> Section:
    """What was kept and why, how long everything took, and what was skipped."""
    account = account_of(content)
    kept = Text(f"{content['kept']}, {content['why']}.")
    took = Text(f"{duration(content['seconds'])} in all, without this page.")
    times = _pairs("times", "The stages, and the time of each", ("stage", "time"), account.done, 2)
    parts = [Subsection("What was kept", (kept,)), Subsection("What was done", (times, took))]
    if account.skipped:
        table = _pairs("skipped", "What was skipped, and why", ("part", "why"), account.skipped, 1)
        parts.append(Subsection("What was skipped", (table,)))
    return Section("The run", tuple(parts))


def _pairs(
    name: str, caption: str, heads: tuple[str, str], pairs: Sequence[tuple[str, str]], stubs: int
) -> Block:
    rows = tuple((Cell(first), Cell(second or NONE)) for first, second in pairs)
    return Table(name, caption, (), heads, stubs, rows)
