"""Natural Questions with gold passages: question -> the one passage that answers it.

The module reads the "oracle" file of ``lost-in-the-middle``: gzip'd JSONL, each line a question, its short
answers and one gold passage of about 100 words. The corpus is the gold passages; nearly every question has
a different one, so test passages are unseen as gold. Full set: :mod:`data_prep.dpr`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep import common
from data_prep.raw import read_json_lines
from grls.data.types import Query
from grls.errors import DataError

FILE = "nq-open-oracle.jsonl.gz"


def prepare(
    raw: Path,
    out: Path,
    seed: int = 0,
    ratios: Sequence[float] = (0.8, 0.05, 0.15),
    tokenizer: Path | None = None,
) -> None:
    """Prepare Natural Questions with gold passages.

    Args:
        raw: Folder with nq-open-oracle.jsonl.gz.
        out: Folder to write; an earlier one is replaced.
        seed: Seed of the split.
        ratios: Shares of train, dev and test; they add up to 1.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    common.refuse_other_than_three(ratios)
    pool = common.PassagePool()
    records = []
    for query, text, title in _records(raw / FILE):
        pool.add(text, title)
        records.append((query, (text, title)))
    find = pool.finder()
    queries = [query._replace(evidence=find([passage])) for query, passage in records]
    splits = common.three_splits(queries, ratios, seed)
    common.finish(out, common.dataset(pool.passages(), splits), tokenizer)


def _records(file: Path) -> Iterator[tuple[Query, str, str]]:
    """The query, and text and title of its gold passage, of every line."""
    for line, record in read_json_lines(file):
        passages = common.field(record, "ctxs", list, file, line)
        gold = [p for p in passages if isinstance(p, dict) and p.get("isgold")]
        if len(gold) != 1:
            raise DataError(f"expected one gold passage in 'ctxs', got {len(gold)}.", file, line)
        query = Query(
            id=f"nq-{line}",
            text=common.field(record, "question", str, file, line),
            answers=tuple(common.strings(record, "answers", file, line)),
        )
        text = common.field(gold[0], "text", str, file, line)
        yield query, text, common.field(gold[0], "title", str, file, line)
