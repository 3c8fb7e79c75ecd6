"""A page of runs: its tables and pictures (SVG), in order, as one HTML file.

The template escapes every text; only pictures go in unescaped, and their makers have escaped their texts.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from itertools import count
from math import ceil, floor, log10
from pathlib import Path
from statistics import fmean

import jinja2

from grls.evaluation.evaluate import measure_label
from grls.evaluation.graph import GraphErrors
from grls.evaluation.measures import shared_name
from grls.evaluation.misses import KINDS, NOTE
from grls.evaluation.significance import (
    CONFIDENCE,
    LEVEL,
    Comparison,
    compare_with,
    shown_p,
    shown_points,
)
from grls.io.files import atomic_file
from grls.io.html import document
from grls.io.progress import counted
from grls.report.blocks import (
    NONE,
    Block,
    Cell,
    Column,
    KeyFigures,
    Kind,
    Page,
    Picture,
    Row,
    Section,
    Subsection,
    Table,
    Text,
    Value,
    printed,
    two_digits,
    value_table,
)
from grls.report.runs import SYSTEMS, DataGroup, ScoredRun

TESTED = ("nDCG@10",)
"""The default measures whose differences are tested."""


def build_page(
    groups: Sequence[DataGroup],
    k: int = 5,
    baseline: str | None = None,
    seed: int = 0,
    title: str = "Retrieval runs",
    tested: Sequence[str] = TESTED,
    folder: str | Path | None = None,
) -> Page:
    """Put a page together.

    ``k`` is the cut-off of significance and similarity. Tests compare with the run labelled ``baseline``, or
    the best of each data set, by R@k, set F1 and the measures ``tested``.
    """
    sections = []
    for group in groups:
        depths = [run.depth for run in group.runs]
        values: dict[str, Callable[[ScoredRun], list[float] | None]] = {
            shared_name(name, depths): partial(group.values, measure=name) for name in (f"R@{k}", *tested)
        }
        values["set F1"] = group.set_f1s
        tests = [significance_table(group, name, of, baseline, seed) for name, of in values.items()]
        parts: dict[str, Sequence[Block]] = {
            "Metrics": [t for t in section_tables(group) if t.rows[1:] or not group.runs[1:]],
            "Significance": [table for table in tests if table is not None],
            "Similarity of predictions": similarity_tables(group, k),
        }
        shown = tuple(Subsection(heading, tuple(blocks)) for heading, blocks in parts.items() if blocks)
        sections.append(Section(f"{group.name}, {group.split}", shown))
    unanswered = [
        Text(
            f"{run.label} on {group.name}: no passage for {counts['unanswered']:,} of "
            f"{counted(counts['judged'], 'query')}; they score 0.",
            warning=True,
        )
        for group in groups
        for run in group.runs
        if (counts := run.report["queries"])["unanswered"]
    ]
    runs = Subsection("Runs", (*unanswered, run_table(groups, folder)))
    sections.append(Section("What was run", (runs,)))
    names = ", ".join(f"{group.name} ({group.split})" for group in groups)
    count = sum(len(group.runs) for group in groups)
    summary = (
        f"{counted(count, 'run')} on {names}. In the tables below, a query without an "
        f"answer scores 0, a dash means that a metric does not apply, and the best is in bold. {REACH}"
    )
    return Page(title, summary, tuple(sections))


_ERRORS = {"done_missing", *GraphErrors._fields, *KINDS}  # lower is better
_FEW = 30  # queries below which an average is marked
_NOTES = {
    "sequence_recall": "R@k: share of a query's gold passages among the first k retrieved, averaged over "
    "judged queries.",
    "measures": "By ir_measures, with the grades of the qrels, as trec_eval counts: nDCG: normalized "
    "discounted cumulative gain; RR: reciprocal rank; AP: average precision; P: precision; Judged: share of "
    "the first k that the qrels judge. RR and AP read all that a run holds, so no run is marked as the best "
    "where runs were cut off at various depths.",
    "seen_unseen": "Seen: gold passages that are also gold of a training query; unseen: the others. Each is "
    "averaged over the queries with gold passages of that kind; the table has their numbers. In parentheses: "
    "over fewer than 30 queries, so the value is uncertain. All unseen: queries without a seen gold passage; "
    "their share is the paper's unseen rate.",
    "misses": NOTE,
    "graph": "Success: the chain proves the goal; each use of a statement consumes it, and no statement is "
    "left over (algorithm 3 of arXiv 2204.13596). The other columns are error rates (lower is better); a "
    "chain counts under the first check that it fails.",
    "graph_reuse": "The same checks, but a statement may feed several rules; a chain counts under every "
    "check that it fails.",
    "by_type": "By the field `type` of the questions' metadata; the best is marked within a type. In "
    "parentheses: over fewer than 30 queries, so the value is uncertain.",
    "answer_recall": "Share of queries with an accepted answer in the text of the first k passages.",
}


def section_tables(group: DataGroup) -> list[Table]:
    """A table of every section of the evaluation."""
    tables = []
    for name in dict.fromkeys(name for run in group.runs for name in run.report):
        sections = [(run, run.report[name]) for run in group.runs if isinstance(run.report.get(name), dict)]
        if name == "queries" or not sections:
            continue
        rows = {identity(run): _shown(values) for run, values in sections}
        if typed := name == "by_type":
            rows = {
                (*identity(run), kind): _shown(values, ("",) if values["queries"] < _FEW else ())
                for run, types in sections
                for kind, values in types.items()
            }
        columns = {
            metric: _column(name, metric, group)
            for metric in dict.fromkeys(metric for values in rows.values() for metric in values)
        }
        cells = [(key, [values.get(metric) for metric in columns]) for key, values in rows.items()]
        stubs = (*IDENTITY, "type") if typed else IDENTITY
        within = len(IDENTITY) if typed else None
        label, caption = f"{name.replace('_', '-')}-{group.name}", f"{spoken(name).capitalize()} (%)"
        tables.append(
            value_table(label, caption, stubs, [*columns.values()], cells, _NOTES.get(name, ""), within)
        )
    return tables


def _column(section: str, metric: str, group: DataGroup) -> Column:
    if metric == "queries" or metric.endswith("_queries"):
        return Column(spoken(metric), "count", "")
    if section == "measures":
        # In some no run is best: they say nothing of quality, or read runs to various depths.
        deep = shared_name(metric, [run.depth for run in group.runs]) != metric
        return Column(metric, best="" if metric.startswith("Judged") or deep else "high")
    head = measure_label("set", metric) if section == "set" else spoken(metric)
    return Column(head.replace("recall@", "R@"), best="low" if metric in _ERRORS else "high")


def run_table(groups: Sequence[DataGroup], folder: str | Path | None = None) -> Table:
    """The runs with the facts of their manifests; paths of files start from ``folder``."""
    kinds: dict[str, Kind] = {
        "stages": "text", "members": "text", "score mode": "text", "seconds": "number", "queries/s": "number",
        "judged": "count", "unanswered": "count", "not judged": "count", "options": "text", "file": "text",
    }  # fmt: skip
    rows: list[Row] = []
    for data, run in ((group, run) for group in groups for run in group.runs):
        info, mode, file = run.info, run.run.score_mode, run.file
        if folder is not None and file.is_relative_to(folder):
            file = file.relative_to(folder)
        queries = [run.report["queries"][kind] for kind in ("judged", "unanswered", "unjudged")]
        facts: list[Value] = [None, None, mode, None, None, *queries, "no manifest", str(file)]
        if info is not None:
            facts = [
                " + ".join(info.stages),
                " + ".join(info.members),
                info.score_mode,
                info.seconds or None,
                len(run.run.rankings) / info.seconds if info.seconds else None,
                *queries,
                ", ".join(f"{key}={value}" for key, value in info.options.items() if value is not None),
                str(file),
            ]
        rows.append(((*identity(run), data.name, data.split), facts))
    return value_table(
        "runs",
        "Every run, with the facts of its manifest",
        (*IDENTITY, "data set", "split"),
        [Column(head, kind, "") for head, kind in kinds.items()],
        rows,
        "Judged: queries of the split that have judgements. Unanswered: those for which the run has no "
        "passage; they score 0. Not judged: queries of the run outside the split; they are left out.",
    )


def _shown(values: Mapping[str, Value], more: Sequence[str] = ()) -> Mapping[str, Value]:
    """Metric -> value, in parentheses over few queries; ``more``: beginnings of metrics over few."""
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
    return {
        "seen_unseen": "recall of seen and unseen gold",
        "graph": "success and error rates of proof graphs",
        "graph_reuse": "success and error rates of proof graphs, statements used again",
        "by_type": "scores by the type of a question",
    }.get(name) or measure_label(name)


def write_report(page: Page, output: str) -> Path:
    """Write ``OUTPUT.html`` and return its path."""
    file = Path(f"{output}.html")
    html = render_html(page)
    with atomic_file(file) as stream:
        stream.write(html)
    return file


def render_html(page: Page) -> str:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    environment.filters["slug"] = lambda text: re.sub(r"\W+", "-", text.lower()).strip("-")
    body = environment.from_string(_template("page.html")).render(page=page)
    return document(page.title, _template("page.css"), body)


def _template(name: str) -> str:
    return files("grls.report").joinpath(name).read_text(encoding="utf-8")


IDENTITY = ("run", "system", "steps")
"""Headings of the cells of :func:`identity`."""

REACH = (
    "A ranking that was cut off before k has no value at k; lists that are whole and chains that end keep "
    "their value beyond their end."
)
"""What a dash in a column of cut-off k means; a page says it once."""


def identity(run: ScoredRun) -> tuple[str, ...]:
    return run.label, SYSTEMS.get(run.system, run.system) or NONE, run.steps or NONE


def significance_table(
    group: DataGroup,
    metric: str,
    values: Callable[[ScoredRun], Sequence[float] | None],
    baseline: str | None = None,
    seed: int = 0,
) -> Table | None:
    """Every run tested against a reference run, query by query; None if fewer than two runs have values.

    ``values``: a run -> one value a query. ``baseline``: label of the reference run; else the best run.
    """
    measured = [(run, scores) for run in group.runs if (scores := values(run)) is not None]
    if len(measured) < 2:
        return None
    named = [n for n, (run, _) in enumerate(measured) if run.label == baseline]
    reference = named[0] if named else max(range(len(measured)), key=lambda n: fmean(measured[n][1]))
    label, against = measured[reference][0].label, measured[reference][1]
    others = {n: scores for n, (_, scores) in enumerate(measured) if n != reference}
    compared = compare_with(against, others, seed)
    rows = [
        (
            Cell(run.label),
            Cell(f"{100 * fmean(scores):.1f}"),
            *_compared(compared.get(n)),
        )
        for n, (run, scores) in enumerate(measured)
    ]
    reason = "the baseline asked for" if named else "the best"
    return Table(
        f"significance-{metric.lower().replace(' ', '-').replace('@', '')}-{group.name}",
        f"{metric}: every run against {label} ({reason}), {counted(len(against), 'query')}",
        ("run", f"{metric} (%)", "difference", f"{CONFIDENCE:.0%} interval", "p", "p, Holm"),
        1,
        tuple(rows),
        "Differences in points, paired by query. Interval: percentile bootstrap. p: two-sided paired "
        f"permutation test; p, Holm: corrected for the {len(compared)} comparisons of this table, marked "
        f"if below {LEVEL}. Runs without a value are left out. Seed {seed}.",
    )


def _compared(found: tuple[Comparison, float] | None) -> tuple[Cell, ...]:
    if found is None:
        return (Cell("reference"), Cell(NONE), Cell(NONE), Cell(NONE))
    result, corrected = found
    return (
        Cell(shown_points(result.difference)),
        Cell(result.interval),
        Cell(shown_p(result.p)),
        Cell(shown_p(corrected), strong=corrected < LEVEL),
    )


def overlap(
    first: Sequence[Sequence[str]],
    second: Sequence[Sequence[str]],
    k: int,
    gold: Sequence[Sequence[str]] | None,
) -> float | None:
    """Mean Jaccard overlap of the first k passages of two runs: |A ∩ B| / |A ∪ B|; None without such a query.

    With ``gold``, only gold passages count. Queries for which neither run has a passage that counts are
    left out.
    """
    shares = []
    for n, hits in enumerate(zip(first, second, strict=True)):
        a, b = (set(ids[:k]) for ids in hits)
        if gold is not None:
            a, b = a & set(gold[n]), b & set(gold[n])
        if a | b:
            shares.append(len(a & b) / len(a | b))
    return fmean(shares) if shares else None


def similarity_tables(group: DataGroup, k: int) -> list[Table]:
    """Heat maps of the similarity of the runs' predictions, all and correct ones (figures 7 and 8)."""
    if len(group.runs) < 2:
        return []
    return [_heat_map(group, k, None), _heat_map(group, k, group.gold)]


def _heat_map(group: DataGroup, k: int, gold: Sequence[Sequence[str]] | None) -> Table:
    rows = []
    deep = {id(run) for run in group.runs if run.depth.tells(f"R@{k}")}
    for n, run in enumerate(group.runs, 1):
        shares = [
            overlap(run.retrieved, other.retrieved, k, gold) if {id(run), id(other)} <= deep else None
            for other in group.runs
        ]
        cells = [Cell(NONE if s is None else f"{s:.2f}", shade=s) for s in shares]
        rows.append((Cell(f"{n}. {run.label}"), *cells))
    passage = "any passage" if gold is None else "any gold passage"
    return Table(
        f"similarity-{'all' if gold is None else 'correct'}-{group.name}",
        f"Similarity of {'all' if gold is None else 'the correct'} predictions in the first {k}",
        ("run", *(str(n) for n in range(1, len(rows) + 1))),
        1,
        tuple(rows),
        "Jaccard overlap |A ∩ B| / |A ∪ B| of two runs' passages, 1 if they are the same, averaged over "
        f"the queries for which at least one of the two has {passage}; a dash where one was cut off before "
        f"{k}.",
        heat=True,
    )


def answer_blocks(
    points: Mapping[str, tuple[float | None, float]],
    chosen: str,
    role: str,
    measure: str,
    queries: str,
    against: tuple[str, Comparison] | None = None,
) -> list[Block]:
    """The figures of the chosen system, and the quality of all by their time a query.

    ``points``: name -> (seconds a query, or None; quality, a share of 1). ``queries`` says how many of what
    kind. ``against``: a name, and the comparison of the chosen one with it.
    """
    seconds, value = points[chosen]
    facts = [(chosen, role)]
    if against is not None:
        other, found = against
        words = f"points of {measure} against {other}; {CONFIDENCE:.0%} interval {found.interval}; {queries}"
        facts.append((shown_points(found.difference), words))
    facts.append((f"{100 * value:.1f}", f"{measure} (%) on {queries}"))
    if seconds is not None:
        facts.append((_time(seconds), "a query, in batches and without loading"))
    timed = {name: (time, quality) for name, (time, quality) in points.items() if time}
    shown: list[Block] = [KeyFigures(tuple(facts))]
    if len(timed) > 1:
        shown.append(quality_by_time(timed, chosen, f"{measure} (%) on {queries}"))
    return shown


def _time(seconds: float) -> str:
    return f"{two_digits(seconds)} s" if seconds >= 1 else f"{two_digits(1000 * seconds)} ms"


def quality_by_time(points: Mapping[str, tuple[float, float]], chosen: str, measure: str) -> Picture:
    """Quality by time, of each name its (seconds a query, share of 1); the time axis is logarithmic.

    A label stands beside its point, or below that, where it lies on no other label and no point.
    """
    times = [log10(seconds) for seconds, _ in points.values()]
    low, high = floor(min(times)), max(ceil(max(times)), floor(min(times)) + 1)
    worst, best = (100 * of(value for _, value in points.values()) for of in (min, max))
    step = next(s for s in (n * 10**power for power in count() for n in (1, 2, 5)) if 4 * s >= best - worst)
    top = max(ceil(best / step), 1)
    bottom = min(floor(worst / step), top - 1)
    across, down = 400 / (high - low), 200 / (top - bottom)
    places = {
        name: (50 + across * (log10(seconds) - low), 20 + down * (top - 100 * value / step))
        for name, (seconds, value) in points.items()
    }
    taken = [(x - 8, x + 8, y) for x, y in places.values()]  # from left to right, at a height
    marks = []
    for name in sorted(points, key=lambda name: (name != chosen, places[name][1])):
        (x, y), value = places[name], 100 * points[name][1]
        size, role = (7, "chosen") if name == chosen else (4, "other")
        words = textwrap.shorten(f"{value:.1f} {name}", 40, placeholder=" …")
        wide = (8 if name == chosen else 7.3) * len(words)
        left, at = (x + 10 if x + 10 + wide <= 480 else max(x - 10 - wide, 50)), y
        while any(left < end and start < left + wide and abs(at - other) < 15 for start, end, other in taken):
            at += 1
        taken.append((left, left + wide, at))
        if at > y + 8:
            end = left if left > x else min(x, left + wide)
            led = f"M{x:.0f} {y:.0f}L{end:.0f} {at - 6 * (end == x):.0f}"
            marks.append(f'<path d="{led}" stroke="currentColor" stroke-opacity="0.4"/>')
        marks.append(
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{size}" class="{role}"/>'
            f'<text x="{left:.0f}" y="{at + 4:.0f}" class="{role}">{escape(words)}</text>'
        )
    end = max(220, *(at for *_, at in taken)) + 12
    for tick in range(low, high + 1):
        x = 50 + across * (tick - low)
        marks.append(f'<path d="M{x:.0f} 20V{end:.0f}" stroke="currentColor" stroke-opacity="0.15"/>')
        marks.append(f'<text x="{x:.0f}" y="{end + 16:.0f}" text-anchor="middle">{_time(10.0**tick)}</text>')
    for tick in range(bottom, top + 1):
        y = 20 + down * (top - tick)
        marks.append(f'<path d="M50 {y:.0f}H450" stroke="currentColor" stroke-opacity="0.15"/>')
        marks.append(f'<text x="38" y="{y + 4:.0f}" text-anchor="end">{tick * step}</text>')
    svg = (
        f'<svg aria-hidden="true" xmlns="http://www.w3.org/2000/svg" width="560" '
        f'viewBox="0 0 480 {end + 24:.0f}" '
        f'font-family="sans-serif" font-size="13" fill="currentColor">{"".join(marks)}</svg>'
    )
    said = "; ".join(f"{n}: {100 * v:.1f} in {_time(s)}" for n, (s, v) in points.items())
    return Picture(f"time-{measure}", f"{measure}, by time a query", svg, f"{said}.")
