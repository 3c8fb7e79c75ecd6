"""Run files as other versions and other tools leave them, and the manifest of ours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Query
from grls.runs import results
from grls.runs.portions import RunInfo, read_info
from grls.runs.run import Run


def write_jsonl_run(
    path: str | Path,
    queries: Sequence[Query],
    corpus: Corpus,
    score_mode: str,
    rankings: Mapping[str, Sequence[Hit]] | None = None,
    chains: Mapping[str, Chain] | None = None,
) -> None:
    """JSONL of results; a query without any has no hits."""
    run = Run.of(rankings, chains, score_mode=score_mode)
    results.write_results(path, queries, corpus, score_mode, run.retrieved(query.id for query in queries))


def info_of(path: str | Path) -> RunInfo:
    """The manifest of a run, which it has."""
    info = read_info(path)
    assert info is not None
    return info
