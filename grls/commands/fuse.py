"""``grls fuse``: fuse runs.

The paper's ensembles (arXiv 2204.13596) interleave; the weights of the other methods can be tuned on runs for
development queries.
"""

from __future__ import annotations

from grls.errors import ConfigError
from grls.io.arguments import Count
from grls.retrieve.fusion.retriever import Fusion
from grls.tune.options import UNTUNED, TuneRuns

INTERLEAVED = Fusion()


def fuse_runs(
    runs: list[str],
    *,
    output: str,
    fusion: Fusion = INTERLEAVED,
    k: Count | None = None,
    data: str | None = None,
    split: str | None = None,
    tune: TuneRuns = UNTUNED,
    name: str | None = None,
) -> None:
    """Fuse runs into one: `grls fuse RUN RUN ... --output OUT`.

    Writes OUTPUT.trec, OUTPUT.jsonl (with evidence text) and OUTPUT.info.json. Without a data set (no --data,
    and no manifest beside the runs) OUTPUT.jsonl is left out.

    Args:
        runs: Runs over one corpus for the same queries: JSONL of `grls retrieve`, or TREC runs.
        output: Path of the results without ending.
        fusion: How rankings are fused.
        k: Number of passages for each query; null: the length of the longest list in the runs.
        data: Data set folder; null takes it from the manifests.
        split: Split of the queries of the runs; null: from their manifests. Queries that a run lacks count
            as answered with nothing, and a warning names them.
        tune: Runs to tune the weights on.
        name: Name of the run in reports; null: a name from the method and the members.
    """
    from grls.io.files import without_ending
    from grls.retrieve.fusion.runs import ensemble
    from grls.runs.comparable import (
        DevRuns,
        complete_runs,
        find_asked,
        load_runs,
        refuse_to_replace,
        save_for,
    )
    from grls.runs.portions import ENDINGS
    from grls.tune.weights import refuse_untunable, shown_weights, tune_run_weights

    output = without_ending(output, ENDINGS)
    if tune.runs is not None:
        refuse_untunable(fusion)
    elif tune != UNTUNED:
        raise ConfigError(
            "--tune.k is of runs to tune the weights on: give --tune.runs, too, or leave it out."
        )
    if len(runs) < 2:
        raise ConfigError(f"expected at least two runs, got {list(runs)}.")
    members = load_runs(runs)
    queries = find_asked(members, data, split)
    refuse_to_replace(output, [*runs, *(tune.runs or [])], queries)
    members = complete_runs(members, None if queries is None else queries.ids)
    tuned: dict[str, object] = {}
    if tune.runs is not None:
        dev = DevRuns.load(tune.runs, members, queries)
        dev.refuse_shared_queries(members[0])
        fusion, recall = tune_run_weights(fusion, dev, tune.k, k)
        tuned = {"tune": tune.runs, f"tuned_recall@{tune.k}": recall}
        weights = shown_weights(fusion.weights)
        print(f"weights {weights}: recall@{tune.k} {100 * recall:.1f} on {dev.split}")
    print(save_for(ensemble(members, fusion, tuned, k, name), output, queries))
