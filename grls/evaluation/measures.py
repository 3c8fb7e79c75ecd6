"""The field's standard measures of a ranking, by ``ir_measures``: nDCG, RR, AP, P, Judged and others.

Convention: that of trec_eval. The grades of the qrels are taken as they are (nDCG gains by grade, the others
count a grade of 1 or more), a judged query without a hit scores 0, and the average is over judged queries.
The order of a list counts, not its scores: trec_eval would break ties by passage id. How recall is counted is
:mod:`grls.evaluation.metrics.sequence_recall`'s affair, which is ``R@k``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

import ir_measures

from grls.dataset import Qrels
from grls.errors import ConfigError

MEASURES = ("nDCG@10", "RR", "AP", "P@5", "Judged@10")
"""Measured unless others are asked for. BEIR's tables report nDCG@10."""

_HINT = "as in --measures 'nDCG@10 RR AP P@5 Judged@10' (ir_measures' names)"


def measure_names(measures: str | Sequence[str]) -> list[str]:
    """The names of measures, each checked and once, as ``ir_measures`` writes them.

    Args:
        measures: Names parted by white space, or a list of names.

    Raises:
        ConfigError: One is unknown, lacks a parameter, or cannot be computed from qrels and rankings here.
    """
    asked = measures.split() if isinstance(measures, str) else list(measures)
    return list(dict.fromkeys(str(_parsed(name)) for name in asked))


def query_values(
    measures: Sequence[str], rankings: Mapping[str, Sequence[str]], qrels: Qrels
) -> dict[str, list[float]]:
    """The value of each measure for each judged query.

    Args:
        measures: See :func:`measure_names`.
        rankings: Query id -> passage ids, best first; a query that is missing has none.
        qrels: The judgements.

    Returns:
        Measure -> one value a query, in the order of ``qrels``, in [0, 1] for the measures named above.
    """
    if not measures:
        return {}
    judged = [ir_measures.Qrel(q, p, grade) for q, grades in qrels.items() for p, grade in grades.items()]
    hits = [
        ir_measures.ScoredDoc(query, passage, float(-rank))
        for query in qrels
        for rank, passage in enumerate(rankings.get(query, ()))
    ]
    parsed = [_parsed(name) for name in measures]
    found = {
        (m.query_id, str(m.measure)): float(m.value) for m in ir_measures.iter_calc(parsed, judged, hits)
    }
    return {name: [found.get((query, name), 0.0) for query in qrels] for name in map(str, parsed)}


def measure(measures: Sequence[str], rankings: Mapping[str, Sequence[str]], qrels: Qrels) -> dict[str, float]:
    """The mean of each measure over the judged queries; arguments as of :func:`query_values`."""
    return {name: fmean(values) for name, values in query_values(measures, rankings, qrels).items()}


def ndcg(retrieved: Sequence[Sequence[str]], gold: Sequence[Collection[str]]) -> float:
    """The nDCG of whole rankings, gold passages graded 1: what tells equal recalls apart in tuning.

    Args:
        retrieved: Passage ids of each query, best first.
        gold: Gold passage ids of each query, in the same order; a query without any counts 0.
    """
    qrels = {str(n): dict.fromkeys(some, 1) for n, some in enumerate(gold) if some}
    rankings = {str(n): ids for n, ids in enumerate(retrieved)}
    total = sum(query_values(["nDCG"], rankings, qrels)["nDCG"]) if qrels else 0.0
    return total / max(len(gold), 1)


def _parsed(name: str) -> ir_measures.measures.Measure:
    try:
        measure = ir_measures.parse_measure(name)
        supported = ir_measures.DefaultPipeline.supports(measure)
    except (NameError, ValueError, AssertionError, TypeError, SyntaxError) as error:
        raise ConfigError(f"--measures: {name!r} is no measure ({error}); expected names {_HINT}.") from None
    cutoff = measure.params.get("cutoff")
    if not supported or (isinstance(cutoff, int) and cutoff < 1):
        raise ConfigError(f"--measures: {name!r} cannot be computed here; expected names {_HINT}.")
    return measure
