"""An explanation in words: the sentence that says why, and the report for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple

from grls.data.types import Query
from grls.errors import Option
from grls.explain.beams import BeamTrace
from grls.explain.explain import LOST, MEANING, VERDICTS, Explainer, Explanation, PathRow
from grls.explain.options import TEXT_ALONE
from grls.io.progress import Progress, aligned, counted, visible
from grls.retrieve.hops.stop import StopRule

HEADER = ("step", "token", "log p", "prefix", "allowed", "rank", "best", "bar", "margin", "fate", "preferred")


def number(value: float | None, signed: bool = False) -> str:
    """A dash for None."""
    return "–" if value is None else f"{value:+.2f}" if signed else f"{value:.2f}"


def why(e: Explanation) -> str:
    notes = [_reason(e)]
    if e.done is not None and e.verdict != "done first":
        rank = f"rank {e.done.rank}" if e.done.rank else "not among the results"
        notes.append(f"DONE scores {number(e.done.score)} ({rank}).")
    if e.twins and e.verdict not in ("duplicate", "excluded"):
        notes.append(f"It has the same tokens as {', '.join(e.twins)}.")
    if e.cut_tokens:
        notes.append(
            f"The length limit cut {counted(e.cut_tokens, 'token')} at its end: no search finds those."
        )
    return " ".join(notes)


def _reason(e: Explanation) -> str:
    if e.verdict == "found":
        return f"Found at rank {e.rank} with score {number(e.score)}."
    if e.verdict == "duplicate":
        ids = ", ".join(r.id for r in e.results if r.id in e.twins)
        return f"Its tokens equal those of {ids}, which was found (score {number(e.score)})."
    if e.verdict == "excluded":
        if e.gold in e.evidence:
            return "It is among the evidence of this hop, and a passage is not retrieved twice."
        if e.gold == "DONE":
            return "DONE may not be written at this hop."
        return f"Evidence of this hop has the same tokens ({', '.join(set(e.evidence) & set(e.twins))})."
    if e.verdict == "done first":
        assert e.done is not None
        rank = f"It stands at rank {e.rank}, but" if e.rank else "It is not among the results, and"
        return (
            f"{rank} DONE scores {number(e.done.score)} against its {number(e.score)}: the chain that ends "
            "here beats every chain through this passage."
        )
    if e.verdict == "pruned":
        beam, widest = e.judgement.sufficient, e.judgement.widest
        wider = f"A beam of {beam} finds it." if beam else f"No beam up to {widest} finds it."
        return f"{_compared(e)} {_left(e)} {wider}"
    if e.verdict == "early stop":
        return (
            f"Its whole score is {number(e.complete)}, the worst passage returned has "
            f"{number(min(r.complete for r in e.results))}; but the search compared scores up to the unique "
            f"prefix ({number(e.score)}). {_left(e)} Use {Option('search.early_stop', False)!s}, or "
            "renormalized scores."
        )
    if e.left is not None and e.left.fate == "pruned" and e.judgement.widest > e.beams:
        better = counted(e.k, "passage that scores higher", "passages that score higher")
        truth = f"a beam of {e.judgement.widest} returns {better}"
        return f"{_compared(e)} {_left(e)} But no wider beam would help: {truth}."
    above = sum(r.above for r in e.results)
    ids = ", ".join(r.id for r in e.results[:3])
    more = f" and {above - 3} more" if above > 3 else ""
    return (
        f"Its exact score is {number(e.score)}; {above} of the {counted(len(e.results), 'passage')} returned "
        f"score at least as high (first {ids}{more}): no search would put it among {e.k}. {_left(e)}"
    )


def search(e: Explanation) -> str:
    stop = ", early stop" if e.early_stop else ""
    bias = f", {e.stop}" if e.stop.bias else ""
    ahead = " with priors" if e.priors else ""
    return f"{counted(e.beams, 'beam')}, k {e.k}, {e.mode} scores{ahead}{stop}{bias}"


def cells(row: PathRow) -> tuple[str, ...]:
    """Columns are those of :data:`HEADER`."""
    gone = row.fate is None
    rank = "–" if row.rank is None else f"({row.rank})" if gone else str(row.rank)
    preferred = ", ".join(f"{p.text} {p.log_probability:.2f}" for p in row.preferred)
    return (
        str(row.step), row.token, number(row.log_probability), number(row.score), str(row.allowed), rank,
        number(row.best), number(row.bar), number(row.margin, signed=True), row.fate or "gone", preferred,
    )  # fmt: skip


def explanation_parts(e: Explanation) -> list[Part]:
    facts = facts_part(
        ("query", query_line(e.query)),
        ("passage", with_id(e.gold, e.gold_text)),
        ("hop", str(e.hop) + (f", after {', '.join(e.evidence)}" if e.evidence else "")),
        ("search", search(e)),
    )
    verdict = text_part(f"{e.verdict.upper()}: {MEANING[e.verdict]}", why(e))
    parts = [facts, verdict._replace(marked=(0,))]
    if e.path:
        left = tuple(n for n, row in enumerate(e.path, start=1) if row.fate in LOST)
        rows = (HEADER, *(cells(row) for row in e.path))
        parts.append(Part("table", rows, (1, 9, 10), left))
        if rest := e.tokens - len(e.path):
            tokens = counted(rest, "further token is", "further tokens are")
            parts.append(text_part(f"{tokens} not decoded: one passage is left"))
    if not e.results:
        return [*parts, text_part("the search returned nothing")]
    return [*parts, hits_part(e.results, number, e.gold)]


def _compared(e: Explanation) -> str:
    if len(e.results) < e.k:
        returned = f"{len(e.results)} of {counted(e.k, 'passage')}"
        return f"Its score is {number(e.score)}, and the search returned {returned}."
    last = e.results[-1].score
    return f"Its score is {number(e.score)}, above the {number(last)} of the last passage returned."


def _left(e: Explanation) -> str:
    row = e.left
    if row is None:
        return "It was finished, and better passages took its place."
    step = f"It left the beam at step {row.step}, token {row.token!r} of {row.allowed} allowed:"
    if row.fate == "beaten":
        better = f"{counted(e.taken, 'finished passage')} had at least {number(row.bar)} already"
        return f"{step} its prefix scored {number(row.score)}, and {better}."
    margin = 0.0 if row.margin is None else -row.margin
    return (
        f"{step} rank {row.rank} for {counted(e.beams, 'beam')}, {margin:.2f} nats below the last one kept."
    )


def explanation_record(e: Explanation) -> dict[str, Any]:
    """All facts, for JSON."""
    fields = plain_facts(e)
    fields["query"].pop("metadata")
    return fields | {"verdict": e.verdict, "why": why(e), "hop": e.hop, "left": plain_values(e.left)}


class Part(NamedTuple):
    """A part of a report: a terminal prints it, a page lays it out.

    Attributes:
        kind: ``facts``: rows of a name and a value; ``text``: rows of sentences; ``table``: rows of cells,
            the header first.
        left: Of a table, the columns that are aligned left.
        marked: The rows that stand out on a page.
    """

    kind: Literal["facts", "text", "table"]
    rows: tuple[tuple[str, ...], ...]
    left: Collection[int] = ()
    marked: tuple[int, ...] = ()


def facts_part(*rows: tuple[str, str]) -> Part:
    return Part("facts", rows)


def text_part(*lines: str) -> Part:
    return Part("text", tuple((line,) for line in lines))


def hits_part(hits: Sequence[Any], figure: Callable[[float], str], gold: str = "") -> Part:
    """The table of passages with ``rank``, ``id``, ``score`` and ``text``; that of ``gold`` stands out."""
    rows = [(str(hit.rank), hit.id, figure(hit.score), shortened(hit.text, 70)) for hit in hits]
    found = tuple(n for n, hit in enumerate(hits, start=1) if hit.id == gold)
    return Part("table", (("rank", "id", "score", "passage"), *rows), (1, 3), found)


def parts_text(parts: Sequence[Part]) -> str:
    texts = []
    for part in parts:
        if part.kind == "table":
            lines = aligned(part.rows, part.left)
        elif part.kind == "facts":
            lines = [visible(f"{name:<8} {value}") for name, value in part.rows]
        else:
            lines = [visible(row[0]) for row in part.rows]
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def with_id(name: str, text: str) -> str:
    """A text after its id, unless it begins with it (a passage whose title is its id; DONE)."""
    return text if text == name or text.startswith(f"{name}: ") else f"{name}: {text}"


def query_line(query: Query) -> str:
    """A query without an id is its text."""
    return query.text if query.id == TEXT_ALONE else with_id(query.id, query.text)


def plain_values(value: Any) -> Any:
    """Facts for JSON: objects for named tuples, null for a score that is infinite."""
    if hasattr(value, "_asdict"):
        return {name: plain_values(item) for name, item in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_facts(facts: BeamTrace | Explanation | Summary) -> dict[str, Any]:
    """All facts, for JSON: the stop rule by its options."""
    fields: dict[str, Any] = plain_values(facts)
    fields |= fields.pop("stop").options
    return fields


Ask = tuple[Query, Sequence[str], Sequence[str]]
"""A query, gold passages of one hop, and the evidence before it."""

_FOUND = ("found", "duplicate")


class Summary(NamedTuple):
    """The verdicts of many gold passages: the misses that the beam and the model cause, and their steps.

    Attributes:
        verdicts: Verdict -> number of gold passages.
        left: Step (from 1) at which the prefix left the beam -> number of missed passages.
        sufficient: Narrowest beam tried that finds the passage -> number of pruned passages; key ``more`` for
            passages that no beam found.
    """

    queries: int
    beams: int
    k: int
    stop: StopRule
    verdicts: dict[str, int]
    left: dict[int, int]
    sufficient: dict[str, int]


def summarise(explainer: Explainer, asks: Sequence[Ask]) -> Summary:
    verdicts: Counter[str] = Counter()
    left: Counter[int] = Counter()
    sufficient: Counter[float] = Counter()
    with Progress(len(asks), "explain", "hops") as bar:
        for ask in asks:
            for judgement, step in explainer.judge(*ask):
                verdicts[judgement.verdict] += 1
                if step is not None:
                    left[step] += 1
                if judgement.verdict == "pruned":
                    sufficient[judgement.sufficient or math.inf] += 1
            bar.update()
    return Summary(
        len({query.id for query, _, _ in asks}),
        explainer.generator.decoder(explainer.k).beams,
        explainer.k,
        explainer.stop,
        {v: verdicts[v] for v in VERDICTS},
        dict(sorted(left.items())),
        {"more" if width == math.inf else str(width): sufficient[width] for width in sorted(sufficient)},
    )


def format_summary(s: Summary) -> str:
    total = sum(s.verdicts.values())
    missed = total - sum(s.verdicts[v] for v in _FOUND)
    bias = f", {s.stop}" if s.stop.bias else ""
    lines = [
        f"{counted(s.queries, 'query')}, {counted(total, 'gold passage')}; {counted(s.beams, 'beam')}, k "
        f"{s.k}{bias}; {missed:,} missed",
        "",
    ]
    for verdict in VERDICTS:
        count = s.verdicts[verdict]
        if count:
            share = "" if verdict in _FOUND else f" ({100 * count / missed:.1f}% of the misses)"
            lines.append(f"{verdict:<13}{count:>7,}{100 * count / total:7.1f}%   {MEANING[verdict]}{share}")
    if s.sufficient:
        wider = ", ".join(f"{width}: {count:,}" for width, count in s.sufficient.items())
        lines += ["", f"narrowest beam tried that finds the pruned passages: {wider}"]
    if s.left:
        steps = ", ".join(f"{step}: {count:,}" for step, count in s.left.items())
        lines += ["", f"missed passages by the step at which they left the beam: {steps}"]
    return "\n".join(lines)
