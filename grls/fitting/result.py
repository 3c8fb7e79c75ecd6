"""What a run results in: ``fit.json``, the page that compares the candidates, and the model card."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from typing import TYPE_CHECKING, NamedTuple

from grls.data.corpus import Corpus
from grls.data.inputs.splits import DEV, TEST
from grls.data.types import Hit, Query
from grls.errors import ConfigError
from grls.evaluation.measures import MEASURES, measure_names
from grls.fitting.candidates import ORDER, JudgedQueries, values_of
from grls.fitting.choose import FitChoice
from grls.fitting.models import licence_of
from grls.fitting.options import DEPTH
from grls.fitting.splits import CUT, WRITTEN, sizes_line
from grls.io.files import atomic_file, is_temporary, write_json
from grls.io.progress import aligned, counted, duration
from grls.models.load.base_models import title_of
from grls.retrieve.hub import CARD, card_text
from grls.retrieve.hub_names import CardOptions
from grls.retrieve.registry import BM25, Opening, load_retriever

if TYPE_CHECKING:
    from grls.fitting.stages import FitStages
    from grls.report.blocks import Table

_PACKAGES = ("grls", "torch", "transformers", "sentence-transformers", "lightning", "bm25s")


class Skipped(NamedTuple):
    """A stage that was not done: its name, what it would have done, and why.

    ``seconds``: those that it needs (0: unknown) if there was too little time for it.
    """

    name: str
    what: str
    why: str
    seconds: float | None = None


@dataclass(frozen=True)
class Fitted:
    """A run that has ended.

    Attributes:
        output: Its folder, which opens as the chosen candidate.
        kept: The name of the chosen candidate.
        why: The reason.
        queries: Split (or what dev queries are, where none are labelled) -> number of queries compared.
        metrics: Candidate -> measure, with its split before it (``test R@5``) -> mean, a share of 1.
        seconds: Seconds of the whole run.
        notes: What people should know of the data.
        query_seconds: Candidate -> seconds that ranking a query took, in batches and without loading.
        done: What each stage did, with its seconds.
        skipped: The stages that were not done.
        more: What would help next; empty: nothing that is known.
        links: The candidates whose hops follow links.
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
    more: str = ""
    links: Sequence[str] = ()

    @property
    def gain(self) -> str:
        """The chosen candidate compared with BM25, in a sentence; empty: it is BM25, or no labelled question
        tells.
        """
        words, kept = self.metrics.get(BM25, {}), self.metrics[self.kept]
        heads = [head for head in kept if head in words and not head.startswith((CUT, WRITTEN))]
        if self.kept == BM25 or not heads:
            return ""
        head = next((head for head in heads if head.startswith(TEST)), heads[0])
        points = 100 * (kept[head] - words[head])
        beside = "below" if points < 0 else "above"
        queries = counted(self.queries[head.split()[0]], "query")
        gain = f"{head} {100 * kept[head]:.1f} on {queries}, {abs(points):.1f} points {beside} BM25."
        split, _, _ = head.rpartition(" ")
        lost = {other: 100 * (words[other] - kept[other]) for other in heads if other.startswith(f"{split} ")}
        lower = [f"{other} by {lost[other]:.1f}" for other in lost if other != head and lost[other] >= 0.05]
        return f"{gain} Below BM25's: {', '.join(lower)}." if lower else gain

    @property
    def closing(self) -> str:
        """What was kept and why, its gain, what was left out, and what would help next."""
        left = ", ".join(stage.name for stage in self.skipped if stage.why.startswith("left out"))
        left = left and f"Left out: {left}."
        return " ".join(filter(None, (f"{self.kept}, {self.why}.", self.gain, left, self.more)))

    @property
    def report(self) -> Path:
        return self.output / "report.html"

    def text(self) -> str:
        heads = list(dict.fromkeys(name for measures in self.metrics.values() for name in measures))
        split, _, _ = heads[-1].rpartition(" ")  # of the others, the table that fills has told
        heads = [head for head in heads if head == heads[0] or head.startswith(f"{split} ")]
        rows = [["", *heads, "ms a query", "links"]]
        for name, measures in self.metrics.items():
            values = [measures.get(head) for head in heads]
            cells = ["-" if value is None else f"{100 * value:.1f}" for value in values]
            mark = "* " if name == self.kept else "  "
            links = "yes" if name in self.links else "no"
            rows.append([mark + name, *cells, milliseconds(self.query_seconds[name]), links])
        return "\n".join(
            (f"queries: {sizes_line(self.queries)}", *aligned(rows, {0}), f"kept: {self.closing}")
        )


def milliseconds(seconds: float) -> str:
    """With one decimal below ten milliseconds."""
    return f"{1000 * seconds:,.1f}" if seconds < 0.00995 else f"{1000 * seconds:,.0f}"


def write_outcome(
    stages: FitStages,
    choice: FitChoice,
    gold: JudgedQueries,
    names: Sequence[str],
    done: Sequence[tuple[str, float]],
    skipped: Sequence[Skipped],
    more: str,
    seconds: float,
) -> Fitted:
    """Write ``report.html``, ``fit.json`` and ``README.md``.

    ``names`` are the candidates that have ranked the queries ``gold`` of the report, ``seconds`` those of the
    whole run.
    """
    candidates, options, data = stages.candidates, stages.options, stages.data
    dev = data.pseudo.get(DEV, DEV)
    golds = {dev: candidates.portions[: min(system.portions for system in candidates.systems.values())]}
    golds |= {TEST: [gold]} if TEST in data.qrels else {}
    measures = (options.decides, f"R@{options.k}", "R@1", f"R@{DEPTH}", ORDER, "RR")
    metrics: dict[str, dict[str, float]] = {}
    for name in candidates.systems:
        metrics[name] = {}
        for split in (split for split in golds if split == dev or name in names):
            values = values_of(golds[split], measures, candidates.rankings(name, golds[split]))
            metrics[name] |= {f"{split} {measure}": round(fmean(values[measure]), 4) for measure in values}
    compared = {split: sum(len(part.queries) for part in parts) for split, parts in golds.items()}
    costs = {name: round(system.cost, 6) for name, system in candidates.systems.items()}
    fitted = Fitted(
        stages.output, choice.chosen.name, choice.why, compared, metrics, round(seconds, 1), data.notes,
        costs, done, skipped, more, [name for name, system in candidates.systems.items() if system.links],
    )  # fmt: skip
    system = candidates.systems[fitted.kept]
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    content = {
        "kept": fitted.kept,
        "why": fitted.why,
        "best_on_dev": None if data.unlabelled else choice.best.name,
        "measure": options.decides,
        "retriever": f"members/{system.folder}",
        "weights": {name: system.weights for name, system in candidates.systems.items() if system.weights},
        "metrics": metrics,
        "query_seconds": costs,
        "links": fitted.links,
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint,
            "queries": data.counts(),
            "compared": compared,
            "notes": data.notes,
            "pseudo": data.pseudo,
        },
        "base_models": system.models,
        "language": data.language,
        "options": asdict(options),
        "account": {
            "done": [{"stage": what, "seconds": took} for what, took in done],
            "skipped": [stage._asdict() for stage in skipped],
        },
        "seconds": fitted.seconds,
        "versions": versions,
    }
    write_json(stages.output / "fit.json", content)
    account = _account(fitted, stages)
    _write_page(fitted, stages, gold, names, account)
    _write_card(fitted, stages, system.models, account)
    return fitted


def _account(fitted: Fitted, stages: FitStages) -> dict[str, list[str]]:
    """What page and card say of the run, by their headings."""
    asked = sizes_line(fitted.queries) + ("" if {CUT, WRITTEN}.issuperset(fitted.queries) else " queries")
    times = ", ".join(f"{name} {milliseconds(cost)}" for name, cost in fitted.query_seconds.items())
    counts = sizes_line(stages.data.counts(), stages.data.pseudo)
    account = {
        "Quality and cost": [
            f"Kept: {fitted.closing}",
            *([] if fitted.queries.keys() == {CUT} else [f"Measured on {asked}, in percent."]),
            f"Milliseconds a query, in batches and without loading, where it was made: {times}.",
        ],
        "Data": [f"Queries: {counts}.", *fitted.notes],
        "What was done": [f"{stage} ({duration(seconds)})" for stage, seconds in fitted.done],
        "What was skipped": [f"{stage.what}: {stage.why}" for stage in fitted.skipped],
    }
    account["What was done"].append(f"{duration(fitted.seconds)} in all, without page and card.")
    return {heading: lines for heading, lines in account.items() if lines}


def _write_page(
    fitted: Fitted,
    stages: FitStages,
    gold: JudgedQueries,
    names: Sequence[str],
    account: Mapping[str, Sequence[str]],
) -> None:
    """The page of experiments over the systems, whose significance is against the chosen one."""
    from grls.evaluation.significance import compare
    from grls.report.blocks import Block, KeyFigures, Section, Subsection, Text
    from grls.report.page import answer_blocks, build_page, write_report
    from grls.report.runs import load_groups

    candidates, options, data = stages.candidates, stages.options, stages.data
    ks = sorted({1, options.k, 10, DEPTH})
    files = [str(candidates.run_file(gold.split, candidates.systems[name].folder)) for name in names]
    kind = "test query" if TEST in fitted.queries else data.dev_kind
    groups = load_groups(files, candidates.place, ks=ks, measures=measure_names(MEASURES))
    name, split = Path(data.name).absolute().name, counted(len(gold.queries), kind)
    page = build_page(
        [replace(group, name=name, split=split) for group in groups], options.k,
        fitted.kept if fitted.kept in names else None, seed=options.seed, folder=stages.output,
        title=f"grls fit: {counted(len(names), 'candidate')} over {counted(len(data.corpus), 'passage')}",
    )  # fmt: skip
    (group,) = groups
    scores = {run.label: values for run in group.runs if (values := group.values(run, options.decides))}
    answer: list[Block] = []
    if (kept := scores.get(fitted.kept)) is not None:
        points = {name: (fitted.query_seconds[name], fmean(values)) for name, values in scores.items()}
        beside = None
        if fitted.kept != BM25 and BM25 in scores:
            beside = "BM25", compare(kept, scores[BM25], seed=options.seed)
        role = f"chosen of {counted(len(names), 'candidate')}"
        if fitted.queries.keys() == {CUT}:  # on which BM25 wins: figures would mislead
            answer.append(KeyFigures(((fitted.kept, fitted.why),)))
            told = "Parts of sentences stood in for questions. Scores on them say nothing of questions."
            page = page._replace(summary=told, sections=page.sections[-1:])
        else:
            answer += answer_blocks(points, fitted.kept, role, options.decides, split, beside)
            ranked = candidates.rankings(fitted.kept, [gold])
            answer.append(_examples(gold, ranked, data.corpus, options.k, split))
    answer += [Text(fitted.more)] if fitted.more else []
    parts = [Subsection(heading, tuple(map(Text, lines))) for heading, lines in account.items()]
    page = page._replace(sections=(Section("The run", tuple(parts)), *page.sections), answer=tuple(answer))
    write_report(page, str(stages.output / "report"))


def _examples(
    gold: JudgedQueries, rankings: Sequence[Sequence[Hit]], corpus: Corpus, k: int, split: str
) -> Table:
    """Three queries and their first k hits: where there are such, with all gold passages, some, and none."""
    from grls.report.blocks import Cell, Table

    kinds: dict[int, list[tuple[Query, list[str], list[str]]]] = {0: [], 1: [], 2: []}
    for query, hits in zip(gold.queries, rankings, strict=True):
        ids = [hit.id for hit in hits[:k]]
        right = [passage for passage, grade in gold.qrels[query.id].items() if grade > 0]
        kind = 0 if {*right} <= {*ids} else 2 if {*right}.isdisjoint(ids) else 1
        kinds[kind].append((query, ids, right))
    examples = [one for alike in zip_longest(*kinds.values()) for one in alike if one is not None][:3]

    def said(ids: Sequence[tuple[str, str]]) -> Cell:
        numbers = corpus.numbers([i for _, i in ids])
        found = [(mark, corpus[n]) for (mark, _), n in zip(ids, numbers, strict=True) if n is not None]
        return Cell(" · ".join(m + shorten(p.titled, 60, placeholder=" …") for m, p in found) or "none")

    rows = []
    for query, ids, right in examples:
        ranked = [(f"{n}. ", i) for n, i in enumerate(ids, 1)]
        found, other = [r for r in ranked if r[1] in right], [r for r in ranked if r[1] not in right]
        missed = [("", i) for i in right if i not in ids]
        rows.append((Cell(query.text), said(found), said(missed), said(other[:2])))
    heads = (f"of {split}", "found, by rank", "missed", "ranked beside them")
    return Table("examples", f"Examples: what is found among the first {k}", heads, 1, tuple(rows))


def _write_card(
    fitted: Fitted, stages: FitStages, models: Sequence[str], account: Mapping[str, Sequence[str]]
) -> None:
    """``models`` are those that the chosen candidate began with."""
    parts = [
        "\n\n".join((f"## {heading}", "\n".join(f"- {line}" for line in lines)))
        for heading, lines in account.items()
    ]
    licences = [(title_of(name), licence_of(name)) for name in models]
    begun = ", ".join(f"`{name}`" + (f" (licence: {own})" if own else "") for name, own in licences)
    parts += [f"Begun from {begun}."] if models else []
    parts.append("## Licence\n\nThat of the base models and of the texts, whose holders decide.")
    hub_names = list[str]()
    for name in (name for name in models if not Path(name).exists()):
        with suppress(ConfigError):  # it has not the form of a hub name
            hub_names += CardOptions(base_models=(name,)).base_models
    languages = () if stages.data.language is None else (stages.data.language,)
    options = CardOptions(base_models=tuple(hub_names), languages=languages)
    retriever = load_retriever(fitted.output, Opening(stages.options.device))
    name = "retriever" if is_temporary(fitted.output) else fitted.output.absolute().name
    text = card_text(name, retriever, options, fitted.metrics, "\n\n".join(parts), local=True)
    with atomic_file(fitted.output / CARD) as stream:
        stream.write(text)
