"""``grls evaluate``: every metric that applies to a run."""

from __future__ import annotations

from grls.corpus import Corpus
from grls.evaluation.evaluate import evaluate_run, format_report
from grls.evaluation.examples import format_examples
from grls.files import write_json


def evaluate(
    run: str,
    data: str,
    split: str = "test",
    ks: tuple[int, ...] = (1, 5, 10, 20),
    output: str | None = None,
    examples: int = 0,
) -> None:
    """Score a run with every metric that applies.

    Args:
        run: JSONL that ``grls retrieve`` wrote, or any TREC run.
        data: Data set folder.
        split: Which qrels.
        ks: Cut-offs of recall.
        output: Write the report as JSON here, too.
        examples: Print this many queries with what was retrieved, successes and failures mixed.
    """
    corpus = Corpus.read(data)
    report = evaluate_run(run, data, split, list(ks), corpus)
    print(format_report(report))
    if examples:
        print("\n" + format_examples(run, data, split, corpus, examples))
    if output is not None:
        write_json(output, report)
