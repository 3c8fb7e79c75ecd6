"""``grls evaluate``: every metric that applies to runs, or to answers."""

from __future__ import annotations

from typing import Any

from grls.errors import ConfigError
from grls.evaluation.options import AutoAISOptions

_AUTOAIS = AutoAISOptions()


def evaluate(
    runs: list[str],
    *,
    data: str,
    split: str | None = None,
    ks: tuple[int, ...] | None = None,
    measures: str | None = None,
    baseline: str | None = None,
    examples: int = 0,
    autoais: AutoAISOptions = _AUTOAIS,
    limit: int | None = None,
    output: str | None = None,
    device: str = "auto",
) -> None:
    """Score runs, or answers and their evidence, with every metric that applies.

    Args:
        runs: NAME.jsonl or any TREC run; or NAME.answers.jsonl: exact match, F1, hits@k and, with a model of
            entailment, AutoAIS. NAME.info.json beside it says what made it.
        data: Data set folder.
        split: Split of the qrels; null: from the manifest of the run, else test.
        ks: Cut-offs of recall or hits, as ``1 5``; null: 1, 5, 10, 20 of runs, 1 and 5 of answers, with a
            dash for what reads deeper than a run was cut off.
        measures: Standard measures of runs by their ir_measures names, as 'nDCG@10 RR'; null: nDCG@10, RR,
            AP, P@5 and Judged@10, with a dash likewise.
        baseline: Another run of the same queries. For each recall and measure, the difference of the run to
            the baseline is printed, with the 95 % interval and p of a paired test over queries.
        examples: Print this many queries with what was retrieved, successes and failures mixed.
        autoais: Whether evidence supports answers.
        limit: Number of first queries that were answered; null: as the manifests of the answers say, else
            all. Queries without an answer score 0. Not for runs, whose manifests say it.
        output: File for the report as JSON; null: only print it.
        device: Where entailment is judged: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    from grls.data.corpus import Corpus
    from grls.evaluation.answers import ENDING
    from grls.evaluation.evaluate import evaluate_run, format_report
    from grls.evaluation.examples import format_examples
    from grls.evaluation.measures import measure_names
    from grls.evaluation.significance import compare_runs, format_comparison
    from grls.io.files import refuse_unwritable, write_json
    from grls.io.option_errors import visible
    from grls.runs.run import Run

    answers = [run for run in runs if run.endswith(ENDING)]
    if answers and len(answers) < len(runs):
        raise ConfigError(f"{answers[0]} holds answers, and others are runs; score them by commands apart.")
    if limit is not None and not answers:
        raise ConfigError("--limit is of answers: leave it out for runs, whose manifests say it.")
    if answers and (measures is not None or baseline is not None or examples):
        raise ConfigError("--measures, --baseline and --examples are of runs; leave them out for answers.")
    if autoais != _AUTOAIS or device != "auto":
        if not answers:
            raise ConfigError(
                "--autoais and --device are of answers, whose evidence a model judges: leave them out for "
                "runs, or give NAME.answers.jsonl."
            )
        if autoais.model is None:
            raise ConfigError(
                "--autoais.premise, --autoais.batch_size and --device are of a model of entailment: give "
                "--autoais.model, too, or leave them out."
            )
    if output is not None:
        refuse_unwritable(output)
    if answers:
        from grls.data.dataset import read_split
        from grls.evaluation.answers import score_file, split_and_limit, table
        from grls.models.entailment import load_entailment

        corpus, nli = Corpus.read(data), autoais.model
        split, limit = split_and_limit(runs, split, limit)
        queries, qrels = read_split(data, split, corpus, limit)
        judge = None if nli is None else load_entailment(nli, device, autoais.batch_size)
        rows = [score_file(file, queries, qrels, corpus, ks, judge, autoais.premise) for file in runs]
        print("\n".join(table(rows)))
        report: dict[str, Any] = {"split": split, "nli": nli, "premise": autoais.premise, "answers": rows}
    else:
        names = None if measures is None else measure_names(measures)
        corpus = Corpus.read(data)
        reports = []
        for number, run in enumerate(runs):
            if len(runs) > 1:
                print(f"{chr(10) if number else ''}{visible(run)}")
            loaded = Run.load(run)
            scored = evaluate_run(loaded, data, split, ks, corpus, names)
            print(visible(format_report(scored)))
            if baseline is not None:
                compared = compare_runs(loaded, baseline, data, scored["split"], ks, names, corpus)
                scored["baseline"] = {"run": baseline, **{name: c._asdict() for name, c in compared.items()}}
                print("\n" + visible(format_comparison(compared, baseline)))
            if examples:
                print("\n" + format_examples(loaded, data, scored["split"], corpus, examples))
            reports.append(scored)
        each = [{"run": run, **report} for run, report in zip(runs, reports, strict=True)]
        report = reports[0] if len(reports) == 1 else {"runs": each}
    if output is not None:
        write_json(output, report)
