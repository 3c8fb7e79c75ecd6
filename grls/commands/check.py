"""``grls check``: what is peculiar about a corpus."""

from __future__ import annotations

from grls.errors import DataError


def check(
    data: str,
    *,
    tokenizer: str | None = None,
    max_passage_tokens: int = 512,
    examples: int = 3,
    output: str | None = None,
) -> None:
    """Report what is peculiar about a corpus, which breaks nothing, and what is wrong with a data set's rest.

    Counts, with examples: duplicates, empty passages, passages longer than the limit, passages that are a
    prefix of another one, passages equal to another once cut, passages that do not survive the tokenizer's
    round trip. Of a data set folder, besides, every fault of queries, evidence and qrels with file and line:
    repeated and unknown ids, splits and queries without gold; where there is one, the exit code is 1.

    Args:
        data: The data set folder, or its ``corpus.jsonl`` alone.
        tokenizer: Of the generator: a folder, a hub name, or a name that configs use; without it, tokens are
            words and the round trip is not tried.
        max_passage_tokens: The length limit.
        examples: Ids shown of each kind.
        output: Write the report as JSON here, too.
    """
    from pathlib import Path

    from grls.data.codec import Codec, Limits
    from grls.data.corpus import Corpus
    from grls.data.dataset_check import check_data, format_faults
    from grls.index.corpus_check import check_corpus, format_check
    from grls.io.files import write_json
    from grls.io.logs import quiet
    from grls.models.load.build import load_tokenizer

    quiet()
    codec = None if tokenizer is None else Codec(load_tokenizer(tokenizer), Limits(max_passage_tokens))
    passages = Corpus.read(data)
    report = check_corpus(passages, codec, max_passage_tokens, examples)
    print(format_check(report))
    faults = check_data(data, passages) if Path(data).is_dir() else []
    if output is not None:
        results = {"findings": [f._asdict() for f in report.findings]}
        results["faults"] = [f._asdict() | {"file": str(f.file)} for f in faults]
        write_json(output, report._asdict() | results)
    if faults:
        print(format_faults(faults))
        raise DataError(f"{len(faults):,} faults in queries and qrels; correct them before you train.", data)
