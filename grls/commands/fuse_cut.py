"""``grls fuse cut``: end rankings where F1 is expected to be highest, by development queries.

Any ranking can be cut: of a generator, of BM25, of an ensemble, of another tool. Where, says
:mod:`grls.retrieve.fusion.cut`.
"""

from __future__ import annotations


def fuse_cut(
    run: str,
    *,
    tune: str,
    output: str,
    data: str | None = None,
    split: str | None = None,
    tune_split: str | None = None,
    name: str | None = None,
) -> None:
    """Cut each ranking where its expected F1 is highest.

    Usage: `grls fuse cut RUN --tune DEV-RUN --output OUT`. Writes OUTPUT.trec, OUTPUT.jsonl (chains that are
    done, so `grls evaluate` and `grls report` show set F1) and OUTPUT.info.json.

    Args:
        run: A ranking: JSONL of `grls retrieve` (a single step, or a fixed number of hops) or of `grls fuse`,
            or a TREC run.
        tune: Run of the same system for development queries. From it the probability is estimated that a
            passage of a score and rank is gold.
        output: Path of the results without ending.
        data: Data set folder; null takes it from the manifests.
        split: Split of the queries of the run; null: from its manifest.
        tune_split: Split of the queries of `--tune`; null: from its manifest, else dev.
        name: Name of the run in reports; null: the name of the run, with `cut`.
    """
    from grls.runs.asked import find_asked, refuse_to_replace, save_for
    from grls.runs.comparable import complete_runs, load_runs
    from grls.runs.dev_runs import DevRuns
    from grls.tune.priors import cut_run, refuse_uncuttable

    members = load_runs([run])
    refuse_uncuttable(members[0])
    asked = find_asked(members, data, split)
    refuse_to_replace(output, [run, tune], asked)
    dev = DevRuns.load([tune], members, asked, tune_split)
    (member,) = complete_runs(members, None if asked is None else asked.ids, "refuse")
    cut = cut_run(member, dev, name)
    fitted = f"set F1 {100 * cut.fitted:.1f} on {dev.split}, which it was fitted to"
    known = f"{100 * cut.known:.1f} there with the known number of passages"
    print(f"{cut.mean:.1f} passages a query; {fitted}, {known}")
    print(save_for(cut.run, output, asked))
