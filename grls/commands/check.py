"""``grls check``: what is peculiar about a corpus, and whether an index or retriever folder is whole."""

from __future__ import annotations

from pathlib import Path

from grls.errors import ConfigError, DataError, MismatchError


def check(
    data: str | None = None,
    *,
    index: str | None = None,
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

    With ``--index``, check instead every invariant of an index or retriever folder of any kind, its members
    included: checksums, that its files belong together, that the index holds the passages, sorted and each
    once, that models encode as stored, that it opens and answers. One line a check; where one is broken, the
    file and the remedy below it, and the exit code is 1.

    Args:
        data: The data set folder, or its ``corpus.jsonl`` alone.
        index: A retriever folder, or the folder of an index; no data are checked then.
        tokenizer: Of the generator: a folder, a hub name, or a name that configs use; without it, tokens are
            words and the round trip is not tried.
        max_passage_tokens: The length limit.
        examples: Ids shown of each kind.
        output: Write the report as JSON here, too.
    """
    from grls.io.logs import quiet

    if (data is None) == (index is None):
        raise ConfigError("give a data set, or the folder of a retriever or index as --index: one of both.")
    quiet()
    if index is not None:
        _check_index(index, output)
    elif data is not None:
        _check_data(data, tokenizer, max_passage_tokens, examples, output)


def _check_index(folder: str, output: str | None) -> None:
    from grls.io.files import write_json
    from grls.retrieve.folder_check import check_folder, format_folder_check

    report = check_folder(folder)
    print(format_folder_check(report))
    if output is not None:
        parts = [part._asdict() | {"file": str(part.file)} for part in report.parts]
        write_json(output, {"folder": str(report.folder), "parts": parts})
    if report.faults:
        raise MismatchError(
            f"{folder}: {len(report.faults)} of {len(report.parts)} checks are broken, see above."
        )


def _check_data(data: str, tokenizer: str | None, limit: int, examples: int, output: str | None) -> None:
    from grls.data.codec import Codec, Limits
    from grls.data.corpus import Corpus
    from grls.data.dataset_check import check_data, format_faults
    from grls.index.corpus_check import check_corpus, format_check
    from grls.io.files import write_json
    from grls.models.load.build import load_tokenizer

    codec = None if tokenizer is None else Codec(load_tokenizer(tokenizer), Limits(limit))
    passages = Corpus.read(data)
    report = check_corpus(passages, codec, limit, examples)
    print(format_check(report))
    faults = check_data(data, passages) if Path(data).is_dir() else []
    if output is not None:
        results = {"findings": [f._asdict() for f in report.findings]}
        results["faults"] = [f._asdict() | {"file": str(f.file)} for f in faults]
        write_json(output, report._asdict() | results)
    if faults:
        print(format_faults(faults))
        raise DataError(f"{len(faults):,} faults in queries and qrels; correct them before you train.", data)
