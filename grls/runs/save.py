"""Saving a run: a TREC run, JSONL with the texts, and a manifest.

The results of the queries are walked one at a time, so memory does not grow with them. The module does not
know where they come from.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.errors import ConfigError, Option
from grls.io.files import refuse_unwritable
from grls.io.progress import counted
from grls.runs.manifest import ENDINGS, RunInfo, info_file, write_info
from grls.runs.results import Retrieved, write_results
from grls.runs.trec import unfit_for_trec, write_run

log = logging.getLogger(__name__)


def save_retrieved(
    output: str | Path,
    queries: Sequence[Query],
    corpus: Corpus,
    retrieved: Iterable[Retrieved],
    info: RunInfo,
) -> str:
    """Write ``output.jsonl``, ``output.trec`` and ``output.info.json``.

    A fixed number of hops is a ranking: it has no DONE to miss. So only dynamic chains are written as chains,
    and those that may repeat a passage, which no ranking says (but pooled ones: a ranking of several chains).
    Where an id holds white space there is no TREC run, and a warning says so: JSONL holds everything.

    Args:
        output: Path without ending.
        queries: What was asked.
        corpus: What was searched.
        retrieved: For each query, in their order; it is walked more than once.
        info: The manifest.

    Returns:
        What was written, in a line.
    """
    dynamic = info.steps == "dynamic"
    repeats = info.options.get("repeat") is True and info.options.get("pool") is not True
    chained = dynamic or (info.steps == "fixed" and repeats)
    written = retrieved if chained else (one._replace(chain=None) for one in retrieved)
    write_results(f"{output}.jsonl", queries, corpus, info.score_mode, written)
    if dynamic:
        done = [one.chain.done for one in retrieved if one.chain is not None]
        missing = len(done) - sum(done)
        if missing > len(done) / 2:  # most chains were ended by the limit of hops
            log.warning(
                "%d of %d chains ended without DONE, most likely at the limit of hops: was the model trained "
                "with it (%s; a bi-encoder with %s)? If it was, let `grls tune` find %s, or raise %s.",
                missing,
                len(done),
                Option("data.done", True),
                Option("fit.done", True),
                Option("hops.done_bias"),
                Option("hops.max"),
            )
    unfit = next((why for one in retrieved if (why := unfit_for_trec({one.query_id: one.hits}))), None)
    if unfit is None:
        write_run(f"{output}.trec", ((one.query_id, one.hits) for one in retrieved))
    else:
        Path(f"{output}.trec").unlink(missing_ok=True)  # an earlier run's
        log.warning("%s.trec is not written; %s.jsonl holds everything: %s", output, output, unfit)
    endings = ENDINGS if unfit is None else (".jsonl",)
    write_info(output, info, endings)
    files = ", ".join(f"{output}{ending}" for ending in endings)
    return f"{files}: {counted(len(queries), 'query')}, score mode {info.score_mode}, {info.seconds:.1f} s"


def refuse_own_output(output: str, runs: Sequence[str]) -> None:
    """Refuse (ConfigError) an output that would overwrite a run that is read, or that can be no name."""
    refuse_unwritable(output)
    for run in runs:
        if info_file(run).resolve() == Path(f"{output}.info.json").resolve():
            raise ConfigError(
                f"{Option('output', output)} would replace {run}, which is read; choose another name."
            )
