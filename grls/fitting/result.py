"""What a run came to: ``fit.json``, the page that compares the candidates, and the model card."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from grls.errors import ConfigError
from grls.evaluation.measures import MEASURES, measure_names
from grls.explain.text import aligned
from grls.fitting.candidates import ORDER, JudgedQueries, values_of
from grls.fitting.choose import Choice
from grls.fitting.models import licence_of
from grls.fitting.options import DEPTH
from grls.fitting.search import Skipped
from grls.fitting.splits import DEV, TEST, SplitData
from grls.io.files import atomic_file, write_json
from grls.io.progress import counted, duration
from grls.models.load.base_models import title_of
from grls.retrieve.hub import CARD, Card, CardOptions
from grls.retrieve.registry import Opening, load_retriever

if TYPE_CHECKING:
    from grls.fitting.stages import FitStages

_PACKAGES = ("grls", "torch", "transformers", "sentence-transformers", "lightning", "bm25s")


@dataclass(frozen=True)
class Fitted:
    """A run that has ended.

    Attributes:
        output: Its folder, which opens as the candidate that is kept.
        kept: The name of the candidate that is kept.
        why: The reason.
        queries: Split -> number of queries that were compared.
        metrics: Candidate -> measure, with its split before it (``test R@5``) -> mean, a share of 1.
        seconds: Seconds of the whole run.
        notes: What people should know of the data.
        query_seconds: Candidate -> seconds that ranking a query took, in batches and without loading.
        done: What each stage did, with its seconds.
        skipped: The stages that were not done.
    """

    output: Path
    kept: str
    why: str
    queries: Mapping[str, int]
    metrics: Mapping[str, Mapping[str, float]]
    seconds: float
    notes: tuple[str, ...] = ()
    query_seconds: Mapping[str, float] = field(default_factory=dict)
    done: Sequence[tuple[str, float]] = ()
    skipped: Sequence[Skipped] = ()

    @property
    def report(self) -> Path:
        """The page that compares the candidates."""
        return self.output / "report.html"

    def text(self) -> str:
        """The table for people, in percent."""
        sizes = ", ".join(f"{count:,} {split}" for split, count in self.queries.items())
        heads = list(dict.fromkeys(name for measures in self.metrics.values() for name in measures))
        rows = [["", *heads, "ms a query"]]
        for name, measures in self.metrics.items():
            values = [measures.get(head) for head in heads]
            cells = ["-" if value is None else f"{100 * value:.1f}" for value in values]
            mark = "* " if name == self.kept else "  "
            rows.append([mark + name, *cells, milliseconds(self.query_seconds[name])])
        return "\n".join([f"queries: {sizes}", *aligned(rows, {0}), f"kept: {self.kept}, {self.why}"])


def milliseconds(seconds: float) -> str:
    """A time of a query, for people; with a tenth below ten milliseconds."""
    return f"{1000 * seconds:,.1f}" if seconds < 0.00995 else f"{1000 * seconds:,.0f}"


def write_outcome(
    stages: FitStages,
    data: SplitData,
    choice: Choice,
    done: Sequence[tuple[str, float]],
    skipped: Sequence[Skipped],
    seconds: float,
) -> Fitted:
    """Write ``report.html``, ``fit.json`` and ``README.md``; ``seconds`` are those of the whole run."""
    candidates, options = stages.candidates, stages.options
    gold, names = candidates.reported()
    golds = {DEV: candidates.portions[: min(system.portions for system in candidates.systems.values())]}
    golds |= {TEST: [gold]} if candidates.tested else {}
    measures = dict.fromkeys((options.decides, f"R@{options.k}", f"R@{DEPTH}", ORDER, "RR"))
    metrics: dict[str, dict[str, float]] = {}
    for name in candidates.systems:
        metrics[name] = {}
        for split in (split for split in golds if split == DEV or name in names):
            ids = [[hit.id for hit in hits] for hits in candidates.rankings(name, golds[split])]
            for measure in measures:
                value = fmean(values_of(golds[split], measure, ids))
                metrics[name][f"{split} {measure}"] = round(value, 4)
    compared = {split: sum(len(part.queries) for part in parts) for split, parts in golds.items()}
    costs = {name: round(system.cost, 6) for name, system in candidates.systems.items()}
    fitted = Fitted(
        stages.output, choice.kept.name, choice.why, compared, metrics, round(seconds, 1), data.notes,
        costs, done, skipped,
    )  # fmt: skip
    _write_page(fitted, stages, gold, names)
    kept = candidates.systems[choice.kept.name]
    content = {
        "kept": fitted.kept,
        "why": fitted.why,
        "best_on_dev": choice.best.name,
        "measure": options.decides,
        "retriever": f"members/{kept.folder}",
        "weights": {name: system.weights for name, system in candidates.systems.items() if system.weights},
        "metrics": metrics,
        "query_seconds": costs,
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint,
            "queries": data.counts(),
            "compared": compared,
            "notes": data.notes,
            "pseudo": data.pseudo,
        },
        "base_models": kept.models,
        "language": stages.facts.language,
        "options": asdict(options),
        "account": {"done": done, "skipped": [stage._asdict() for stage in skipped]},
        "seconds": fitted.seconds,
        "versions": _versions(),
    }
    write_json(stages.output / "fit.json", content)
    _write_card(fitted, kept.models, stages.facts.language, data.counts(), options.device)
    return fitted


def _versions() -> dict[str, str]:
    """The versions of what a run depends on."""
    known = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def _write_page(fitted: Fitted, stages: FitStages, gold: JudgedQueries, names: Sequence[str]) -> None:
    """Write the page that compares the candidates, with significance against the kept one."""
    from grls.report.blocks import Cell, Section, Subsection, Table, Text, score_runs
    from grls.report.page import build_page, write_report
    from grls.report.runs import load_groups

    candidates, options = stages.candidates, stages.options
    ks = sorted({1, options.k, 10, DEPTH})
    files = [f"{candidates.run_file(gold.split, candidates.systems[name].folder)}.jsonl" for name in names]
    groups = [score_runs(group, ks, measure_names(MEASURES)) for group in load_groups(files, candidates.data)]
    title = f"grls fit: {counted(len(names), 'candidate')} over {counted(stages.facts.passages, 'passage')}"
    page = build_page(
        groups, ks, options.k, fitted.kept if fitted.kept in names else None, seed=options.seed, title=title,
        folder=stages.output,
    )  # fmt: skip

    def table(name: str, caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
        cells = tuple(tuple(map(Cell, row)) for row in rows)
        return Table(name, caption, (), tuple(heads), 1, cells)

    done = [(stage, duration(seconds)) for stage, seconds in fitted.done]
    decides = f"dev {options.decides}"
    costs = [
        (name, milliseconds(cost), f"{100 * fitted.metrics[name][decides]:.1f}")
        for name, cost in sorted(fitted.query_seconds.items(), key=lambda pair: pair[1])
    ]
    reasons = [(stage.what, stage.why) for stage in fitted.skipped]
    blocks: dict[str, list[Table | Text]] = {
        "What was kept": [Text(f"{fitted.kept}, {fitted.why}.")],
        "What was done": [
            table("times", "The stages, and the time of each", ("stage", "time"), done),
            Text(f"{duration(fitted.seconds)} in all, without this page."),
        ],
        "Quality and cost": [
            table(
                "cost",
                "What a query costs, in milliseconds, and what it finds on dev",
                ("candidate", "ms", decides),
                costs,
            )
        ],
    }
    if reasons:
        block = table("skipped", "What was skipped, and why", ("part", "why"), reasons)
        blocks["What was skipped"] = [block]
    account = Section("The run", tuple(Subsection(head, tuple(parts)) for head, parts in blocks.items()))
    page = page._replace(sections=(account, *page.sections))
    write_report(page, str(stages.output / "report"))


def _write_card(
    fitted: Fitted, models: Sequence[str], language: str | None, queries: Mapping[str, int], device: str
) -> None:
    """Write ``README.md``; ``models`` are those that the kept candidate began with."""

    def sizes(counts: Mapping[str, int]) -> str:
        return ", ".join(f"{count:,} {split}" for split, count in counts.items())

    times = ", ".join(f"{name} {milliseconds(cost)}" for name, cost in fitted.query_seconds.items())
    licences = [(title_of(name), licence_of(name)) for name in models]
    begun = ", ".join(f"`{name}`" + (f" (licence: {own})" if own else "") for name, own in licences)
    parts = [
        f"Measured on {sizes(fitted.queries)} queries, in percent. Kept: {fitted.kept}, {fitted.why}.",
        f"Milliseconds a query, in batches and without loading, where it was made: {times}.",
        "## Data",
        f"Queries: {sizes(queries)}.",
        "\n".join(f"- {note}" for note in fitted.notes),
        "## How it was made",
        "\n".join(f"- {stage} ({duration(seconds)})" for stage, seconds in fitted.done),
        f"{duration(fitted.seconds)} in all.",
        "## What was skipped" if fitted.skipped else "",
        "\n".join(f"- {stage.what}: {stage.why}" for stage in fitted.skipped),
        f"Begun from {begun}." if models else "",
        "## Licence\n\nThat of the base models and of the texts, whose holders decide.",
    ]
    retriever = load_retriever(fitted.output, Opening(device))
    options = CardOptions(
        base_models=tuple(name for name in models if _may_be_on_the_hub(name)),
        languages=() if language is None else (language,),
    )
    notes, name = "\n\n".join(filter(None, parts)), fitted.output.absolute().name
    card = Card(name, retriever.describe(), len(retriever.corpus), options, fitted.metrics, notes, local=True)
    with atomic_file(fitted.output / CARD) as stream:
        stream.write(card.text)


def _may_be_on_the_hub(name: str) -> bool:
    """Whether a model has the form of a hub name, and is no folder here."""
    try:
        CardOptions(base_models=(name,))
    except ConfigError:
        return False
    return not Path(name).exists()
