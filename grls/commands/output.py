"""What retrieval leaves behind: a TREC run, JSONL with the texts, and a manifest."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.types import Chain, Hit, Query
from grls.runs.manifest import ENDINGS, RunInfo, write_info
from grls.runs.results import write_result_parts
from grls.runs.trec import chain_ranking, unfit_for_trec, write_run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What was retrieved for each query, in their order.

    Attributes:
        rankings: Hits, best first; None where there are chains alone, which are rankings too.
        chains: One chain a query, where retrieval went hop by hop.
    """

    rankings: Sequence[Sequence[Hit]] | None = None
    chains: Sequence[Chain] | None = None

    def ranked(self) -> list[list[Hit]]:
        """The hits of each query, best first."""
        if self.rankings is not None:
            return [list(hits) for hits in self.rankings]
        return [chain_ranking(chain) for chain in self.chains or ()]


Outcomes = Iterable[tuple[Sequence[Query], Outcome]]
"""Queries in parts, each with what was retrieved for them; to be walked more than once."""


def write_outputs(
    output: str, queries: Sequence[Query], corpus: Corpus, outcome: Outcome | Outcomes, info: RunInfo
) -> None:
    """Write ``output.jsonl``, ``output.trec`` and ``output.info.json``, and say so.

    A fixed number of hops is a ranking: it has no DONE to miss, so only dynamic chains are written as chains.
    Where an id holds white space there is no TREC run, which is told: JSONL holds everything. Of what comes
    in parts one part at a time is in memory.
    """
    outcomes = [(queries, outcome)] if isinstance(outcome, Outcome) else outcome
    dynamic = info.steps == "dynamic"
    parts = (_part(asked, some, dynamic) for asked, some in outcomes)
    write_result_parts(f"{output}.jsonl", corpus, info.score_mode, parts)
    if dynamic:
        _tell_missing_done([chain.done for _, some in outcomes for chain in some.chains or ()])
    every = (_part(asked, some, False)[1] for asked, some in outcomes)
    unfit = next((why for rankings in every if (why := unfit_for_trec(rankings)) is not None), None)
    if unfit is None:
        every = (_part(asked, some, False)[1] for asked, some in outcomes)
        write_run(f"{output}.trec", (pair for rankings in every for pair in rankings.items()))
    else:
        Path(f"{output}.trec").unlink(missing_ok=True)  # an earlier run's
        log.warning("%s.trec is not written; %s.jsonl holds everything: %s", output, output, unfit)
    endings = ENDINGS if unfit is None else (".jsonl",)
    write_info(output, info, endings)
    print(
        f"{', '.join(f'{output}{ending}' for ending in endings)}: {len(queries):,} queries, score mode "
        f"{info.score_mode}, {info.seconds:.1f} s"
    )


def _part(
    queries: Sequence[Query], outcome: Outcome, chains: bool
) -> tuple[Sequence[Query], dict[str, list[Hit]], dict[str, Chain]]:
    """Rankings by query id and, where they are wanted and there are some, chains."""
    ids = [query.id for query in queries]
    kept = outcome.chains if chains else None
    rankings = dict(zip(ids, outcome.ranked(), strict=True))
    return queries, rankings, {} if kept is None else dict(zip(ids, kept, strict=True))


def _tell_missing_done(done: Sequence[bool]) -> None:
    """Warn where most chains were ended by the limit of hops: the model may never have learned DONE."""
    missing = sum(not some for some in done)
    if missing > len(done) / 2:
        log.warning(
            "%d of %d chains ended without DONE, most likely at the limit of hops: was the model trained "
            "with it (--data.done true; a bi-encoder with --done true)? If it was, let `grls tune` "
            "find hops.done_bias, or raise --hops.max.",
            missing,
            len(done),
        )
