"""Rankings, and TREC run files.

A TREC run (``query Q0 passage rank score tag``) is what trec_eval, ir_measures and ranx read. They ignore
the rank column, sort by score in single precision and break ties by id, so the scores written here fall
strictly within a query, and the list keeps its order in every tool. DONE is no passage: it takes no rank
and stands in no run. The module knows no metric and no text.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from grls.data.codec import DONE_ID
from grls.data.dataset import Qrels
from grls.data.types import Chain, Hit
from grls.errors import DataError
from grls.io.files import atomic_file, text_lines
from grls.io.progress import counted

log = logging.getLogger(__name__)

_MIN_STEP = 1e-6  # what a tied score is lowered by, unless single precision needs more


class Coverage(NamedTuple):
    """How a run and the qrels meet.

    Attributes:
        judged: Queries of the qrels.
        unanswered: Judged queries for which the run has no hit; they score 0.
        unjudged: Queries of the run that the qrels do not judge; they are ignored.
    """

    judged: int
    unanswered: int
    unjudged: int


def without_done(hits: Iterable[Hit]) -> list[Hit]:
    """The hits that are passages."""
    return [hit for hit in hits if hit.id != DONE_ID]


def chain_ranking(chain: Chain) -> list[Hit]:
    """A chain as a ranked list: the passages in hop order, DONE left out, each passage once.

    The score of a passage is the sum of the hop scores up to it (the log-probability of the chain so
    far), made strictly falling: a hop of probability one would repeat the score before it, and hop
    scores that are no log-probabilities (BM25) would rise, so such a score is lowered to just below the
    one before.
    """
    sums: dict[str, float] = {}
    total = 0.0
    for hit in chain.hits:
        total += hit.score
        if hit.id != DONE_ID:
            sums.setdefault(hit.id, total)
    return [Hit(*pair) for pair in zip(sums, falling(list(sums.values())), strict=True)]


def write_run(
    path: str | Path, rankings: Mapping[str, Sequence[Hit]] | Iterable[tuple[str, Sequence[Hit]]]
) -> None:
    """Write a TREC run, atomically. A query without a hit has no line.

    A score that does not fall below the one before it in single precision is lowered to do so (by 1e-6
    or one unit in the last place); lists, not scores, decide the order.

    Args:
        path: Destination.
        rankings: Query id -> hits, best first (for chains see :func:`chain_ranking`); or such pairs.
    """
    pairs = rankings.items() if isinstance(rankings, Mapping) else rankings
    with atomic_file(path) as stream:
        for query_id, hits in pairs:
            passages = without_done(hits)
            check_ranking(query_id, passages)
            _refuse_white_space(query_id, "query id")
            scores = falling([hit.score for hit in passages])
            for rank, (hit, score) in enumerate(zip(passages, scores, strict=True), 1):
                _refuse_white_space(hit.id, "passage id")
                stream.write(f"{query_id} Q0 {hit.id} {rank} {score:.9g} grls\n")


def read_run(path: str | Path) -> dict[str, list[Hit]]:
    """Read a TREC run, ours or another tool's.

    Hits are ordered as trec_eval orders them, whatever the rank column says: by score in single
    precision, ties by id, both descending.
    """
    file = Path(path)
    if not file.is_file():
        beside = file.with_name(f"{file.name}.jsonl")
        hint = "expected a TREC run (query Q0 passage rank score tag)."
        raise DataError(f"no such file; {f'did you mean {beside}?' if beside.is_file() else hint}", file)
    scores: dict[str, dict[str, float]] = {}
    for line, text in text_lines(file):
        if text.strip():
            try:
                query_id, _, passage_id, _, column, _ = text.split()
                score = finite(float(column))
            except ValueError:
                raise DataError(
                    "expected six columns, query Q0 passage rank score tag, the score a finite number, "
                    f"got {text.rstrip()!r}.",
                    file,
                    line,
                ) from None
            hits = scores.setdefault(query_id, {})
            if passage_id in hits:
                raise DataError(f"passage {passage_id!r} is listed twice for query {query_id!r}.", file, line)
            hits[passage_id] = score
    return {query_id: trec_order(hits) for query_id, hits in scores.items()}


def trec_order(scores: Mapping[str, float]) -> list[Hit]:
    """Hits as trec_eval orders them: by score in single precision, ties by id, both descending."""
    pairs = sorted(scores.items(), key=lambda pair: (_single(pair[1]), pair[0]), reverse=True)
    return [Hit(*pair) for pair in pairs]


def ids_of(hits: Iterable[Hit]) -> list[str]:
    """The ids of the hits that are passages."""
    return [hit.id for hit in hits if hit.id != DONE_ID]


def coverage_of(rankings: Mapping[str, Sequence[Hit]], qrels: Qrels, name: str = "the run") -> Coverage:
    """How a run and the qrels meet; unanswered and unjudged queries are told.

    As with trec_eval, queries that the qrels do not judge are ignored (a run over all splits can be
    scored on each), but their number is logged. As with ``trec_eval -c``, unanswered ones count.
    """
    if not qrels:
        raise DataError("the qrels judge no query; nothing can be evaluated.")
    unanswered = sum(not ids_of(rankings.get(query, ())) for query in qrels)
    coverage = Coverage(len(qrels), unanswered, len(rankings.keys() - qrels.keys()))
    if coverage.unanswered:
        log.warning("%s: %d of %d judged queries have no hit; they score 0.", name, unanswered, len(qrels))
    if coverage.unjudged:
        unjudged = counted(coverage.unjudged, "query is", "queries are")
        log.warning("%s: %s not judged by the qrels; ignored.", name, unjudged)
    return coverage


def falling(scores: Sequence[float]) -> list[float]:
    """The scores in single precision, lowered where they do not fall strictly."""
    result: list[float] = []
    for score in map(_single, scores):
        if result and not score < result[-1]:
            unit = abs(float(np.spacing(np.float32(result[-1]))))
            score = _single(result[-1] - max(_MIN_STEP, unit))
        result.append(score)
    return result


def _single(score: float) -> float:
    """The score in single precision; infinite where it is too large."""
    with np.errstate(over="ignore"):
        return float(np.float32(score))


def finite(score: float) -> float:
    """The score itself; ValueError where it is infinite or not a number."""
    if not math.isfinite(score):
        raise ValueError(f"expected a finite score, got {score}")
    return score


def check_ranking(query_id: str, hits: Sequence[Hit]) -> None:
    """Refuse (DataError) a list with a repeated passage, or a score that is not finite or rises."""
    if len({hit.id for hit in hits}) < len(hits):
        raise DataError(f"query {query_id!r} lists a passage twice; a ranked list holds each passage once.")
    for n, hit in enumerate(hits):
        if not math.isfinite(_single(hit.score)):
            raise DataError(
                f"query {query_id!r}, passage {hit.id!r}: expected a finite score, got {hit.score}."
            )
        if n and hit.score > hits[n - 1].score:
            raise DataError(
                f"query {query_id!r}: the score rises from {hits[n - 1].score} to {hit.score} at passage "
                f"{hit.id!r}; expected the best hit first."
            )


def _refuse_white_space(text: str, name: str) -> None:
    if text.split() != [text]:
        raise DataError(
            f"the {name} {text!r} {'holds white space' if text else 'is empty'}, which a TREC run cannot "
            "carry; rename it, or give a data set, for JSONL."
        )


def refuse_unknown(ids: Iterable[str], known: Collection[str], name: str, where: str) -> None:
    """Refuse (DataError) results whose ids are not all known."""
    unknown = sorted(set(ids) - set(known))
    if unknown:
        raise DataError(
            f"the {name} id {unknown[0]!r} of the results is not in {where} ({len(unknown)} such); "
            "they belong to other data."
        )
