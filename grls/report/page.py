"""Puts the tables and pictures of a page in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import fmean

import jinja2
from markupsafe import Markup

from grls.errors import ConfigError, at_least
from grls.evaluation.depth import shared_name
from grls.evaluation.evaluate import measure_label
from grls.evaluation.graph import GraphErrors
from grls.evaluation.metrics.averages import cutoffs
from grls.io.files import atomic_file, atomic_folder, refuse_foreign, refuse_unwritable, write_json
from grls.io.html import document
from grls.io.progress import counted
from grls.report.blocks import (
    INK,
    Block,
    Column,
    Gallery,
    Page,
    Picture,
    Row,
    Section,
    Subsection,
    Table,
    Text,
    Value,
    printed,
    value_table,
)
from grls.report.drawing import describe_proof, draw_proof, length_histograms, recall_curves
from grls.report.measure import Measured, MeasuredGroup
from grls.report.proofs import proof_examples
from grls.report.tables import (
    IDENTITY,
    REACH,
    Rows,
    across,
    chains_table,
    ensemble_table,
    identity,
    measures_table,
    memorisation_table,
    price_table,
    recall_table,
    significance_table,
    similarity_tables,
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
    sections = []
    for group in groups:
        recall, *rest = _common_parts([group], ks, k)
        lead = (*_headline(group, k), *_warnings([group]))
        parts = [Subsection(recall.title, (*lead, *recall.blocks, *_gallery(recall_curves(group))))]
        price = price_table(group, seed)
        more = (*([] if price is None else [price]), *_gallery(length_histograms(group)))
        parts += [
            part._replace(blocks=(*part.blocks, *more)) if "steps" in part.title else part for part in rest
        ]
        # Tests of every run against the reference run: recall, the tested measures, and set F1.
        reaches = [run.reach for run in group.runs]
        values: dict[str, Callable[[Measured], list[float] | None]] = {
            f"R@{k}": partial(group.recalls, k=k),
            **{shared_name(name, reaches): partial(group.values, measure=name) for name in tested},
            "set F1": group.set_f1s,
        }
        tests = [significance_table(group, what, of, baseline, seed) for what, of in values.items()]
        others: dict[str, Sequence[Block]] = {
            "Other metrics": [table for _, table in section_tables([group], _ELSEWHERE)],
            "Proof graphs": _graph_blocks(group, proofs),
            "Significance": [table for table in tests if table is not None],
            "Similarity of predictions": similarity_tables(group, k),
        }
        parts += [Subsection(title, tuple(blocks)) for title, blocks in others.items() if blocks]
        sections.append(Section(f"{group.group.name}, {group.group.split}", tuple(parts)))
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


def _graph_blocks(group: MeasuredGroup, count: int) -> list[Block]:
    """Error rates (the form of table 10), and proofs: those of the best run open, the others folded away."""
    checked = [run for run in group.runs if "graph" in run.report]
    if not checked:
        return []
    others = [s for run in group.runs for s in run.report if not s.startswith("graph")]
    blocks: list[Block] = [table for _, table in section_tables([group], others)]
    ranked = sorted(checked, key=lambda run: -run.report["graph"]["success"])
    for n, run in enumerate(ranked):
        drawn = []
        for m, example in enumerate(proof_examples(group, run, count), 1):
            name = f"{group.group.name}-proof-{group.runs.index(run) + 1}-{m}"
            errors = example.proof.errors
            failed = ", ".join(check.replace("_", " ") for check, wrong in errors._asdict().items() if wrong)
            verdict = "success" if errors.success else f"failure ({failed})"
            caption = f"{run.label}, query {example.query_id}, {verdict}: {example.query}"
            svg, alt = draw_proof(example.proof, name), describe_proof(example.proof)
            drawn.append(Picture(name, caption, svg, alt))
        if drawn:
            blocks.append(Gallery(tuple(drawn), f"Proofs of {run.label}" if n else ""))
    return blocks


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


# Tables of all other metrics of the evaluation, under any name, and of the manifests' facts.


_ERRORS = {"done_missing", *GraphErrors._fields}  # lower is better
_FEW = 30  # queries below which an average is marked
_NOTES = {
    "seen_unseen": "Seen: gold passages that are also gold of a training query; unseen: the others. Each is "
    "averaged over the queries with gold passages of that kind; the table has their numbers. In parentheses: "
    "over fewer than 30 queries, so the value is uncertain. All unseen: queries without a seen gold passage; "
    "their share is the paper's unseen rate.",
    "graph": "Success: the chain proves the goal; each use of a statement consumes it, and no statement is "
    "left over (algorithm 3 of arXiv 2204.13596). The other columns are error rates (lower is better); a "
    "chain counts under the first check that it fails.",
    "graph_reuse": "The same checks, but a statement may feed several rules; a chain counts under every "
    "check that it fails.",
    "by_type": "By the field `type` of the questions' metadata; the best is marked within a type. In "
    "parentheses: over fewer than 30 queries, so the value is uncertain.",
    "answer_recall": "Share of queries with an accepted answer in the text of the first k passages.",
}


def section_tables(groups: Sequence[MeasuredGroup], left_out: Sequence[str]) -> list[tuple[str, Table]]:
    """(section, table) of every section of the evaluation.

    Args:
        groups: The data sets.
        left_out: Sections to leave out, because the page shows them elsewhere.
    """
    names = dict.fromkeys(s for group in groups for run in group.runs for s in run.report)
    tables = []
    for name in names:
        sections = [run.report[name] for group in groups for run in group.runs if name in run.report]
        if name in left_out or not all(isinstance(values, dict) for values in sections):
            continue  # the latter is not a section of metrics
        typed = name == "by_type"
        if typed:
            sections = [values for section in sections for values in section.values()]
        columns = {}
        for metric in dict.fromkeys(metric for values in sections for metric in values):
            if metric == "queries" or metric.endswith("_queries"):
                columns[metric] = Column(spoken(metric), "count", "")
            else:
                head = spoken(metric).replace("recall@", "R@")
                columns[metric] = Column(head, "percent", "low" if metric in _ERRORS else "high")

        def rows(group: MeasuredGroup, name: str = name, typed: bool = typed) -> Rows:
            if not typed:
                return {identity(run): _shown(run.report.get(name, {})) for run in group.runs}
            return {
                (*identity(run), kind): _shown(values, ("",) if values["queries"] < _FEW else ())
                for run in group.runs
                for kind, values in run.report.get(name, {}).items()
            }

        table = across(
            name.replace("_", "-"),
            f"{spoken(name).capitalize()} (%)",
            (*IDENTITY, "type") if typed else IDENTITY,
            groups,
            rows,
            [*columns.items()],
            _NOTES.get(name, ""),
            within=len(IDENTITY) if typed else None,
        )
        if table is not None:
            tables.append((name, table))
    return tables


def run_table(groups: Sequence[MeasuredGroup], place: str | Path | None = None) -> Table:
    """The runs with the facts of their manifests; files below ``place`` are named from there."""
    heads = (
        "stages", "members", "score mode", "seconds", "queries/s",
        "judged", "unanswered", "not judged", "options", "file",
    )  # fmt: skip
    counts = {"judged": "count", "unanswered": "count", "not judged": "count"}
    columns = [
        Column(h, "count" if h in counts else "number" if h in ("seconds", "queries/s") else "text", "")
        for h in heads
    ]
    rows: list[Row] = []
    for data, run in ((group.group, run) for group in groups for run in group.runs):
        info, mode, file = run.entry.info, run.entry.run.score_mode, run.entry.file
        if place is not None and file.is_relative_to(place):
            file = file.relative_to(place)
        queries = [run.report["queries"][kind] for kind in ("judged", "unanswered", "unjudged")]
        facts: list[Value] = [None, None, mode, None, None, *queries, "no manifest", str(file)]
        if info is not None:
            facts = [
                " + ".join(info.stages),
                " + ".join(info.members),
                info.score_mode,
                info.seconds or None,
                len(run.entry.run.rankings) / info.seconds if info.seconds else None,
                *queries,
                ", ".join(f"{key}={value}" for key, value in info.options.items() if value is not None),
                str(file),
            ]
        rows.append(((*identity(run), data.name, data.split), facts))
    return value_table(
        "runs",
        "Every run, with the facts of its manifest",
        (*IDENTITY, "data set", "split"),
        columns,
        rows,
        "Judged: queries of the split that have judgements. Unanswered: those for which the run has no "
        "passage; they score 0. Not judged: queries of the run outside the split; they are left out.",
    )


def _shown(values: Mapping[str, Value], more: Sequence[str] = ()) -> Mapping[str, Value]:
    """Values of a section; those over few queries (as ``seen_queries`` counts them) in parentheses.

    Args:
        values: Metric -> value.
        more: How further metrics begin that are over few queries.
    """
    few = {
        metric.removesuffix("queries")
        for metric, count in values.items()
        if metric.endswith("_queries") and isinstance(count, int) and count < _FEW
    } | set(more)
    return {
        metric: f"({printed(value, 'percent')})"
        if isinstance(value, float) and any(metric.startswith(part) for part in few)
        else value
        for metric, value in values.items()
    }


def spoken(name: str) -> str:
    """The name of a section or metric in words."""
    return {
        "seen_unseen": "recall of seen and unseen gold",
        "graph": "success and error rates of proof graphs",
        "graph_reuse": "success and error rates of proof graphs, statements used again",
        "by_type": "scores by the type of a question",
    }.get(name) or measure_label(name)


# Writes a page as one HTML file, with its pictures beside it.
#
# The HTML has the frame of :mod:`grls.io.html`. The template engine escapes every text; only pictures go in
# unescaped, and their makers have escaped their texts.


_INDEX = "figures.json"


def write_report(page: Page, output: str) -> list[Path]:
    """Write ``OUTPUT.html`` and the folder ``OUTPUT-figures`` (SVG), each atomically.

    Args:
        page: The page.
        output: Path without ending.

    Returns:
        The paths written.

    Raises:
        ConfigError: ``OUTPUT-figures`` exists and holds other files.
        WriteError: A file cannot be written.
    """
    refuse_unwritable(output)
    folder = Path(f"{output}-figures")
    refuse_foreign(folder, _INDEX)
    html = render_html(page)
    with atomic_folder(folder, _INDEX) as new:
        shown = pictures(page)
        for picture in shown:
            (new / f"{picture.name}.svg").write_text(standalone(picture), encoding="utf-8")
        write_json(new / _INDEX, {f"{picture.name}.svg": picture.caption for picture in shown})
    file = Path(f"{output}.html")
    with atomic_file(file) as stream:
        stream.write(html)
    return [file, folder]


def render_html(page: Page) -> str:
    """The page as one HTML document."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["gallery"] = lambda block: isinstance(block, Gallery)
    environment.tests["text"] = lambda block: isinstance(block, Text)
    environment.filters["slug"] = lambda text: re.sub(r"\W+", "-", text.lower()).strip("-")
    environment.filters["inline"] = _inline
    body = environment.from_string(_template("page.html")).render(page=page)
    return document(page.title, _template("page.css"), body)


def pictures(page: Page) -> list[Picture]:
    """All pictures in the order of the page."""
    blocks = [block for section in page.sections for part in section.parts for block in part.blocks]
    return [picture for block in blocks if isinstance(block, Gallery) for picture in block.pictures]


def standalone(picture: Picture) -> str:
    """A picture as a separate file, on white because its text is dark."""
    start = picture.svg.index(">", picture.svg.index("<svg")) + 1
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{picture.svg[:start]}{white}{picture.svg[start:]}\n"


def _template(name: str) -> str:
    return files("grls.report").joinpath(name).read_text(encoding="utf-8")


def _inline(picture: Picture) -> Markup:
    """A picture inside HTML, with text in the page's colour; screen readers read the alternative text."""
    return Markup(picture.svg.replace(INK, "currentColor").replace("<svg ", '<svg aria-hidden="true" ', 1))
