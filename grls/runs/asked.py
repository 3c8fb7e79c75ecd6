"""What runs were asked: the queries of a data set, as options or manifests say.

A run whose manifest names another corpus or other queries is refused. A run that was made of others (fused,
cut) is saved with what they were asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import read_queries, read_split
from grls.data.types import Query
from grls.errors import ConfigError, MismatchError, Option
from grls.runs.comparable import refuse_unknown_passages
from grls.runs.manifest import differ, fingerprint_queries, which_queries
from grls.runs.run import Run, shared_limit
from grls.runs.save import refuse_own_output
from grls.runs.trec import refuse_unknown


class QuerySet(NamedTuple):
    """What runs were asked.

    Attributes:
        data: The data set folder.
        split: Which of its queries; None for all, or where unknown.
        corpus: Its corpus.
        queries: The queries; None where nothing says which, so that the runs must.
        limit: How many first queries of the split; None for all.
    """

    data: str
    split: str | None
    corpus: Corpus
    queries: list[Query] | None
    limit: int | None = None

    @property
    def ids(self) -> list[str] | None:
        """Ids of the queries, where they are known."""
        return None if self.queries is None else [query.id for query in self.queries]


def find_asked(runs: Sequence[Run], data: str | None, split: str | None) -> QuerySet | None:
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
    print_of_queries = "" if queries is None else fingerprint_queries(queries)
    for run in runs:
        if run.info is None:
            continue
        if differ(run.info.corpus, corpus.fingerprint):
            raise MismatchError(
                f"{run.path} is a run over another corpus (of {run.info.data}) than {data} has; give "
                "the data set that was retrieved from, or retrieve again."
            )
        if differ(run.info.queries, print_of_queries):
            raise MismatchError(
                f"{run.path} ({run.info.asked}) answers other queries than {data}, "
                f"{which_queries(split, limit)}, holds; give the split that was retrieved for, or retrieve "
                "again."
            )
    refuse_unknown_passages(runs, corpus)
    return QuerySet(data, split, corpus, queries, limit)


def save_for(run: Run, output: str, asked: QuerySet | None) -> str:
    """Save a run that was made of others, with data set, split and fingerprints of what was asked.

    Args:
        run: The run, with its manifest.
        output: Path without ending.
        asked: What it answers; None: no texts are known, so there is a TREC run alone.

    Returns:
        What was written, in a line.
    """
    if asked is None or run.info is None:
        return run.save(output)
    queries = asked.queries
    if queries is None:  # only the run says which were answered
        every = read_queries(asked.data)
        refuse_unknown(run.rankings, [query.id for query in every], "query", f"{asked.data}/queries.jsonl")
        queries = [query for query in every if query.id in run.rankings]
    info = replace(
        run.info,
        corpus=asked.corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=asked.data,
        split=asked.split,
        limit=asked.limit,
    )
    return replace(run, info=info).save(output, queries, asked.corpus)


def refuse_to_replace(output: str, runs: Sequence[str], asked: QuerySet | None) -> None:
    """Refuse an output that would overwrite an input, or leave JSONL of an earlier run beside the new run.

    Raises:
        ConfigError: It would.
    """
    refuse_own_output(output, runs)
    if asked is None and Path(f"{output}.jsonl").exists():
        raise ConfigError(
            f"{output}.jsonl is there already, and without a data set there is no new one to replace it; "
            f"remove it, choose another name, or give {Option('data', 'DIR')}."
        )
