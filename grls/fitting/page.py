"""The page of a run that compares its systems, with significance against the one that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grls.evaluation.measures import MEASURES, measure_names
from grls.fitting.comparing import DEPTH
from grls.fitting.systems import FittedSystem
from grls.fitting.work import FitWork
from grls.report.measure import score_runs
from grls.report.page import build_page
from grls.report.render import write_report
from grls.report.runs import load_groups


def write_page(
    work: FitWork, systems: Sequence[FittedSystem], split: str, kept: FittedSystem, title: str
) -> Path:
    """Write ``report.html``, ``report.md`` and their figures.

    Args:
        work: The run.
        systems: The systems on the page.
        split: The split whose runs are compared.
        kept: The system that the others are tested against.
        title: The heading.

    Returns:
        The page.
    """
    k = work.options.k
    ks = sorted({1, k, 10, DEPTH})
    files = [f"{work.run(split, system.folder)}.jsonl" for system in systems]
    groups = [score_runs(group, ks, measure_names(MEASURES)) for group in load_groups(files, work.data)]
    page = build_page(groups, ks, k, kept.name, seed=work.options.seed, title=title, place=work.output)
    return write_report(page, str(work.output / "report"))[0]
