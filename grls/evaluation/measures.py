"""The field's standard measures of a ranking, by ``ir_measures``: nDCG, RR, AP, P, Judged and others.

Convention: that of trec_eval. The grades of the qrels are taken as they are (nDCG gains by grade, the others
count a grade of 1 or more), a judged query without a hit scores 0, and the average is over judged queries.
The order of a list counts, not its scores: trec_eval would break ties by passage id. Queries and passages go
there as numbers: trec_eval is C, and ends an id at a NUL. How recall is counted is
:mod:`grls.evaluation.metrics.sequence_recall`'s affair, which is ``R@k``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

import ir_measures

from grls.data.dataset import HIGHEST_GRADE, Qrels
from grls.errors import ConfigError, DataError

MEASURES = ("nDCG@10", "RR", "AP", "P@5", "Judged@10")
"""Measured unless others are asked for. BEIR's tables report nDCG@10."""

_DEEPEST = 2**31 - 1  # cut-off, as trec_eval reads one
_PROVIDERS = ir_measures.providers.FallbackProvider(
    [ir_measures.providers.registry[name] for name in ("pytrec_eval", "judged", "compat", "msmarco")]
)  # none that runs another program (gdeval's Perl) or leaves queries out of the mean (accuracy)
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
    _refuse_grades(qrels)
    parsed = [_parsed(name) for name in measures]
    judged, hits = _numbered(rankings, qrels)
    found = {(m.query_id, str(m.measure)): float(m.value) for m in _PROVIDERS.iter_calc(parsed, judged, hits)}
    return {
        name: [found.get((str(query), name), 0.0) for query in range(len(qrels))] for name in map(str, parsed)
    }


def mean_values(
    measures: Sequence[str], rankings: Mapping[str, Sequence[str]], qrels: Qrels
) -> dict[str, float]:
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


def _refuse_grades(qrels: Qrels) -> None:
    """Refuse (DataError) a grade that no measure can count."""
    for query, grades in qrels.items():
        for passage, grade in grades.items():
            if abs(grade) > HIGHEST_GRADE:
                raise DataError(
                    f"query {query!r} and passage {passage!r} have the grade {grade}; expected one between "
                    f"-{HIGHEST_GRADE:,} and {HIGHEST_GRADE:,}."
                )


def _numbered(
    rankings: Mapping[str, Sequence[str]], qrels: Qrels
) -> tuple[list[ir_measures.Qrel], list[ir_measures.ScoredDoc]]:
    """Judgements and hits with numbers for ids: a query's is its place in ``qrels``."""
    number: dict[str, str] = {}

    def named(passage: str) -> str:
        return number.setdefault(passage, str(len(number)))

    judged = [
        ir_measures.Qrel(str(n), named(passage), grade)
        for n, grades in enumerate(qrels.values())
        for passage, grade in grades.items()
    ]
    hits = [
        ir_measures.ScoredDoc(str(n), named(passage), float(-rank))
        for n, query in enumerate(qrels)
        for rank, passage in enumerate(rankings.get(query, ()))
    ]
    return judged, hits


def _parsed(name: str) -> ir_measures.measures.Measure:
    try:
        mean_values = ir_measures.parse_measure(name)
        supported = _PROVIDERS.supports(mean_values)
    except (NameError, ValueError, AssertionError, TypeError, SyntaxError) as error:
        raise ConfigError(f"--measures: {name!r} is no measure ({error}); expected names {_HINT}.") from None
    if not supported or not _in_range(mean_values):
        raise ConfigError(f"--measures: {name!r} cannot be computed here; expected names {_HINT}.")
    if isinstance(mean_values.aggregator(), ir_measures.measures.SumAgg):
        raise ConfigError(
            f"--measures: {name!r} is a count, and measures here are shares of 1; expected names {_HINT}."
        )
    return mean_values


def _in_range(mean_values: ir_measures.measures.Measure) -> bool:
    """Whether trec_eval can hold a measure's numbers."""
    gains = (mean_values.params.get("gains") or {}).items()
    return (
        _between(mean_values.params.get("cutoff"), 1, _DEEPEST)
        and _between(mean_values.params.get("rel"), 1, HIGHEST_GRADE)
        and all(_between(number, 0, HIGHEST_GRADE) for gain in gains for number in gain)
    )


def _between(number: object, low: int, high: int) -> bool:
    """Whether a parameter that is a number lies within bounds; one that is left out does."""
    return not isinstance(number, int) or (not isinstance(number, bool) and low <= number <= high)
