"""Puts the tables and pictures of a page in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from grls.errors import ConfigError, at_least
from grls.evaluation.depth import shared_name
from grls.evaluation.metrics.averages import cutoffs
from grls.io.counts import counted
from grls.report.blocks import Block, Gallery, Page, Picture, Section, Subsection, Text
from grls.report.charts import length_histograms, recall_curves
from grls.report.compare import price_table, significance_table, similarity_tables
from grls.report.drawing import describe_proof, draw_proof
from grls.report.measure import Measured, MeasuredGroup
from grls.report.proofs import ProofExample, proof_examples
from grls.report.rows import REACH
from grls.report.sections import run_table, section_tables
from grls.report.tables import (
    chains_table,
    ensemble_table,
    measures_table,
    memorisation_table,
    recall_table,
)

TESTED = ("nDCG@10",)
"""The default measures whose differences are tested."""

_ELSEWHERE = ("queries", "sequence_recall", "measures", "set", "done_missing", "graph")


def build_page(
    groups: Sequence[MeasuredGroup],
    ks: Sequence[int],
    k: int = 5,
    baseline: str | None = None,
    proofs: int = 2,
    seed: int = 0,
    title: str = "Retrieval runs",
    tested: Sequence[str] = TESTED,
    place: str | Path | None = None,
) -> Page:
    """Put a page together.

    Args:
        groups: The scored runs.
        ks: Cut-offs of the tables.
        k: Cut-off of significance and similarity.
        baseline: Label of the reference run of the tests; None takes the best run of each data set.
        proofs: For RuleTaker-Open: number of successes, and of failures, to draw for each run.
        seed: Seed of the resampling.
        title: The page's heading.
        tested: Standard measures whose differences are tested, in addition to R@k and set F1.
        place: The folder from which the files of runs are named; None: they are named as they were given.

    Raises:
        ConfigError: ``baseline`` is no label of a run, or a cut-off or count is out of range.
    """
    labels = [run.label for group in groups for run in group.runs]
    if baseline is not None and baseline not in labels:
        raise ConfigError(f"the baseline {baseline!r} is none of the runs; expected one of {labels}.")
    at_least(0, proofs=proofs)
    ks, k = cutoffs(ks), cutoffs([k])[0]
    sections = [_data_section(group, ks, k, baseline, proofs, seed, tested) for group in groups]
    if len(groups) > 1:
        sections.insert(0, Section("All data sets", _common_parts(groups, ks, k)))
    sections.append(
        Section("What was run", (Subsection("Runs", (*_warnings(groups), run_table(groups, place))),))
    )
    names = ", ".join(f"{group.group.name} ({group.group.split})" for group in groups)
    counted = f"{len(labels)} run{'s' if len(labels) > 1 else ''} on {names}."
    rules = (
        "A query without an answer scores 0; a dash means that a metric does not apply; the best is in bold. "
        + REACH
    )
    return Page(title, f"{counted} {rules}", tuple(sections))


def _common_parts(groups: Sequence[MeasuredGroup], ks: Sequence[int], k: int) -> tuple[Subsection, ...]:
    """The tables that show one data set, or several side by side."""
    tables = (
        ("Recall", recall_table(groups, ks, k)),
        ("Standard measures", measures_table(groups)),
        ("Memorisation", memorisation_table(groups, ks)),
        ("Fixed and dynamic steps", chains_table(groups)),
        ("Ensembles", ensemble_table(groups, ks)),
    )
    return tuple(Subsection(title, (table,)) for title, table in tables if table is not None)


def _data_section(
    group: MeasuredGroup,
    ks: Sequence[int],
    k: int,
    baseline: str | None,
    proofs: int,
    seed: int,
    tested: Sequence[str],
) -> Section:
    recall, *rest = _common_parts([group], ks, k)
    curves = recall_curves(group)
    lead = (*_headline(group, k), *_warnings([group]))
    parts = [Subsection(recall.title, (*lead, *recall.blocks, *_gallery(curves)))]
    price = price_table(group, seed)
    more = (*([] if price is None else [price]), *_gallery(length_histograms(group)))
    parts += [part._replace(blocks=(*part.blocks, *more)) if "steps" in part.title else part for part in rest]
    others = [table for _, table in section_tables([group], _ELSEWHERE)]
    if others:
        parts.append(Subsection("Other metrics", tuple(others)))
    graphs = _graph_blocks(group, proofs)
    if graphs:
        parts.append(Subsection("Proof graphs", graphs))
    tests = _significance(group, k, baseline, seed, tested)
    if tests:
        parts.append(Subsection("Significance", tests))
    alike = similarity_tables(group, k)
    if alike:
        parts.append(Subsection("Similarity of predictions", tuple(alike)))
    return Section(f"{group.group.name}, {group.group.split}", tuple(parts))


def _significance(
    group: MeasuredGroup, k: int, baseline: str | None, seed: int, tested: Sequence[str]
) -> tuple[Block, ...]:
    """Tests of every run against the reference run: recall, the tested measures, and set F1."""
    reaches = [run.reach for run in group.runs]
    values: dict[str, Callable[[Measured], list[float] | None]] = {
        f"R@{k}": lambda run: group.recalls(run, k),
        **{shared_name(name, reaches): partial(group.values, measure=name) for name in tested},
        "set F1": group.set_f1s,
    }
    tables = (significance_table(group, what, of, baseline, seed) for what, of in values.items())
    return tuple(table for table in tables if table is not None)


def _headline(group: MeasuredGroup, k: int) -> list[Block]:
    """A sentence on the run with the best recall; empty for fewer than two runs with recall."""
    recalls = [
        (fmean(values), run.label) for run in group.runs if (values := group.recalls(run, k)) is not None
    ]
    ranked = sorted(recalls, key=lambda pair: -pair[0])
    if len(ranked) < 2:
        return []
    (best, label), (second, other) = ranked[:2]
    count = f"{counted(len(group.gold), 'query')}"
    if f"{100 * best:.1f}" == f"{100 * second:.1f}":
        return [Text(f"{label} and {other} find most: R@{k} {100 * best:.1f} each, over {count}.")]
    return [
        Text(
            f"{label} finds most: R@{k} {100 * best:.1f} over {count}; next {other} with {100 * second:.1f}."
        )
    ]


def _gallery(pictures: Sequence[Picture]) -> list[Block]:
    return [Gallery(tuple(pictures))] if pictures else []


def _graph_blocks(group: MeasuredGroup, count: int) -> tuple[Block, ...]:
    """Error rates (the form of table 10), and proofs: those of the best run open, the others folded away."""
    checked = [run for run in group.runs if "graph" in run.report]
    if not checked:
        return ()
    others = [s for run in group.runs for s in run.report if not s.startswith("graph")]
    blocks: list[Block] = [table for _, table in section_tables([group], others)]
    ranked = sorted(checked, key=lambda run: -run.report["graph"]["success"])
    for n, run in enumerate(ranked):
        shown = proof_examples(group, run, count)
        if shown:
            number = group.runs.index(run) + 1
            pictures = tuple(_proof(group, run, e, f"{number}-{m}") for m, e in enumerate(shown, 1))
            blocks.append(Gallery(pictures, f"Proofs of {run.label}" if n else ""))
    return tuple(blocks)


def _proof(group: MeasuredGroup, run: Measured, example: ProofExample, number: str) -> Picture:
    name = f"{group.group.name}-proof-{number}"
    errors = example.proof.errors
    failed = ", ".join(check.replace("_", " ") for check, wrong in errors._asdict().items() if wrong)
    verdict = "success" if errors.success else f"failure ({failed})"
    caption = f"{run.label}, query {example.query_id}, {verdict}: {example.query}"
    return Picture(name, caption, draw_proof(example.proof, name), describe_proof(example.proof))


def _warnings(groups: Sequence[MeasuredGroup]) -> list[Block]:
    """Warnings about queries without passages."""
    said = []
    for group in groups:
        for run in group.runs:
            counts = run.report["queries"]
            if counts["unanswered"]:
                said.append(
                    f"{run.label} on {group.group.name}: no passage for {counts['unanswered']:,} of "
                    f"{counted(counts['judged'], 'query')}; they score 0."
                )
    return [Text(text, warning=True) for text in said]
