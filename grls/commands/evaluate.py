"""``grls evaluate``: every metric that applies to runs, or to answers."""

from __future__ import annotations

from typing import Any

from grls.data.corpus import Corpus
from grls.errors import ConfigError
from grls.io.arguments import Count, NonNegativeInt
from grls.models.option_names import Device


def evaluate(
    runs: list[str],
    *,
    data: str,
    split: str | None = None,
    ks: tuple[int, ...] | None = None,
    measures: str | None = None,
    baseline: str | None = None,
    examples: NonNegativeInt = 0,
    nli: str | None = None,
    limit: Count | None = None,
    output: str | None = None,
    device: Device = "auto",
) -> None:
    """Score runs, or answers and their evidence, with every metric that applies.

    Args:
        runs: NAME.jsonl or any TREC run; or NAME.answers.jsonl: exact match, F1, hits@k and, with ``nli``,
            AutoAIS. NAME.info.json beside it says what made it.
        data: Data set folder.
        split: Split of the qrels; null: from the manifest of the run, else test.
        ks: Cut-offs of recall or hits, as ``1 5``; null: 1, 5, 10, 20 of runs, 1 and 5 of answers, with a
            dash for what reads deeper than a run was cut off.
        measures: Standard measures of runs by their ir_measures names, as 'nDCG@10 RR'; null: nDCG@10, RR,
            AP, P@5 and Judged@10, with a dash likewise.
        baseline: Another run of the same queries. For each recall and measure, the difference of the run to
            the baseline is printed, with the 95 % interval and p of a paired test over queries.
        examples: Print this many queries with what was retrieved, successes and failures mixed.
        nli: Folder or hub name of a model of entailment, which judges whether the quotes of an answer support
            it (AutoAIS): a classifier with a label `entailment`, or an encoder-decoder that writes 1 or 0.
        limit: Number of first queries that were answered; null: as the manifests of the answers say, else
            all. Queries without an answer score 0. Not for runs, whose manifests say it.
        output: File for the report as JSON; null: only print it.
    """
    from grls.evaluation.evaluate import format_report, judged_runs, score_run
    from grls.evaluation.examples import format_examples
    from grls.evaluation.measures import MEASURES, measure_names
    from grls.evaluation.metrics import KS, cutoffs
    from grls.evaluation.significance import compare_runs, format_comparison
    from grls.io.files import refuse_unwritable, write_json
    from grls.io.progress import visible
    from grls.runs.comparable import load_runs
    from grls.runs.portions import ANSWERS

    answers = [run for run in runs if run.endswith(ANSWERS)]
    if answers and len(answers) < len(runs):
        raise ConfigError(f"{answers[0]} holds answers, and others are runs; score them by commands apart.")
    if answers and (measures is not None or baseline is not None or examples):
        raise ConfigError("--measures, --baseline and --examples are of runs; leave them out for answers.")
    if not answers and (limit is not None or nli is not None):
        raise ConfigError("--limit and --nli are of answers: leave them out for runs.")
    names = measure_names(MEASURES if measures is None else measures)
    depths = cutoffs(KS if ks is None else ks)
    if output is not None:
        refuse_unwritable(output)
    corpus = Corpus.read(data)
    if answers:
        report = _evaluate_answers(runs, data, split, limit, corpus, ks, nli, device)
    else:
        named = [*(f"recall@{k}" for k in ks or ()), *(names if measures else ())]  # not to be left out
        reports = []
        for number, run in enumerate(runs):
            if len(runs) > 1:
                print(f"{chr(10) if number else ''}{visible(run)}")
            loaded = load_runs([run] if baseline is None else [run, baseline])
            judged, *others = judged_runs(loaded, data, split, corpus)
            for each in (judged, *others):
                each.depth.refuse(named)
            report = score_run(judged, depths, names)
            print(visible(format_report(report)))
            if baseline is not None:
                compared = compare_runs(judged, others[0], depths, names)
                report["baseline"] = {"run": baseline, **{name: c._asdict() for name, c in compared.items()}}
                print("\n" + visible(format_comparison(compared, baseline)))
            if examples:
                print("\n" + format_examples(judged, examples))
            reports.append({"run": run, **report})
        report = {"runs": reports} if len(reports) > 1 else report
    if output is not None:
        write_json(output, report)


def _evaluate_answers(
    files: list[str], data: str, split: str | None, limit: int | None, corpus: Corpus,
    ks: tuple[int, ...] | None, nli: str | None, device: str,
) -> dict[str, Any]:  # fmt: skip
    from grls.data.dataset import read_split
    from grls.evaluation.answers import score_file, split_and_limit, table
    from grls.models.entailment import load_entailment

    split, limit = split_and_limit(files, split, limit)
    queries, qrels = read_split(data, split, corpus, limit)
    entails = None if nli is None else load_entailment(nli, device)
    rows = [score_file(file, queries, qrels, corpus, ks, entails) for file in files]
    print("\n".join(table(rows)))
    return {"split": split, "nli": nli, "answers": rows}
