"""What a run came to: ``fit.json``, the page that compares the candidates, and the model card."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from grls.errors import ConfigError, DataError
from grls.evaluation.measures import MEASURES, measure_names
from grls.explain.parts import aligned
from grls.fitting.candidates import ORDER, JudgedQueries, values_of
from grls.fitting.choose import Choice
from grls.fitting.models import licence_of
from grls.fitting.options import DEPTH
from grls.fitting.search import Skipped
from grls.fitting.splits import DEV, TEST, DividedData, SourceData
from grls.io.counts import counted
from grls.io.files import atomic_file, read_json, write_json
from grls.io.progress import duration
from grls.models.load.base_models import title_of
from grls.retrieve.card import CARD, Card, CardOptions
from grls.retrieve.registry import Opening, load_retriever

if TYPE_CHECKING:
    from grls.fitting.stages import FitStages

RESULT = "fit.json"
FORMAT = 2

_PACKAGES = ("grls", "torch", "transformers", "sentence-transformers", "lightning", "bm25s")


class DoneStage(NamedTuple):
    """A stage that was done: its name, what it did, and its seconds."""

    name: str
    what: str
    seconds: float


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
    """

    output: Path
    kept: str
    why: str
    queries: Mapping[str, int]
    metrics: Mapping[str, Mapping[str, float]]
    seconds: float
    notes: tuple[str, ...] = ()
    query_seconds: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, output: str | Path) -> Fitted:
        """Read ``fit.json`` of a run that has ended.

        Raises:
            DataError: There is none.
        """
        file = Path(output) / RESULT
        found = read_json(file)
        try:
            data = found["data"]
            fitted = cls(
                Path(output), found["kept"], found["why"], data["compared"], found["metrics"],
                found["seconds"], tuple(data["notes"]), found["query_seconds"],
            )  # fmt: skip
            fitted.text()
            return fitted
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise DataError(f"expected the result of a run ({error}); fit again.", file) from None

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
            rows.append([mark + name, *cells, milliseconds(self.query_seconds.get(name))])
        return "\n".join([f"queries: {sizes}", *aligned(rows, {0}), f"kept: {self.kept}, {self.why}"])


def milliseconds(seconds: float | None) -> str:
    """A time of a query, for people; with a tenth below ten milliseconds."""
    if seconds is None:
        return "-"
    return f"{1000 * seconds:,.1f}" if seconds < 0.00995 else f"{1000 * seconds:,.0f}"


def write_outcome(
    stages: FitStages,
    source: SourceData,
    divided: DividedData,
    choice: Choice,
    done: Sequence[DoneStage],
    skipped: Sequence[Skipped],
    seconds: float,
) -> Fitted:
    """Write ``fit.json``, ``report.html`` and ``README.md``; ``seconds`` are those of the whole run."""
    candidates, options = stages.candidates, stages.options
    gold, names = candidates.reported()
    dev = candidates.portions[: min(one.portions for one in candidates.systems.values())]
    metrics: dict[str, dict[str, float]] = {}
    for name in candidates.systems:
        golds = {DEV: dev} | ({TEST: [gold]} if candidates.tested and name in names else {})
        metrics[name] = {
            f"{split} {measure}": round(value, 4)
            for split, parts in golds.items()
            for measure, value in _measures(
                parts, candidates.rankings(name, parts), options.k, options.decides
            )
        }
    compared = {DEV: sum(len(part.queries) for part in dev)}
    compared |= {TEST: len(gold.queries)} if candidates.tested else {}
    kept = candidates.systems[choice.kept.name]
    account = {
        "done": [[one.what + (f", {stages.notes[one.name]}" if one.name in stages.notes else ""),
                  round(one.seconds, 1)] for one in done],
        "skipped": [asdict(one) for one in skipped],
    }  # fmt: skip
    content = {
        "kept": choice.kept.name,
        "why": choice.why,
        "best_on_dev": choice.best.name,
        "measure": options.decides,
        "retriever": f"members/{kept.folder}",
        "weights": {name: list(one.weights) for name, one in candidates.systems.items() if one.weights},
        "metrics": metrics,
        "query_seconds": {name: round(one.cost, 6) for name, one in candidates.systems.items()},
        "data": {
            "name": source.name,
            "fingerprint": source.fingerprint(),
            "queries": divided.counts(),
            "compared": compared,
            "notes": list(divided.notes),
            "pseudo": list(divided.pseudo),
        },
        "base_models": list(kept.models),
        "language": stages.facts.language,
        "options": asdict(options),
        "account": account,
        "seconds": round(seconds, 1),
        "versions": _versions(),
    }
    _write_page(stages, gold, names, content)
    write_json(stages.output / RESULT, {"format": FORMAT, **content})
    fitted = Fitted.read(stages.output)
    _write_card(fitted, content, options.device)
    return fitted


def _measures(golds: Sequence[JudgedQueries], rankings: Any, k: int, decides: str) -> list[tuple[str, float]]:
    """The measures of the table, with their means."""
    ids = [[hit.id for hit in hits] for hits in rankings]
    names = dict.fromkeys((decides, f"R@{k}", f"R@{DEPTH}", ORDER, "RR"))
    return [(name, fmean(values_of(golds, name, ids))) for name in names]


def _versions() -> dict[str, str]:
    """The versions of what a run depends on."""
    known = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def _write_page(
    stages: FitStages, gold: JudgedQueries, names: Sequence[str], content: Mapping[str, Any]
) -> None:
    """Write the page that compares the candidates, with significance against the kept one."""
    from grls.report.blocks import NONE, Cell, Section, Subsection, Table, Text
    from grls.report.measure import score_runs
    from grls.report.page import build_page
    from grls.report.render import write_report
    from grls.report.runs import load_groups

    candidates, options = stages.candidates, stages.options
    ks = sorted({1, options.k, 10, DEPTH})
    files = [f"{candidates.run_file(gold.split, candidates.systems[name].folder)}.jsonl" for name in names]
    groups = [score_runs(one, ks, measure_names(MEASURES)) for one in load_groups(files, candidates.data)]
    kept = content["kept"]
    title = f"grls fit: {counted(len(names), 'candidate')} over {counted(stages.facts.passages, 'passage')}"
    page = build_page(
        groups, ks, options.k, kept if kept in names else None, seed=options.seed, title=title,
        place=stages.output,
    )  # fmt: skip

    def table(
        name: str, caption: str, heads: tuple[str, ...], rows: Sequence[Sequence[str]], stubs: int = 2
    ) -> Table:
        cells = tuple(tuple(Cell(value or NONE) for value in row) for row in rows)
        return Table(name, caption, (), heads, stubs, cells)

    done = [(what, duration(took)) for what, took in content["account"]["done"]]
    parts = [
        Subsection("What was kept", (Text(f"{kept}, {content['why']}."),)),
        Subsection(
            "What was done",
            (
                table("times", "The stages, and the time of each", ("stage", "time"), done),
                Text(f"{duration(content['seconds'])} in all, without this page."),
            ),
        ),
    ]
    costs = sorted(content["query_seconds"].items(), key=lambda pair: pair[1])
    rows = [
        (name, milliseconds(cost), f"{100 * content['metrics'][name][f'dev {options.decides}']:.1f}")
        for name, cost in costs
    ]
    caption = "What a query costs, in milliseconds, and what it finds on dev"
    parts.append(
        Subsection(
            "Quality and cost", (table("cost", caption, ("candidate", "ms", f"dev {options.decides}"), rows),)
        )
    )
    if content["account"]["skipped"]:
        reasons = [(one["what"], one["why"]) for one in content["account"]["skipped"]]
        block = table("skipped", "What was skipped, and why", ("part", "why"), reasons, 1)
        parts.append(Subsection("What was skipped", (block,)))
    page = page._replace(sections=(Section("The run", tuple(parts)), *page.sections))
    write_report(page, str(stages.output / "report"))


def _write_card(fitted: Fitted, content: Mapping[str, Any], device: str) -> None:
    """Write ``README.md``."""
    retriever = load_retriever(fitted.output, Opening(device))
    models, language, data = content["base_models"], content["language"], content["data"]
    options = CardOptions(
        base_models=tuple(name for name in models if _may_be_on_the_hub(name)),
        languages=() if language is None else (language,),
    )
    sizes = ", ".join(f"{count:,} {split}" for split, count in fitted.queries.items())
    times = ", ".join(f"{name} {milliseconds(took)}" for name, took in fitted.query_seconds.items())
    queries = ", ".join(f"{count:,} {split}" for split, count in data["queries"].items())
    account = content["account"]
    lines = [
        f"Measured on {sizes} queries, in percent. Kept: {fitted.kept}, {fitted.why}.",
        f"Milliseconds a query, in batches and without loading, where it was made: {times}.",
        "## Data",
        f"Queries: {queries}.",
        *(["\n".join(f"- {note}" for note in data["notes"])] if data["notes"] else []),
        "## How it was made",
        "\n".join(f"- {what} ({duration(took)})" for what, took in account["done"]),
        f"{duration(content['seconds'])} in all.",
    ]
    if account["skipped"]:
        lines += ["## What was skipped"]
        lines += ["\n".join(f"- {one['what']}: {one['why']}" for one in account["skipped"])]
    if models:
        begun = [
            f"`{title_of(name)}`" + ("" if (own := licence_of(name)) is None else f" (licence: {own})")
            for name in models
        ]
        lines.append("Begun from " + ", ".join(begun) + ".")
    lines.append("## Licence\n\nThat of the base models and of the texts, whose holders decide.")
    notes, name = "\n\n".join(lines), fitted.output.absolute().name
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
