"""Several runs that are to be fused or compared: read together, refused where they do not belong together.

They belong together if they are over the same corpus and answer the same queries, by the fingerprints of
their manifests, else by ids. A query that one run lacks is refused, or scored as empty with a
warning. Last, runs to tune on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, passage_queries, read_queries, read_split
from grls.data.types import Chain, Hit, Query
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.progress import counted
from grls.runs.portions import differ, fingerprint_queries, info_file, refuse_own_output, which_queries
from grls.runs.run import Run, first_ids, shared_limit
from grls.runs.trec import refuse_unknown

log = logging.getLogger(__name__)


def load_runs(paths: Sequence[str]) -> list[Run]:
    """Read runs that belong together."""
    refuse_repeated(paths)
    runs = [*map(Run.load, paths)]
    for first, second in combinations(runs, 2):
        first.compatible_with(second)
        if replace(first, info=None) == replace(second, info=None):
            log.warning("%s and %s hold the same results.", first.path, second.path)
    return runs


def refuse_repeated(files: Iterable[str]) -> None:
    """Refuse a run that is given twice; ``NAME.trec`` and ``NAME.jsonl`` are one run."""
    seen: dict[Path, str] = {}
    for file in files:
        manifest = info_file(file).resolve()
        if manifest in seen:
            raise ConfigError(f"{seen[manifest]} and {file} are the same run; give each run once.")
        seen[manifest] = file


def refuse_other_data(
    run: Run, data: str | Path, corpus: Corpus, queries: Mapping[str, Sequence[Query]]
) -> None:
    """Refuse a run whose manifest names another corpus, or queries of none of the given lists."""
    info = run.info
    if info is None:
        return
    if differ(info.corpus, corpus.fingerprint):
        other, where = "another corpus", f"{data}"
    elif queries and all(differ(info.queries, fingerprint_queries(listed)) for listed in queries.values()):
        other, where = "other queries", f"{data}, {next(iter(queries))},"
    else:
        return
    raise MismatchError(
        f"{run.called} was made with {other} than {where} holds (it is of {info.query_set}); retrieve again, "
        f"or name the right folder with {Option('data')}, and the split that was retrieved for."
    )


def refuse_unknown_passages(runs: Iterable[Run], corpus: Corpus) -> None:
    for run in runs:
        found = {hit.id for hits in run.rankings.values() for hit in hits}
        found |= {hit.id for chain in run.chains.values() for hit in chain.hits}
        ids = sorted(found - {DONE_ID})
        numbers = corpus.numbers(ids)
        if None in numbers:
            unknown = [i for i, number in zip(ids, numbers, strict=True) if number is None]
            raise DataError(
                f"{first_ids(unknown)} ({len(unknown)} in all) are no passages of {corpus.source}; give the "
                "data set that was retrieved from.",
                run.path,
            )


def complete_runs(runs: Sequence[Run], queries: Sequence[str] | None) -> list[Run]:
    """Every run with results for the same queries, in the same order.

    ``queries`` are the ids, where they are known; a query that a run lacks is then scored as empty, with a
    warning. None: the queries that the runs answer, which must be the same.
    """
    if queries is None:
        for second in runs[1:]:
            if difference := runs[0].unlike(second):
                raise MismatchError(
                    f"{runs[0].path} and {second.path} do not answer the same queries: {difference}. Say "
                    f"which queries were asked: {Option('data', 'DIR')} {Option('split', 'S')}."
                )
        queries = list(runs[0].rankings)
    complete = []
    for run in runs:
        unknown = run.rankings.keys() - set(queries)
        if unknown:
            raise DataError(
                f"{first_ids(unknown)} ({len(unknown)} in all) are not among the "
                f"{counted(len(queries), 'query')} asked; "
                "give the split that was retrieved for.",
                run.path,
            )
        lacking = [query for query in queries if query not in run.rankings]
        if lacking:
            log.warning(
                "%s lacks %d of %s (%s); they count as answered with nothing.",
                run.path, len(lacking), counted(len(queries), "query"), first_ids(lacking),
            )  # fmt: skip
        rankings: dict[str, list[Hit]] = {query: run.rankings.get(query, []) for query in queries}
        empty = Chain((), 0.0, False)
        chains = {query: run.chains.get(query, empty) for query in queries} if run.chains else {}
        complete.append(replace(run, rankings=rankings, chains=chains))
    return complete


class QuerySet(NamedTuple):
    """The queries of a data set that runs answer, as options or manifests say.

    ``queries``: None where nothing says which, so that the runs must. ``split`` and ``limit``: None for
    all.
    """

    data: str
    split: str | None
    corpus: Corpus
    queries: list[Query] | None
    limit: int | None = None

    @property
    def ids(self) -> list[str] | None:
        return None if self.queries is None else [query.id for query in self.queries]


def find_asked(runs: Sequence[Run], data: str | None, split: str | None) -> QuerySet | None:
    """The queries that runs answer, by the options or their manifests; None if no data set is named."""
    named = next((run for run in runs if run.info is not None and run.info.data), None)
    info = named.info if named is not None else None
    if data is None:
        if info is None or named is None:
            if split is not None:
                raise ConfigError(f"{Option('split')} needs a data set: give {Option('data', 'DIR')}, too.")
            return None
        data = info.data
        if not Path(data).is_dir():
            raise ConfigError(
                f"{named.path} was retrieved from {data}, no folder here; give {Option('data', 'DIR')}."
            )
    split = split if split is not None or info is None else info.split
    corpus, limit = Corpus.read(data), shared_limit(runs)
    queries = None
    if split is not None:
        queries = read_split(data, split, corpus, limit)[0]
    elif info is not None:
        queries = read_queries(data)
    known = {} if queries is None else {which_queries(split, limit): queries}
    for run in runs:
        refuse_other_data(run, data, corpus, known)
    refuse_unknown_passages(runs, corpus)
    return QuerySet(data, split, corpus, queries, limit)


def save_for(run: Run, output: str, query_set: QuerySet | None) -> str:
    """Save a run that was made of others; returns a line for the user.

    Where its queries are not known there is a TREC run alone, without texts.
    """
    if query_set is None or run.info is None:
        return run.save(output)
    queries = query_set.queries
    if queries is None:  # only the run says which were answered
        every = read_queries(query_set.data)
        refuse_unknown(
            run.rankings, [query.id for query in every], "query", f"{query_set.data}/queries.jsonl"
        )
        queries = [query for query in every if query.id in run.rankings]
    info = replace(
        run.info,
        corpus=query_set.corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=query_set.data,
        split=query_set.split,
        limit=query_set.limit,
    )
    return replace(run, info=info).save(output, queries, query_set.corpus)


def refuse_to_replace(output: str, runs: Sequence[str], query_set: QuerySet | None) -> None:
    """Refuse an output that would overwrite an input, or leave an earlier run's JSONL there."""
    refuse_own_output(output, runs)
    if query_set is None and Path(f"{output}.jsonl").exists():
        raise ConfigError(
            f"{output}.jsonl is there already, and without a data set there is no new one to replace it; "
            f"remove it, choose another name, or give {Option('data', 'DIR')}."
        )


@dataclass(frozen=True)
class DevRuns:
    """Runs of every member for the same queries, with the gold passages of these."""

    runs: list[Run]
    gold: dict[str, list[str]]
    split: str
    passages: int | None = None

    @classmethod
    def load(cls, paths: Sequence[str], members: Sequence[Run], query_set: QuerySet | None) -> DevRuns:
        """Read runs for development queries, one for each of ``members``, with their gold.

        The split is that of their manifests, or else dev.
        """
        if query_set is None:
            raise ConfigError(
                f"runs to tune on need the gold passages of a data set: give {Option('data', 'DIR')}, too."
            )
        if len(paths) != len(members):
            raise ConfigError(
                f"{counted(len(paths), 'run')} to tune on for {counted(len(members), 'member')}; give one "
                "for each, in order."
            )
        runs = load_runs(paths)
        for member, run in zip(members, runs, strict=True):
            if member.steps != run.steps or (
                member.info is not None
                and run.info is not None
                and (member.info.system, member.info.stages) != (run.info.system, run.info.stages)
            ):
                raise MismatchError(
                    f"{run.path} ({_described(run)}) is to tune the weight of {member.path} "
                    f"({_described(member)}); tune on runs of the same systems, in the same order."
                )
        stated = any(run.info is not None for run in runs)
        dev = find_asked(runs, query_set.data, None if stated else "dev")
        if dev is None or dev.split is None or dev.queries is None:
            raise ConfigError("the runs to tune on answer all queries; take runs for one split, such as dev.")
        _, qrels = read_split(query_set.data, dev.split, query_set.corpus)
        gold = {query.id: gold_passages(query, qrels) for query in dev.queries}
        own = passage_queries(dev.queries, qrels, query_set.corpus)
        runs = [run.without_own(own) for run in runs]
        return cls(complete_runs(runs, list(gold)), gold, dev.split, len(query_set.corpus))

    def refuse_shared_queries(self, run: Run) -> None:
        shared = self.gold.keys() & run.rankings.keys()
        if shared:
            raise ConfigError(
                f"{first_ids(shared)} ({len(shared)} in all) are queries of the runs to tune on and of what "
                "is given, too; tune on other queries than those reported."
            )


def _described(run: Run) -> str:
    return ", ".join([run.info.system, *run.info.stages, run.steps] if run.info is not None else [run.steps])
