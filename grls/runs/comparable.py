"""Several runs that are to be fused or compared: read together, refused where they do not belong together.

Runs belong together when they are over the same corpus and answer the same queries. Where they have
manifests, the fingerprints tell; where they have none, the ids do. A query that one run lacks is never
dropped: it is refused, or scored as empty and said. The module knows neither metrics nor how runs are fused.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import read_queries, read_split
from grls.data.types import Chain, Hit, Query
from grls.errors import ConfigError, DataError, MismatchError
from grls.runs.manifest import RunInfo, Steps, fingerprint_queries, info_file, read_info
from grls.runs.results import Results, load_results
from grls.runs.trec import refuse_unknown, without_done

log = logging.getLogger(__name__)

Missing = Literal["refuse", "empty"]
_SHOWN = 3  # example ids of an error


class LoadedRun(NamedTuple):
    """A run and what made it.

    Attributes:
        path: The file it was read from.
        results: What was retrieved.
        info: Its manifest; None where it has none.
    """

    path: str
    results: Results
    info: RunInfo | None

    @property
    def name(self) -> str:
        """What reports call it: the manifest's name, or else the file's."""
        return self.info.name if self.info is not None else Path(self.path).stem

    @property
    def steps(self) -> Steps:
        """As the manifest says; without one, chains tell."""
        if self.info is not None:
            return self.info.steps
        return "dynamic" if self.results.chains else "single"


class QuerySet(NamedTuple):
    """What runs were asked.

    Attributes:
        data: The data set folder.
        split: Which of its queries; None for all, or where unknown.
        corpus: Its corpus.
        queries: The queries; None where nothing says which, so that the runs must.
    """

    data: str
    split: str | None
    corpus: Corpus
    queries: list[Query] | None


def load_runs(paths: Sequence[str]) -> list[LoadedRun]:
    """Read runs that belong together, JSONL of ours or TREC.

    Raises:
        ConfigError: One is given twice.
        DataError: A file is missing or malformed, or its manifest belongs to other files.
        MismatchError: Manifests tell that two are over different corpora or answer different queries.
    """
    seen: dict[Path, str] = {}
    for path in paths:
        run = info_file(path).resolve()
        if run in seen:
            raise ConfigError(f"{seen[run]} and {path} are the same run; give each run once.")
        seen[run] = path
    runs = [LoadedRun(path, load_results(path), read_info(path)) for path in paths]
    for first, second in combinations(runs, 2):
        _refuse_apart(first, second)
        if first.results == second.results:
            log.warning("%s and %s hold the same results.", first.path, second.path)
    return runs


def _refuse_apart(run: LoadedRun, other: LoadedRun) -> None:
    """Refuse two runs whose manifests show different corpora or queries; an empty fingerprint is unknown."""
    if run.info is None or other.info is None:
        return
    if differ(run.info.corpus, other.info.corpus):
        raise MismatchError(
            f"{run.path} is a run over the corpus of {run.info.data}, {other.path} over another one, of "
            f"{other.info.data}; give runs over the same corpus."
        )
    if differ(run.info.queries, other.info.queries):
        raise MismatchError(
            f"{run.path} ({_asked(run.info)}) and {other.path} ({_asked(other.info)}) answer different "
            f"queries: {_difference(run, other) or 'the ids are the same, the texts differ'}; retrieve for "
            "the same ones."
        )


def differ(fingerprint: str, other: str) -> bool:
    """Whether two fingerprints differ; the empty one is unknown and differs from none."""
    return bool(fingerprint and other) and fingerprint != other


def refuse_other_data(
    run: str | Path,
    info: RunInfo,
    folder: str | Path,
    corpus: Corpus,
    queries: Sequence[Sequence[Query]],
) -> None:
    """Refuse a run that its manifest says is of another corpus or of other queries than a data set holds.

    Args:
        run: The run, for the error text.
        info: Its manifest.
        folder: The data set, likewise.
        corpus: Its corpus.
        queries: What the run may have been asked: those of a split, or all.

    Raises:
        MismatchError: It is.
    """
    if differ(info.corpus, corpus.fingerprint):
        what = "another corpus"
    elif all(differ(info.queries, fingerprint_queries(some)) for some in queries):
        what = "other queries"
    else:
        return
    raise MismatchError(
        f"{run} was made with {what} than {folder} holds; retrieve again, or name the right folder with "
        "--data."
    )


def refuse_unrelated(
    run: str | Path,
    results: Results,
    data: str | Path,
    split: str,
    asked: Collection[str],
    every: Collection[str],
) -> None:
    """Refuse results that answer none of the queries asked, or queries that a data set does not have.

    Args:
        run: Their file, for the error text.
        results: What was retrieved.
        data: The data set, likewise.
        split: Which of its queries are asked, likewise.
        asked: Their ids.
        every: Ids of all its queries.

    Raises:
        DataError: They do, or hold nothing.
    """
    if not results.rankings:
        raise DataError("the run has no line; retrieve again.", Path(run))
    refuse_unknown(results.rankings, set(every), "query", str(Path(data) / "queries.jsonl"))
    if not any(query in results.rankings for query in asked):
        raise DataError(
            f"the run answers no query of the split {split!r}: give --split as it was retrieved for.",
            Path(run),
        )


def find_asked(runs: Sequence[LoadedRun], data: str | None, split: str | None) -> QuerySet | None:
    """What runs were asked: as the options say, else as their manifests do.

    Args:
        runs: See :func:`load_runs`.
        data: Data set folder.
        split: Which of its queries.

    Returns:
        None where neither says a data set.

    Raises:
        ConfigError: There is a split without a data set, or the data set of a manifest is not here.
        DataError: The data set is malformed, or a passage of a run is not in it.
        MismatchError: A manifest is of another corpus or of other queries.
    """
    told = next((run for run in runs if run.info is not None and run.info.data), None)
    info = told.info if told is not None else None
    if data is None:
        if info is None or told is None:
            if split is not None:
                raise ConfigError("--split needs a data set: give --data DIR, too.")
            return None
        data = info.data
        if not Path(data).is_dir():
            raise ConfigError(f"{told.path} was retrieved from {data}, no folder here; give --data DIR.")
    split = split if split is not None or info is None else info.split
    corpus = Corpus.read(data)
    queries = None
    if split is not None:
        queries = read_split(data, split, corpus)[0]
    elif info is not None:
        queries = read_queries(data)
    asked = QuerySet(data, split, corpus, queries)
    _refuse_other_data(runs, asked)
    refuse_unknown_passages(runs, corpus)
    return asked


def _refuse_other_data(runs: Iterable[LoadedRun], asked: QuerySet) -> None:
    """Refuse runs whose manifests name another corpus, or other queries."""
    print_of_queries = "" if asked.queries is None else fingerprint_queries(asked.queries)
    for run in runs:
        if run.info is None:
            continue
        if differ(run.info.corpus, asked.corpus.fingerprint):
            raise MismatchError(
                f"{run.path} is a run over another corpus (of {run.info.data}) than {asked.data} has; give "
                "the data set that was retrieved from, or retrieve again."
            )
        if differ(run.info.queries, print_of_queries):
            which = "all queries" if asked.split is None else f"split {asked.split}"
            raise MismatchError(
                f"{run.path} ({_asked(run.info)}) answers other queries than {asked.data}, {which}, holds; "
                "give the split that was retrieved for, or retrieve again."
            )


def refuse_unknown_passages(runs: Iterable[LoadedRun], corpus: Corpus) -> None:
    """Refuse (DataError) runs with a passage that the corpus does not have."""
    for run in runs:
        held = list(run.results.rankings.values())
        held += [list(chain.hits) for chain in run.results.chains.values()]
        ids = sorted({hit.id for hits in held for hit in without_done(hits)})
        numbers = corpus.numbers(ids) if ids else []
        unknown = [i for i, number in zip(ids, numbers, strict=True) if number is None]
        if unknown:
            raise DataError(
                f"{some_ids(unknown)} ({len(unknown)} in all) are no passages of {corpus.source}; give the "
                "data set that was retrieved from.",
                run.path,
            )


def complete_runs(runs: Sequence[LoadedRun], asked: Sequence[str] | None, missing: Missing) -> list[Results]:
    """The results of every run for every query asked.

    Args:
        runs: See :func:`load_runs`.
        asked: Ids of the queries, where they are known; a query that a run lacks is then scored as empty, and
            said. None: the queries that the runs answer.
        missing: What to do where ``asked`` is None and the runs do not answer the same queries.

    Returns:
        Results that all hold the same queries, in the same order. Where a run holds chains, each query has
        one, empty where it was not answered.

    Raises:
        DataError: A run answers a query that was not asked.
        MismatchError: The runs do not answer the same queries, and ``missing`` is ``refuse``.
    """
    if asked is None:
        asked = _answered(runs, missing)
    return [_complete(run, asked) for run in runs]


def _answered(runs: Sequence[LoadedRun], missing: Missing) -> list[str]:
    """The queries that the runs answer, in the order of their first appearance."""
    for other in runs[1:]:
        if missing == "refuse" and (difference := _difference(runs[0], other)):
            raise MismatchError(
                f"{runs[0].path} and {other.path} do not answer the same queries: {difference}. Say which "
                "queries were asked (--data DIR --split S), or --missing empty to take what a run lacks as "
                "no hits."
            )
    return list(dict.fromkeys(query for run in runs for query in run.results.rankings))


def _complete(run: LoadedRun, asked: Sequence[str]) -> Results:
    rankings, chains = run.results.rankings, run.results.chains
    unknown = rankings.keys() - set(asked)
    if unknown:
        raise DataError(
            f"{some_ids(unknown)} ({len(unknown)} in all) are not among the {len(asked)} queries asked; give "
            "the split that was retrieved for.",
            run.path,
        )
    lacking = [query for query in asked if query not in rankings]
    if lacking:
        log.warning(
            "%s lacks %d of %d queries (%s); they count as answered with nothing.",
            run.path, len(lacking), len(asked), some_ids(lacking),
        )  # fmt: skip
    every: dict[str, list[Hit]] = {query: rankings.get(query, []) for query in asked}
    none = Chain((), 0.0, False)
    chained = {query: chains.get(query, none) for query in asked} if chains else {}
    return Results(every, chained, run.results.score_mode)


def _difference(run: LoadedRun, other: LoadedRun) -> str:
    """The queries that one of two runs lacks; empty where they answer the same."""
    first, second = run.results.rankings.keys(), other.results.rankings.keys()
    parts = [
        f"{len(alone)} are in {path} alone ({some_ids(alone)})"
        for alone, path in ((first - second, run.path), (second - first, other.path))
        if alone
    ]
    return ", ".join(parts)


def _asked(info: RunInfo) -> str:
    return f"{info.data}, {'all queries' if info.split is None else f'split {info.split}'}"


def some_ids(ids: Collection[str]) -> str:
    """A few of some ids, sorted where they have no order."""
    some = list(ids) if isinstance(ids, Sequence) else sorted(ids)
    return ", ".join(map(repr, some[:_SHOWN])) + (", …" if len(some) > _SHOWN else "")
