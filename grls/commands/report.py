"""``grls report``: one page that compares runs."""

from __future__ import annotations


def report(
    runs: list[str],
    *,
    output: str = "report",
    data: str | None = None,
    split: str | None = None,
    ks: tuple[int, ...] | None = None,
    k: int = 5,
    baseline: str | None = None,
    proofs: int = 2,
    seed: int = 0,
    title: str = "Retrieval runs",
    measures: str | None = None,
) -> None:
    """Compare runs on one page: tables, curves, proof graphs, significance, similarity.

    Writes OUTPUT.html (one file that needs nothing else) and OUTPUT-figures/ (its pictures).
    Runs of several data sets may be given together.

    Args:
        runs: NAME.jsonl or NAME.trec; a manifest NAME.info.json beside it says what made the run.
        output: Path of the page without ending.
        data: Data set folder of the runs that have no manifest, or whose folder is elsewhere now.
        split: Split of the qrels; null: from the manifests, else test.
        ks: Cut-offs of recall in the tables; null: 1, 5, 10, 20.
        k: Cut-off of significance tests and of similarity.
        baseline: Run that the others are tested against, as the page calls it; null takes the best.
        proofs: Successes and failures to draw of each run on RuleTaker-Open.
        seed: Seed of bootstrap and permutations.
        title: Heading of the page.
        measures: Standard measures by their ir_measures names, as 'nDCG@10 RR', each with its significance;
            null: nDCG@10 (the one that is tested), RR, AP, P@5 and Judged@10.
    """
    from grls.evaluation.measures import MEASURES, measure_names
    from grls.evaluation.metrics.averages import KS
    from grls.report.measure import refuse_untold, score_runs
    from grls.report.page import TESTED, build_page, write_report
    from grls.report.runs import load_groups

    names = measure_names(MEASURES if measures is None else measures)
    tested = TESTED if measures is None else [name for name in names if not name.startswith("Judged")]
    cuts = list(KS if ks is None else ks)
    groups = [score_runs(group, cuts, names) for group in load_groups(runs, data, split)]
    refuse_untold(groups, [*(f"R@{cut}" for cut in ks or ()), *(() if measures is None else names)])
    page = build_page(groups, cuts, k, baseline, proofs, seed, title, tested)
    for path in write_report(page, output):
        print(path)
