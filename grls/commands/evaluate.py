"""``grls evaluate``: every metric that applies to a run."""

from __future__ import annotations

from grls.data.corpus import Corpus
from grls.errors import ConfigError
from grls.evaluation.measures import MEASURES, measure_names
from grls.evaluation.metrics.averages import KS
from grls.io.files import write_json
from grls.io.terminal import visible


def evaluate(
    run: str,
    data: str,
    split: str | None = None,
    ks: tuple[int, ...] | int | str = KS,
    measures: str | None = None,
    baseline: str | None = None,
    output: str | None = None,
    examples: int = 0,
) -> None:
    """Score a run with every metric that applies.

    Args:
        run: JSONL that ``grls retrieve`` wrote, or any TREC run.
        data: Data set folder.
        split: Which qrels; null: those that the run was retrieved for (as its manifest says, else test).
        ks: Cut-offs of recall, as ``[1,5,10,20]``.
        measures: Standard measures by their ir_measures names, as 'nDCG@10 RR'; null: nDCG@10, RR, AP, P@5
            and Judged@10.
        baseline: Another run of the same queries: prints how far each recall and measure of the run is above
            its, with the 95 % interval and p of a paired test over queries.
        output: Write the report as JSON here, too.
        examples: Print this many queries with what was retrieved, successes and failures mixed.
    """
    from grls.evaluation.evaluate import evaluate_run, format_report
    from grls.evaluation.examples import format_examples
    from grls.evaluation.versus import compare_runs, format_comparison

    if isinstance(ks, int | str):
        raise ConfigError(f"expected --ks to be a list of cut-offs: write --ks [{ks}], not --ks {ks}.")
    names = measure_names(MEASURES if measures is None else measures)
    corpus = Corpus.read(data)
    report = evaluate_run(run, data, split, list(ks), corpus, names)
    print(visible(format_report(report)))
    if baseline is not None:
        compared = compare_runs(run, baseline, data, report["split"], list(ks), names, corpus)
        report["baseline"] = {"run": baseline, **{name: c._asdict() for name, c in compared.items()}}
        print("\n" + visible(format_comparison(compared, baseline)))
    if examples:
        print("\n" + format_examples(run, data, report["split"], corpus, examples))
    if output is not None:
        write_json(output, report)
