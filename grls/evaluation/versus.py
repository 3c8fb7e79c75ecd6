"""Compares two runs of the same queries, measure by measure: the difference, and whether it is chance.

The module joins runs, metrics and the paired tests of :mod:`grls.evaluation.significance`. A query without an
answer has the value 0. Pages that compare many runs: :mod:`grls.report`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_queries, read_split
from grls.evaluation.depth import RunDepth, shared_depth, shared_name
from grls.evaluation.measures import MEASURES, measure_names, query_values
from grls.evaluation.metrics.averages import KS, cutoffs
from grls.evaluation.metrics.sequence_recall import recall_at
from grls.evaluation.significance import CONFIDENCE, Comparison, compare, shown_p
from grls.io.counts import counted
from grls.runs.comparable import load_runs, refuse_unknown_passages, refuse_unrelated
from grls.runs.run import Run, shared_limit
from grls.runs.trec import without_done


def compare_runs(
    run: str | Run,
    baseline: str,
    data: str | Path,
    split: str,
    ks: Sequence[int] | None,
    measures: Sequence[str] | None,
    corpus: Corpus,
) -> dict[str, Comparison]:
    """Compare two runs over the judged queries of a split.

    Args:
        run: JSONL or TREC run, or a loaded run.
        baseline: JSONL or TREC run to compare with.
        data: The data set folder.
        split: The split of the qrels.
        ks: Cut-offs of the recalls; None: those of :func:`~grls.evaluation.evaluate.evaluate_run`.
        measures: Standard measures (:func:`grls.evaluation.measures.measure_names`); None: likewise.
        corpus: The corpus of ``data``.

    Returns:
        ``recall@k`` and each measure -> the comparison of the run with the baseline, without those that read
        deeper than one of the two was cut off. A measure without a cut-off is compared at the depth that both
        have, and called by it (``RR@10``).

    Raises:
        ConfigError: One of ``ks`` or ``measures`` does.
        DataError: A file is missing, malformed or empty, answers no query of the split, or has a query or a
            passage that the data set does not have.
        MismatchError: The manifests show other corpora or queries.
    """
    loaded = load_runs([run, baseline])
    queries, qrels = read_split(data, split, corpus, shared_limit(loaded))
    every = {query.id for query in read_queries(data)}
    for one in loaded:
        refuse_unrelated(one, data, split, qrels, every)
    refuse_unknown_passages(loaded, corpus)
    gold = {query.id: gold_passages(query, qrels) for query in queries}
    cuts, names = cutoffs(KS if ks is None else ks), measure_names(MEASURES if measures is None else measures)
    depths = [RunDepth.of(one, len(corpus), [*gold.values()]) for one in loaded]
    for depth in depths:
        depth.refuse([] if ks is None else [f"recall@{k}" for k in cuts])
        depth.refuse([] if measures is None else names)
    values, shared = [], shared_depth(depths)
    for one in loaded:
        ranked = {q: [hit.id for hit in without_done(one.rankings.get(q, ()))][:shared] for q in qrels}
        recalls = {f"recall@{k}": [recall_at(ranked[q], gold[q], k) for q in qrels] for k in cuts}
        values.append(recalls | query_values(names, ranked, qrels))
    told = [name for name in values[0] if all(depth.tells(name) for depth in depths)]
    return {shared_name(name, depths): compare(values[0][name], values[1][name]) for name in told}


def format_comparison(compared: Mapping[str, Comparison], baseline: str) -> str:
    """A table: difference in points, its interval, p."""
    first = next(iter(compared.values()))
    lines = [
        f"beside {baseline}, {counted(first.queries, 'query')}: difference in points, {CONFIDENCE:.0%} "
        "interval, p"
    ]
    for name, one in compared.items():
        interval = (
            "-" if one.low is None or one.high is None else f"{100 * one.low:+.1f} to {100 * one.high:+.1f}"
        )
        lines.append(f"{name:<22}{100 * one.difference:+8.1f}   {interval:<16} {shown_p(one.p)}")
    return "\n".join(lines)
