"""``grls check``: what is peculiar about a corpus, and whether an index or retriever folder is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.errors import ConfigError, DataError, MismatchError
from grls.io.arguments import Count, NonNegativeInt


def check(
    data: str | None = None,
    *,
    index: str | None = None,
    tokenizer: str | None = None,
    max_passage_tokens: Count = 512,
    examples: NonNegativeInt = 3,
    output: str | None = None,
) -> None:
    """Check a data set, or with ``--index`` an index or retriever folder.

    Of the corpus it counts, with examples, what is unusual but breaks nothing: duplicates, empty passages,
    and passages longer than the limit, which a generator cuts. In a data set folder it also
    checks queries, evidence and qrels. It says how many of them it checked, and names each fault with file
    and line: repeated ids, splits and queries without gold. If there is a fault, the exit code is 1. Unknown
    ids are named as well, and are no fault: evaluation and training warn of them and go on. It also says what
    is the gold (qrels; without any, the field `evidence` of the queries), and how many queries have none.

    With ``--index`` it checks an index or a retriever folder of any kind, with its members, and no data:
    that the checksums are right, that the files belong together, that the index holds each passage once and
    in order, that models encode as stored, that the folder opens and answers. It prints one line a check. If
    one is broken, the file and the remedy stand below it, and the exit code is 1.

    Args:
        data: The data set folder, or its ``corpus.jsonl`` alone.
        index: A retriever folder, or the folder of an index, to check in place of data.
        tokenizer: The tokenizer of the generator: a folder, a hub name, or a name that configs use; null:
            lengths are counted in words.
        max_passage_tokens: Passages longer than this are counted, in tokens (without a tokenizer in words).
        examples: Number of passage ids to show of each kind.
        output: File to write the report to, as JSON.
    """
    from grls.io.files import write_json
    from grls.io.progress import counted

    if (data is None) == (index is None):
        raise ConfigError("give a data set, or the folder of a retriever or index as --index: one of both.")
    if index is not None:
        from grls.retrieve.folder_check import check_folder, format_folder_check

        folder = check_folder(index)
        print(format_folder_check(folder))
        if output is not None:
            parts = [part._asdict() | {"file": str(part.file)} for part in folder.parts]
            write_json(output, {"folder": str(folder.folder), "parts": parts})
        if folder.faults:
            raise MismatchError(
                f"{index}: {len(folder.faults)} of {len(folder.parts)} checks are broken, see above."
            )
        return
    from grls.data.codec import Codec, Limits
    from grls.data.corpus import Corpus
    from grls.data.dataset import (
        DataCheck,
        check_corpus,
        check_data,
        format_check,
        format_data_check,
        format_faults,
        passage_queries,
        read_split,
    )
    from grls.models.load.build import load_tokenizer

    assert data is not None
    codec = None if tokenizer is None else Codec(load_tokenizer(tokenizer), Limits(max_passage_tokens))
    passages = Corpus.read(data)
    report = check_corpus(passages, codec, max_passage_tokens, examples)
    print(format_check(report))
    checked = DataCheck([], [], None)
    if Path(data).is_dir():
        checked = check_data(data, passages)
        print(format_data_check(data, checked))
        if not checked.faults:
            for split in sorted((Path(data) / "qrels").glob("*.tsv")):
                passage_queries(*read_split(data, split.stem), passages)  # tells of queries that are passages
    faults = checked.faults
    if output is not None:
        results: dict[str, Any] = {"findings": [f._asdict() for f in report.findings]}
        results["faults"] = [f._asdict() | {"file": str(f.file)} for f in faults]
        results["checked"] = [f._asdict() | {"file": str(f.file)} for f in checked.files]
        results["gold"] = None if checked.gold is None else checked.gold._asdict()
        write_json(output, report._asdict() | results)
    if faults:
        print(format_faults(sorted(faults, key=lambda fault: fault.told)))
    if refused := sum(not fault.told for fault in faults):
        raise DataError(
            f"{counted(refused, 'fault')} in queries and qrels; correct them before you train.", data
        )
