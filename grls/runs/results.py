"""Results with the evidence text, as JSONL.

A line for every query, answered or not::

    {"query_id", "text", "score_mode",
     "hits": [{"rank", "id", "score", "title", "text"}],
     "chain": {"done", "score", "hops": [{"id", "score"}]}}

``chain`` stands where the query was answered hop by hop; its hop scores are each hop's own, while the
scores of ``hits`` are the ranking's. DONE takes no rank and is not in ``hits``. What a score means is named
by ``score_mode``: ``renormalized`` or ``full`` for a generative retriever, otherwise the retriever's name
(``bm25``); after ``, expected-f1``, passages have the logarithm of their probability and
stand by it. The module knows no metric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Passage, Query
from grls.errors import DataError
from grls.io.files import atomic_file
from grls.io.jsonl import read_jsonl
from grls.runs.trec import (
    chain_ranking,
    check_ranking,
    finite,
    read_run,
    refuse_unknown,
    without_done,
)

Part = tuple[Sequence[Query], Mapping[str, Sequence[Hit]], Mapping[str, Chain]]
"""Queries, with the rankings and the chains of some of them by query id."""


class Results(NamedTuple):
    """What was retrieved.

    Attributes:
        rankings: Query id -> hits, best first, without DONE.
        chains: Query id -> chain, for the queries answered hop by hop.
        score_mode: What the scores mean; empty where unknown (a TREC run does not say).
    """

    rankings: dict[str, list[Hit]]
    chains: dict[str, Chain]
    score_mode: str = ""


def write_results(
    path: str | Path,
    queries: Iterable[Query],
    corpus: Corpus,
    score_mode: str,
    rankings: Mapping[str, Sequence[Hit]] | None = None,
    chains: Mapping[str, Chain] | None = None,
) -> None:
    """Write JSONL with the evidence text, atomically: one line for each of ``queries``, in their order.

    Args:
        path: Destination.
        queries: What was asked.
        corpus: Where titles and texts come from.
        score_mode: What the scores mean.
        rankings: Query id -> hits, best first. A query that has only a chain is ranked by it.
        chains: Query id -> chain.

    Raises:
        DataError: A result belongs to none of ``queries``, a hit to no passage of ``corpus``, or a list
            is not one that :func:`write_run` would take (white space in ids is allowed here).
    """
    write_result_parts(path, corpus, score_mode, [(list(queries), rankings or {}, chains or {})])


def write_result_parts(path: str | Path, corpus: Corpus, score_mode: str, parts: Iterable[Part]) -> None:
    """Write what :func:`write_results` does of results that come in parts; only one is in memory at a time.

    Args:
        path: Destination.
        corpus: Where titles and texts come from.
        score_mode: What the scores mean.
        parts: Queries, their rankings and their chains.

    Raises:
        DataError: As :func:`write_results` does.
    """
    with atomic_file(path) as stream:
        for asked, rankings, chains in parts:
            for record in _result_records(asked, corpus, score_mode, dict(rankings), dict(chains)):
                stream.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")


def _result_records(
    asked: Sequence[Query],
    corpus: Corpus,
    score_mode: str,
    rankings: dict[str, Sequence[Hit]],
    chains: dict[str, Chain],
) -> Iterator[dict[str, Any]]:
    refuse_unknown(rankings.keys() | chains.keys(), {q.id for q in asked}, "query", "the queries given")
    ranked = {i: without_done(hits) for i, hits in rankings.items()}
    ranked |= {i: chain_ranking(chain) for i, chain in chains.items() if i not in ranked}
    passages = find_passages(corpus, (hit.id for hits in ranked.values() for hit in hits))
    for query in asked:
        hits = ranked.get(query.id, [])
        check_ranking(query.id, hits)
        record: dict[str, Any] = {"query_id": query.id, "text": query.text, "score_mode": score_mode}
        record["hits"] = [_hit_record(n, hit, passages[hit.id]) for n, hit in enumerate(hits, 1)]
        if query.id in chains:
            record["chain"] = _chain_record(query.id, chains[query.id])
        yield record


def read_results(path: str | Path) -> Results:
    """Read what :func:`write_results` wrote; texts are left out, for the corpus has them.

    Raises:
        DataError: The file is missing, a line is malformed, repeats a query, or names another score mode.
    """
    file = Path(path)
    results = Results({}, {})
    for line, record in read_jsonl(file):
        try:
            query_id, mode = _text(record, "query_id"), _text(record, "score_mode")
            hits = [_as_hit(hit) for hit in _list(record, "hits")]
            chain = _as_chain(record["chain"]) if "chain" in record else None
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"expected a result line as grls retrieve writes it: {error}.", file, line
            ) from None
        if query_id in results.rankings:
            raise DataError(f"the query id {query_id!r} is used twice.", file, line)
        if results.score_mode not in ("", mode):
            raise DataError(
                f"score mode {mode!r} after {results.score_mode!r}; one file holds one mode.", file, line
            )
        results.rankings[query_id] = without_done(hits)
        if chain is not None:
            results.chains[query_id] = chain
        results = results._replace(score_mode=mode)
    return results


def load_results(path: str | Path) -> Results:
    """Read a file of either kind: JSONL where the name ends in ``.jsonl``, else a TREC run."""
    if Path(path).suffix == ".jsonl":
        return read_results(path)
    return Results(read_run(path), {})


def find_passages(corpus: Corpus, ids: Iterable[str]) -> dict[str, Passage]:
    """Passage id -> passage, for all of ``ids``.

    Raises:
        DataError: An id is not in the corpus.
    """
    wanted = list(dict.fromkeys(ids))
    numbers = corpus.numbers(wanted) if wanted else []
    found = [number for number in numbers if number is not None]
    if len(found) < len(wanted):
        present = {i for i, number in zip(wanted, numbers, strict=True) if number is not None}
        refuse_unknown(wanted, present, "passage", corpus.source)
    return {passage.id: passage for passage in (corpus.passages(found) if found else [])}


def _hit_record(rank: int, hit: Hit, passage: Passage) -> dict[str, Any]:
    return {"rank": rank, "id": hit.id, "score": hit.score, "title": passage.title, "text": passage.text}


def _chain_record(query_id: str, chain: Chain) -> dict[str, Any]:
    if not all(math.isfinite(score) for score in (chain.score, *(hit.score for hit in chain.hits))):
        raise DataError(f"query {query_id!r}: expected finite chain scores, got {chain}.")
    return {"done": chain.done, "score": chain.score, "hops": [hit._asdict() for hit in chain.hits]}


def _as_hit(record: Any) -> Hit:
    return Hit(_text(record, "id"), _number(record, "score"))


def _as_chain(record: Any) -> Chain:
    hops = tuple(_as_hit(hit) for hit in _list(record, "hops"))
    if not isinstance(record.get("done"), bool):
        raise ValueError(f"expected 'done' to be true or false, got {record.get('done')!r}")
    return Chain(hops, _number(record, "score"), record["done"])


def _text(record: Any, key: str) -> str:
    if not isinstance(record, dict) or not isinstance(record.get(key), str) or not record[key]:
        raise ValueError(f"expected an object with a non-empty string {key!r}")
    return str(record[key])


def _number(record: Any, key: str) -> float:
    value = record.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"expected {key!r} to be a number, got {value!r}")
    return finite(float(value))


def _list(record: Any, key: str) -> Iterator[Any]:
    if not isinstance(record, dict) or not isinstance(record.get(key), list):
        raise ValueError(f"expected an object with a list {key!r}")
    return iter(record[key])
