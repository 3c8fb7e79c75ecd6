"""StrategyQA: question -> its facts in the order of the file, or its evidence paragraphs step by step.

Without ``--paragraphs`` the corpus is the facts that the annotators wrote. With ``--paragraphs`` the corpus
is the paragraphs of Wikipedia in that file, written as they are read, and gold passages are the paragraphs
that an annotator named as evidence, step by step. Answers are yes or no. The annotated questions
(``train.json`` and ``dev.json`` together, or ``strategyqa_train.json`` with the same questions) are split
75/5/20 as in arXiv 2204.13596. The corpus of that paper differs: the paragraphs, cut into sentences by NLTK,
and the annotated facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from data_prep import common, stream
from data_prep.raw import read_json_object
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.files import read_json
from grls.io.progress import counted

RATIOS = (0.75, 0.05, 0.20)


def prepare(
    raw: Path,
    out: Path,
    paragraphs: Path | None = None,
    drop_missing: bool = False,
    seed: int = 0,
    tokenizer: Path | None = None,
) -> None:
    """Prepare StrategyQA.

    Args:
        raw: Folder with strategyqa_train.json, or with train.json and dev.json.
        out: Folder to write; an earlier one is replaced.
        paragraphs: The file strategyqa_train_paragraphs.json (it may be gzip'd); its paragraphs become the
            corpus, instead of the facts.
        drop_missing: With paragraphs: leave out questions whose evidence the file lacks, instead of refusing
            the file.
        seed: Seed of the split.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    both = raw / "strategyqa_train.json"
    files = [both] if both.is_file() else [raw / "train.json", raw / "dev.json"]
    if paragraphs is not None:
        _prepare_paragraphs(files, out, paragraphs, drop_missing, seed, tokenizer)
        return
    records = [(query, facts) for file in files for query, facts, _ in _records(file)]
    pool = common.PassagePool()
    pool.update(fact for _, facts in records for fact in facts)
    find = pool.finder()
    queries = [query._replace(evidence=find(facts)) for query, facts in records]
    common.finish(out, common.dataset(pool.passages(), common.three_splits(queries, RATIOS, seed)), tokenizer)


def _prepare_paragraphs(
    files: list[Path],
    out: Path,
    paragraphs: Path,
    drop_missing: bool,
    seed: int,
    tokenizer: Path | None,
) -> None:
    questions = [
        query._replace(evidence=_evidence(record, file, query.id))
        for file in files
        for query, _, record in _records(file)
    ]
    queries = [query for query in questions if query.evidence]
    if left_out := len(questions) - len(queries):
        print(f"{'left out':<20} {counted(left_out, 'question')} without an evidence paragraph")
    gold = stream.GoldWatch(common.three_splits(queries, RATIOS, seed))

    def corpus() -> Iterator[Passage]:
        for name, record in read_json_object(paragraphs):
            label = f"record {name!r}"
            title = common.field(record, "title", str, paragraphs, label)
            text = " ".join(common.field(record, "content", str, paragraphs, label).split())
            yield Passage(_id(name), text, title)

    stream.finish_stream(out, gold.watch(corpus()), lambda: gold.found(paragraphs, drop_missing), tokenizer)


def _id(paragraph: str) -> str:
    """The id of a paragraph, such as Genghis_Khan-17: TREC runs take no white space in ids."""
    return re.sub(r"\s", "_", paragraph)


def _evidence(record: Mapping[str, Any], file: Path, query_id: str) -> tuple[str, ...]:
    """The ids of the paragraphs of the first annotator who names any, step by step; may be empty.

    The raw field is a list of annotators, each a list of steps, each a list of paragraph lists and of the
    words "operation" and "no_evidence".
    """
    label = f"question {query_id!r}"
    named = [
        [
            _id(name)
            for step in _lists(steps, file, label)
            for part in _lists(step, file, label)
            if not isinstance(part, str)
            for name in common.strings({"evidence": part}, "evidence", file, label)
        ]
        for steps in _lists(record.get("evidence"), file, label)
    ]
    first: list[str] = next(filter(None, named), [])
    return tuple(dict.fromkeys(first))


def _lists(value: Any, file: Path, label: str) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(
            f"{label}: expected 'evidence' as annotators of steps of paragraph lists, got {value!r:.80}.",
            file,
        )
    return value


def _records(file: Path) -> Iterator[tuple[Query, list[str], dict[str, Any]]]:
    """(query, facts, raw record) of every question."""
    records = read_json(file)
    if not isinstance(records, list):
        raise DataError(f"expected a JSON list of questions, got {type(records).__name__}.", file)
    for number, record in enumerate(records, 1):
        label = f"record {number}"
        if not isinstance(record, dict):
            raise DataError(f"{label}: expected a JSON object, got {record!r:.80}.", file)
        answer = common.field(record, "answer", bool, file, label)
        steps = common.strings(record, "decomposition", file, label)
        query = Query(
            id=common.field(record, "qid", str, file, label),
            text=common.field(record, "question", str, file, label),
            metadata=common.metadata(answer=answer, decomposition=steps),
            answers=("yes" if answer else "no",),
        )
        yield query, common.strings(record, "facts", file, label), record
