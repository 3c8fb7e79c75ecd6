"""The field's standard measures of a ranking, by ``ir_measures``: nDCG, RR, AP, P, Judged and others.

Convention: as trec_eval. The grades of the qrels are taken as they are (nDCG gains by grade, the others count
a grade of 1 or more), a judged query without a hit scores 0, and the average is over judged queries. The
order of a list counts, not its scores: trec_eval would break ties by passage id. Queries and passages are
passed as numbers: trec_eval is C, and ends an id at a NUL. :func:`register_measure` adds other measures; two
of them are ours: recall (``R@k``, :func:`grls.evaluation.metrics.sequence_recall`), and whether all gold
passages are found (``complete@k``, :func:`grls.evaluation.metrics.complete_recall`).

A run of 10 passages a query has no R@20: :class:`RunDepth` says which measures can be told from a run. Those
without a cut-off (``RR``, ``AP``) read what a run holds, and runs are compared in them at the depth that all
of them have.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Integral
from typing import Any, TypeVar

import ir_measures

from grls.data.dataset import HIGHEST_GRADE, relevant
from grls.data.inputs.tables import name_list
from grls.errors import ConfigError, DataError, Option
from grls.evaluation.metrics import recall_at
from grls.io.arguments import checked, list_from, short_repr
from grls.io.progress import counted
from grls.io.recipes import definition, load_plugins
from grls.runs.run import Run

MEASURES = ("nDCG@10", "RR", "AP", "P@5", "Judged@10")
"""The default measures. BEIR's tables report nDCG@10."""

_EXPECTED = f"names of measures, such as {name_list(MEASURES)}"

_DEEPEST = 2**31 - 1  # the deepest cut-off of trec_eval
_PROVIDERS = ir_measures.providers.FallbackProvider(
    [ir_measures.providers.registry[name] for name in ("pytrec_eval", "judged", "compat", "msmarco")]
)  # without providers that run another program (gdeval's Perl) or leave queries out (accuracy)
_HINT = "as in 'nDCG@10 RR AP P@5 Judged@10' (ir_measures' names), or one that is registered"

_SPELLINGS = {
    **{name.replace("_", "").lower(): kind.NAME for name, kind in ir_measures.measures.registry.items()},
    **{"reciprank": "RR", "hit": "Success", "hits": "Success"},
}  # a measure's names in other tools, without capitals and underscores -> its name here
_NAME_AND_CUTOFF = re.compile(r"([A-Za-z_]+?)(?:_cut)?[@_.:-]*(\d*)")
_WITH_CUTOFF = re.compile(r"(.+)@([1-9]\d*)")
_RANK = re.compile(r"[1-9]\d*")
_TO_LAST_GOLD = ("f1_known_number", "path_match", "miss_", "Rprec")  # as deep as a query has gold passages

Measure = Callable[[Sequence[str], Mapping[str, int]], float]
"""Passage ids of a query, best first, and its grades (passage id -> grade) -> a value in [0, 1]."""

REGISTERED: dict[str, Measure] = {}
"""Name -> a measure of :func:`register_measure`."""


@checked
def register_measure(name: str, measure: Measure) -> None:
    """Add a measure; its name is then known wherever measures are named, also with a cut-off (``name@10``).

    Args:
        name: Its name, one word that is no name of ``ir_measures``.
        measure: Gets the passage ids of a query, best first (none for a query without an answer), and its
            grades; returns a value in [0, 1].

    Raises:
        ConfigError: The name is no such word, or another measure has it.
    """
    if name.split() != [name]:
        raise ConfigError(f"register_measure: name must be one word, got {name!r}.")
    known = REGISTERED.get(name)
    repeated = known is not None and definition(known) == definition(measure)
    if not repeated and (known is not None or _is_standard(name)):
        raise ConfigError(f"the measure {name!r} is there already; choose another name.")
    REGISTERED[name] = measure


def _registered(name: str) -> Measure | None:
    match = None if name in REGISTERED else _WITH_CUTOFF.fullmatch(name)
    if match is None or match[1] not in REGISTERED:
        return REGISTERED.get(name)
    measure, k = REGISTERED[match[1]], int(match[2])
    return lambda ids, grades: measure(ids[:k], grades)


def measure_names(measures: Any) -> list[str]:
    """The names of measures as ``ir_measures`` writes them, checked and without repeats.

    Args:
        measures: Names separated by white space, or a list of names; a measure of ``ir_measures``
            (``nDCG @ 10``) counts as its name.

    Raises:
        ConfigError: A measure is unknown, lacks a parameter, cannot be computed from qrels and rankings, or
            is a function, which needs a name.
    """
    if isinstance(measures, ir_measures.measures.Measure):
        measures = [measures]
    listed = measures.split() if isinstance(measures, str) else measures
    listed = listed if isinstance(listed, list | tuple | Set) else list_from(listed)
    if listed is None:
        raise ConfigError(f"measures must be {_EXPECTED}, got {short_repr(measures)}.")
    names = []
    for name in listed:
        if isinstance(name, ir_measures.measures.Measure):
            name = str(name)
        if callable(name):
            raise ConfigError(
                f"measures: expected names, got the function {getattr(name, '__name__', name)!r}: add it by "
                "grls.evaluation.measures.register_measure(name, function), and give its name."
            )
        if not isinstance(name, str):
            raise ConfigError(f"measures must be {_EXPECTED}, got {short_repr(name)}.")
        if _registered(name) is None and not _is_standard(name):
            load_plugins()
        names.append(str(_parsed(name)) if _registered(name) is None else name)
    return list(dict.fromkeys(names))


def _is_standard(name: str) -> bool:
    try:
        _parsed(name)
    except ConfigError:
        return False
    return True


def cutoff(measure: str) -> int:
    """The rank to which a measure (``nDCG@10``, ``recall@5``) reads; 0 if its name has no cut-off."""
    rank = measure.rpartition("@")[2]
    return int(rank) if rank.isdecimal() else 0


def query_values(
    names: Sequence[str], rankings: Mapping[Any, Sequence[Any]], qrels: Mapping[Any, Mapping[Any, Any]]
) -> dict[str, list[float]]:
    """The value of each measure for each judged query.

    Args:
        names: Measures, as :func:`measure_names` gives them.
        rankings: Query id -> passage ids, best first; a missing query has no passages.
        qrels: The judgements.

    Returns:
        Measure -> one value a query, in the order of ``qrels``, in [0, 1] for the measures named above.
    """
    for query, grades in qrels.items():
        for passage, grade in grades.items():
            if not isinstance(grade, Integral) or abs(int(grade)) > HIGHEST_GRADE:
                raise DataError(
                    f"query {query!r} and passage {passage!r} have the grade {short_repr(grade)}; expected "
                    f"one between -{HIGHEST_GRADE:,} and {HIGHEST_GRADE:,}."
                )
    values: dict[str, list[float]] = {}
    registered = {name: measure for name in names if (measure := _registered(name)) is not None}
    standard = [name for name in names if name not in registered]
    if standard:
        number: dict[str, str] = defaultdict(lambda: str(len(number)))  # of a passage
        judged = [
            ir_measures.Qrel(str(n), number[passage], grade)
            for n, grades in enumerate(qrels.values())
            for passage, grade in grades.items()
        ]
        hits = [  # scores above 0, which Compat takes for the score of a passage that was not found
            ir_measures.ScoredDoc(str(n), number[passage], 1.0 / rank)
            for n, query in enumerate(qrels)
            for rank, passage in enumerate(rankings.get(query, ()), 1)
        ]
        calculated = _PROVIDERS.iter_calc(list(map(_parsed, standard)), judged, hits)
        by_query = {(m.query_id, str(m.measure)): float(m.value) for m in calculated}
        for name in standard:
            values[name] = [by_query.get((str(query), name), 0.0) for query in range(len(qrels))]
    for name, measure in registered.items():
        values[name] = []
        for query, grades in qrels.items():
            value: Any = measure(list(rankings.get(query, ())), dict(grades))
            try:
                share = float(value)  # of NumPy or Torch, too
            except (TypeError, ValueError):
                share = math.nan
            if not 0 <= share <= 1:
                raise DataError(f"the measure {name!r} gave {value!r} for query {query!r}; expected 0 to 1.")
            values[name].append(share)
    return {name: values[name] for name in names}


def ndcg(retrieved: Sequence[Sequence[str]], gold: Sequence[Collection[str]]) -> float:
    """The mean nDCG of whole rankings with grade 1 for gold passages; in tuning it breaks ties of recall.

    A query without gold passages counts 0.
    """
    qrels = {str(n): dict.fromkeys(ids, 1) for n, ids in enumerate(gold) if ids}
    rankings = {str(n): ids for n, ids in enumerate(retrieved)}
    total = sum(query_values(["nDCG"], rankings, qrels)["nDCG"]) if qrels else 0.0
    return total / max(len(gold), 1)


def _parsed(name: str) -> ir_measures.measures.Measure:
    measure_name, at, rank = name.rpartition("@") if isinstance(name, str) else ("", "", "")
    if at and not _RANK.fullmatch(rank) and measure_name != "IPrec":  # at a level of recall
        raise ConfigError(
            f"measures: {name!r} is no measure: behind @ stands a rank from 1 on, as in '{measure_name}@10'."
        )
    try:
        measure = ir_measures.parse_measure(name)
        supported = _PROVIDERS.supports(measure)
    except (NameError, ValueError, AssertionError, TypeError, SyntaxError) as error:
        spelled = _NAME_AND_CUTOFF.fullmatch(name) if isinstance(name, str) else None
        known = spelled and _SPELLINGS.get(spelled[1].replace("_", "").lower())
        names = [f"{known}@{spelled[2]}"] if spelled and spelled[2] else [f"{known}", f"{known}@10"]
        close = next((other for other in names if known and other != name and _is_standard(other)), None)
        hint = f" ({error}); expected names {_HINT}." if close is None else f"; did you mean {close!r}?"
        if spelled and not known:
            spellings = {**_SPELLINGS, **{other.lower(): other for other in REGISTERED}}
            near = get_close_matches(spelled[1].lower(), spellings, 3)
            found = dict.fromkeys(f"{spellings[word]}@{spelled[2]}".rstrip("@") for word in near)
            usable = [other for other in found if _registered(other) or _is_standard(other)]
            hint = f"; did you mean {' or '.join(map(repr, usable))}?" if usable else hint
        raise ConfigError(f"measures: {name!r} is no measure{hint}") from None
    gains = (measure.params.get("gains") or {}).items()
    fits = (  # trec_eval's integers
        _between(measure.params.get("cutoff"), 1, _DEEPEST)
        and _between(measure.params.get("rel"), 1, HIGHEST_GRADE)
        and all(_between(number, 0, HIGHEST_GRADE) for gain in gains for number in gain)
    )
    if not supported or not fits:
        raise ConfigError(f"measures: {name!r} cannot be computed here; expected names {_HINT}.")
    if isinstance(measure.aggregator(), ir_measures.measures.SumAgg):
        raise ConfigError(
            f"measures: {name!r} is a count, and measures here are shares of 1; expected names {_HINT}."
        )
    return measure


def _between(number: object, low: int, high: int) -> bool:
    return not isinstance(number, int) or (not isinstance(number, bool) and low <= number <= high)


def _recall(ids: Sequence[str], grades: Mapping[str, int]) -> float:
    return recall_at(ids, relevant(grades), len(ids))


def _complete(ids: Sequence[str], grades: Mapping[str, int]) -> float:
    gold = set(relevant(grades))
    return float(bool(gold) and gold <= set(ids))


register_measure("R", _recall)
register_measure("complete", _complete)


Value = TypeVar("Value")


@dataclass(frozen=True)
class RunDepth:
    """How deep a run is.

    Attributes:
        ranks: The deepest rank that it tells; None: all.
        gold: The largest number of gold passages of a query.
        run: The name of the run in errors.
    """

    ranks: int | None
    gold: int = 0
    run: str = "the run"

    @classmethod
    def of(cls, run: Run, passages: int | None, gold: Sequence[Collection[str]]) -> RunDepth:
        """The depth of a run (:meth:`grls.runs.run.Run.depth`); ``passages``: the size of the corpus."""
        return cls(run.depth(passages), max(map(len, gold), default=0), run.called)

    def tells(self, metric: str) -> bool:
        """Whether a metric (``recall@20``, ``nDCG@10``, ``f1_known_number``) can be told from the run."""
        reads = self.gold if metric.startswith(_TO_LAST_GOLD) else cutoff(metric)
        return self.ranks is None or reads <= self.ranks

    def within(self, values: Mapping[str, Value]) -> dict[str, Value | None]:
        """Metric -> value, None for a metric that cannot be told."""
        return {metric: value if self.tells(metric) else None for metric, value in values.items()}

    def refuse(self, metrics: Iterable[str], remedy: str = "leave out what reads deeper") -> None:
        """Refuse metrics, named by the user, that cannot be told (ConfigError)."""
        deeper = [metric for metric in metrics if not self.tells(metric)]
        if deeper and self.ranks is not None:
            raise ConfigError(
                f"{self.run} was cut off at {counted(self.ranks, 'passage')} a query, so it has no "
                f"{', '.join(deeper)}: retrieve again with a larger {Option('k')}, or {remedy}."
            )

    def note(self) -> str:
        """A sentence below a table on measures without a value; empty if every measure has one."""
        if self.ranks is None:
            return ""
        return (
            f"The run was cut off at {counted(self.ranks, 'passage')} a query: what reads deeper has no "
            "value (-), and measures without a cut-off (RR, AP) are of these passages."
        )


def shared_depth(depths: Sequence[RunDepth]) -> int | None:
    """The deepest rank that all runs tell; None: all."""
    return min((depth.ranks for depth in depths if depth.ranks is not None), default=None)


def shared_name(metric: str, depths: Sequence[RunDepth]) -> str:
    """A metric of runs that are compared at their shared depth: ``RR`` is then ``RR@10``.

    Metrics with a cut-off, and all metrics of runs that are equally deep, keep their names.
    """
    to_end = not cutoff(metric) and not metric.startswith(_TO_LAST_GOLD)
    differ = len({depth.ranks for depth in depths}) > 1
    return f"{metric}@{shared_depth(depths)}" if to_end and differ else metric


WHOLE = RunDepth(None)
"""Nothing was cut off."""
