"""``grls evaluate``: every metric that applies to a run."""

from __future__ import annotations

from grls.corpus import Corpus
from grls.errors import ConfigError
from grls.evaluation.evaluate import evaluate_run, format_report
from grls.evaluation.examples import format_examples
from grls.evaluation.manifest import read_info
from grls.evaluation.metrics.averages import KS
from grls.files import write_json


def evaluate(
    run: str,
    data: str,
    split: str | None = None,
    ks: tuple[int, ...] | int | str = KS,
    output: str | None = None,
    examples: int = 0,
) -> None:
    """Score a run with every metric that applies.

    Args:
        run: JSONL that ``grls retrieve`` wrote, or any TREC run.
        data: Data set folder.
        split: Which qrels; null: those that the run was retrieved for (as its manifest says, else test).
        ks: Cut-offs of recall, as ``[1,5,10,20]``.
        output: Write the report as JSON here, too.
        examples: Print this many queries with what was retrieved, successes and failures mixed.
    """
    if isinstance(ks, int | str):
        raise ConfigError(f"expected --ks to be a list of cut-offs: write --ks [{ks}], not --ks {ks}.")
    corpus = Corpus.read(data)
    if split is None:
        info = read_info(run)
        split = (info and info.split) or "test"
    report = evaluate_run(run, data, split, list(ks), corpus)
    print(format_report(report))
    if examples:
        print("\n" + format_examples(run, data, split, corpus, examples))
    if output is not None:
        write_json(output, report)
