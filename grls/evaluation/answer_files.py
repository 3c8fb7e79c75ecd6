"""Scores files of answers, a row a file, and writes the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels
from grls.data.types import Hit, Query
from grls.errors import ConfigError, DataError, Option
from grls.evaluation.answers import ENDING, KS, PremiseKind, Scores, read_answers, score_answers
from grls.evaluation.depth import WHOLE, RunDepth
from grls.models.entailment import Entailment
from grls.runs.manifest import RunInfo, read_info
from grls.runs.run import Run


def score_file(
    file: str,
    queries: list[Query],
    qrels: Qrels,
    corpus: Corpus,
    ks: tuple[int, ...] | None = None,
    judge: Entailment | None = None,
    premise: PremiseKind = "quotes",
) -> Scores:
    """Scores of one file, with its name and the seconds a query from its manifest.

    Raises:
        ConfigError: One of ``ks`` reads deeper than the passages of the answers go.
        DataError: The file is no answers file, or belongs to other queries or another corpus.
    """
    if not file.endswith(ENDING):
        raise DataError(f"expected a name that ends in {ENDING}, as `grls answer` writes.", file)
    run = file.removesuffix(ENDING)
    info = read_info(f"{run}.jsonl")
    if info is not None and info.corpus not in ("", corpus.fingerprint):
        raise DataError(
            f"these answers were retrieved from another corpus than {corpus.source}: give the "
            f"{Option('data')} that they were retrieved from, or answer again.",
            file,
        )
    answered = read_answers(file)
    depth = WHOLE
    if info is not None:
        read = {query: [Hit(passage, 0.0) for passage in one.retrieved] for query, one in answered.items()}
        depth = RunDepth.of(replace(Run.of(read, info=info), path=file), len(corpus), [])
    depth.refuse(f"hits@{k}" for k in ks or ())
    try:
        scores = score_answers(
            answered, queries, qrels, corpus, KS if ks is None else ks, judge, premise, depth
        )
    except DataError as error:
        raise DataError(error.text, file) from None
    seconds = None if info is None else info.seconds / len(answered)
    return {"file": file, "name": _name(run, info), **scores, "seconds": seconds}


def asked_by(files: list[str], limit: int | None) -> tuple[str, int | None]:
    """The queries that answers were written for, by the manifests beside them.

    Args:
        files: The answers.
        limit: Number of first queries, whatever the manifests say; None: as they say.

    Returns:
        The split, ``test`` without a manifest, and how many first queries of it; None: all.

    Raises:
        ConfigError: The answers were written for different splits or numbers of queries.
    """
    infos = [read_info(file.removesuffix(ENDING)) for file in files]
    splits = sorted({info.split for info in infos if info is not None and info.split is not None})
    if len(splits) > 1:
        raise ConfigError(f"the answers are of the splits {', '.join(splits)}; score each split by itself.")
    limits = [limit] if limit is not None else list(dict.fromkeys(info.limit for info in infos if info))
    if len(limits) > 1:
        counts = ", ".join("all queries" if n is None else f"the first {n:,}" for n in limits)
        raise ConfigError(
            f"the answers are of {counts}: give {Option('limit', 'N')}, or score each by itself."
        )
    return splits[0] if splits else "test", limits[0] if limits else None


def table(rows: list[dict[str, Any]], first: str = "answers") -> list[str]:
    """Lines of a Markdown table, a row a file; values in percent except counts, quotes and seconds."""
    novel = {"novel_f1": "novel-F1"} if any("novel_f1" in row for row in rows) else {}
    shares = {"f1": "F1", **novel, "exact_match": "EM", "autoais": "AutoAIS"}
    cutoffs = dict.fromkeys(name for row in rows for name in row if name.startswith("hits@"))
    columns = {**{name: name.capitalize() for name in cutoffs}, **shares}
    header = [first, *columns.values(), "quotes a query", "not closed", "no answer", "s a query"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for row in rows:
        lines.append([
            row["name"].replace("|", "\\|"), *(_percent(row.get(name)) for name in columns),
            f"{row['quotes']:.2f}", _percent(row["not_closed"]),
            f"{row['unanswered']:,} of {row['queries']:,}",
            "-" if row["seconds"] is None else f"{row['seconds']:.2f}",
        ])  # fmt: skip
    widths = [max(len(line[n]) for line in lines) for n in range(len(header))]
    return [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _name(run: str, info: RunInfo | None) -> str:
    return Path(run).name if info is None else info.name
