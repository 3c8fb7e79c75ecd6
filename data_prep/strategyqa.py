"""StrategyQA: question -> its facts, in the order of the file.

The paragraphs of Wikipedia are no part of the raw files, so the corpus is the facts. The annotated
questions (``train.json`` and ``dev.json`` together) are split anew, 75/5/20 as in the paper.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from data_prep import common
from grls.errors import DataError
from grls.files import read_json
from grls.types import Query

RATIOS = (0.75, 0.05, 0.20)


def prepare(raw: Path, out: Path, seed: int = 0, tokenizer: Path | None = None) -> None:
    """Prepare StrategyQA.

    Args:
        raw: Folder with train.json and dev.json.
        out: Folder to write; an earlier one is replaced.
        seed: Decides which question goes into which split.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    records = [record for name in ("train.json", "dev.json") for record in _records(raw / name)]
    pool = common.PassagePool()
    for _, facts in records:
        for fact in facts:
            pool.add(fact)
    find = pool.finder()
    queries = [query._replace(evidence=find(facts)) for query, facts in records]
    parts = common.split(queries, RATIOS, seed, group=lambda q: common.query_key(q.text))
    splits = dict(zip(common.SPLITS, parts, strict=True))
    common.finish(out, common.dataset(pool.passages(), splits), tokenizer)


def _records(file: Path) -> list[tuple[Query, list[str]]]:
    records = read_json(file)
    if not isinstance(records, list):
        raise DataError(f"expected a JSON list of questions, got {type(records).__name__}.", file)
    return [_record(record, file, f"record {n}") for n, record in enumerate(records, 1)]


def _record(record: Any, file: Path, place: str) -> tuple[Query, list[str]]:
    if not isinstance(record, dict):
        raise DataError(f"{place}: expected a JSON object, got {record!r:.80}.", file)
    answer = common.field(record, "answer", bool, file, place)
    steps = common.strings(record, "decomposition", file, place)
    query = Query(
        id=common.field(record, "qid", str, file, place),
        text=common.field(record, "question", str, file, place),
        metadata=common.metadata(answer=answer, decomposition=steps),
    )
    return query, common.strings(record, "facts", file, place)


if __name__ == "__main__":
    common.run(prepare)
