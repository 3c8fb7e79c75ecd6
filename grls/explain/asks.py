"""Selects the searches to explain: a query, its gold passages, and their hops."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, evidence_hint, gold_passages, read_qrels, read_queries, told_unknown
from grls.data.types import Query, Steps
from grls.errors import ConfigError, DataError, Option
from grls.explain.options import TEXT_ALONE
from grls.explain.text import Ask
from grls.io.progress import counted
from grls.retrieve.base import DecodesPassages, Retriever

log = logging.getLogger(__name__)


Hop = tuple[tuple[str, ...], tuple[str, ...]]
"""The gold passages of a hop to explain, and the evidence before them."""


def query_and_gold(
    query: str, data: str | None, split: str, named: bool, corpus: Corpus
) -> tuple[Query, list[str]]:
    """The query and its gold passages in order, of those that the corpus has; a text has no gold passages.

    The qrels of ``split`` must judge the query, unless the user names the gold passages (``named``); their
    order is then unknown.
    """
    if data is None:
        return Query(TEXT_ALONE, query), []
    known = {known.id: known for known in read_queries(data)}
    if query in known:
        qrels_file = Path(data) / "qrels" / f"{split}.tsv"
        qrels = read_qrels(qrels_file) if qrels_file.is_file() else {}
        if query in qrels:  # a passage in the evidence only is not gold here
            (row,), judged = told_unknown([known[query]], {query: qrels[query]}, [corpus], qrels_file, True)
            return row, gold_passages(row, judged)
        if named:
            return known[query], []
        files = sorted(qrels_file.parent.glob("*.tsv"))
        splits = [file.stem for file in files if file != qrels_file and query in read_qrels(file)]
        remedy = f"no split does{evidence_hint(Path(data)) or ': make qrels'}"
        remedy = f"{Option('split')} {splits[0]} does: name it" if splits else remedy
        raise DataError(
            f"{Option('split', split)} does not judge query {query!r}; {remedy}, or give "
            f"{Option('case.gold', 'ID')}.",
            qrels_file if qrels_file.is_file() else data,
        )
    file = Path(data) / "queries.jsonl" if Path(data).is_dir() else Path(data)
    if not any(character.isspace() for character in query):
        close = get_close_matches(query, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise DataError(
            f"no query has the id {query!r}{hint} The text of a query needs no {Option('data')}, or holds a "
            "space.",
            file,
        )
    log.warning("%s: no query has the id %r, so it is taken as the text of a query.", file, query)
    return Query(TEXT_ALONE, query), []


def ids_of(listed: str | None, corpus: Corpus) -> tuple[str, ...]:
    """Ids separated by commas; a single id may itself hold commas."""
    if not listed:
        return ()
    if corpus.numbers([listed])[0] is not None:
        return (listed,)
    return tuple(part.strip() for part in listed.split(",") if part.strip())


def hops_of(
    order: Sequence[str],
    gold: tuple[str, ...],
    evidence: tuple[str, ...] | None,
    hop: int | None,
    steps: Steps,
) -> list[Hop]:
    if hop is not None:
        if not 1 <= hop <= len(order) + bool(gold):
            raise ConfigError(
                f"{Option('case.hop', hop)}: the query has {counted(len(order), 'gold passage')} in order; "
                "hops count from 1."
            )
        return [(gold or (order[hop - 1],), tuple(order[: hop - 1]))]
    before = evidence or ()
    passages = gold or tuple(p for p in order if p not in before)
    if not passages:
        raise ConfigError(
            f"no gold passage is known for this query: give {Option('case.gold', 'ID')}, or a query id of "
            f"{Option('data', 'DIR')} whose qrels ({Option('split')}) or evidence name it."
        )
    if evidence is not None or steps == "single" or not order:
        return [(passages, before)]
    unknown = [p for p in passages if p not in order]
    if unknown:
        raise ConfigError(
            f"{unknown[0]!r} is not in the gold order of the query, so its hop is unknown; give "
            f"{Option('case.hop')} or {Option('case.evidence')}."
        )
    return [((p,), tuple(order[: order.index(p)])) for p in passages]


def asks_of(queries: Sequence[Query], qrels: Qrels, steps: Steps) -> list[Ask]:
    orders = ((query, gold_passages(query, qrels)) for query in queries)
    return [
        (query, *hop) for query, order in orders if order for hop in hops_of(order, (), None, None, steps)
    ]


def explainable(retriever: Retriever) -> DecodesPassages | None:
    """The retriever of single steps, if its search can be explained step by step."""
    if not isinstance(retriever, DecodesPassages):
        return None
    return None if retriever.generator.spans is not None or retriever.generator.removed else retriever
