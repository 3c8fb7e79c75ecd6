"""HotpotQA: question -> its two gold passages, in retrieval order.

The raw files are a published sample of 500 questions of the validation set: ``bm25_results.csv`` (question,
type, gold titles) and ``pooled_corpus_validation_500_title_text.jsonl``, the 4,937 paragraphs that the 500
questions came with. It has no answers. The split into 300 / 40 / 160 (train / dev / test, by ``seed``) is
ours: a sample for development, neither the training set nor the five-million-passage corpus of the paper.

For a bridge question the order is inferred, see :mod:`data_prep.hops`; for a comparison any order is right
(metadata ``any_order: true``), so training draws a new order each epoch.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from data_prep import common, hops
from data_prep.raw import read_csv
from grls.data.types import Query
from grls.errors import DataError
from grls.io.jsonl import read_jsonl

QUESTIONS = "bm25_results.csv"
CORPUS = "pooled_corpus_validation_500_title_text.jsonl"
COLUMNS = ("example_id", "question_type", "question", "gold_titles")
KINDS = ("bridge", hops.COMPARISON)


class Question(NamedTuple):
    """A question of the sample, with its gold titles in the order of the file."""

    id: str
    text: str
    kind: str
    titles: tuple[str, ...]


def prepare(
    raw: Path,
    out: Path,
    seed: int = 0,
    ratios: Sequence[float] = (0.6, 0.08, 0.32),
    tokenizer: Path | None = None,
) -> None:
    """Prepare the sample of HotpotQA's validation set.

    Args:
        raw: Folder with bm25_results.csv and pooled_corpus_validation_500_title_text.jsonl.
        out: Folder to write; an earlier one is replaced.
        seed: Seed of the split.
        ratios: Shares of train, dev and test; they add up to 1.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    common.refuse_other_than_three(ratios)
    texts = _texts(raw / CORPUS)
    pool = common.PassagePool()
    for title, text in texts.items():
        pool.add(text, html.unescape(title))
    find = pool.finder()
    queries, rules = [], Counter[str]()
    for question in _questions(raw / QUESTIONS, texts):
        gold = [hops.read(title, texts[title], question.titles) for title in question.titles]
        ordered = hops.order(question.text, gold, question.kind)
        rules[ordered.rule] += 1
        evidence = find((texts[hop.title], html.unescape(hop.title)) for hop in ordered.hops)
        stored = common.metadata(**ordered.metadata(question.kind))
        queries.append(Query(question.id, question.text, evidence, metadata=stored))
    splits = common.three_splits(queries, ratios, seed)
    common.finish(out, common.dataset(pool.passages(), splits), tokenizer)
    print(hops.describe(rules))


def _texts(file: Path) -> dict[str, str]:
    """Title -> text of every passage."""
    texts: dict[str, str] = {}
    for line, record in read_jsonl(file):
        title = common.field(record, "title", str, file, line)
        if title in texts:
            raise DataError(
                f"the title {title!r} is used twice; gold passages are named by title.", file, line
            )
        texts[title] = common.field(record, "text", str, file, line)
    return texts


def _questions(file: Path, texts: Mapping[str, str]) -> Iterator[Question]:
    """The questions without repeats; the file has a row for each setting of its BM25 baseline."""
    known: dict[str, Question] = {}
    for line, row in read_csv(file, COLUMNS):
        name, kind, text, gold = row
        titles = tuple(title.strip() for title in gold.split(" | "))
        question = Question(name, " ".join(text.split()), kind, titles)
        if question.kind not in KINDS:
            raise DataError(
                f"expected 'question_type' to be {' or '.join(KINDS)}, got {question.kind!r}.", file, line
            )
        if len(set(titles)) != 2:
            raise DataError(
                f"expected 'gold_titles' to be two titles around ' | ', got {gold!r:.120}.", file, line
            )
        for title in titles:
            if title not in texts:
                raise DataError(f"the gold title {title!r} stands in no line of {CORPUS}.", file, line)
        if known.setdefault(question.id, question) != question:
            raise DataError(f"the question {question.id!r} differs from its earlier row.", file, line)
    yield from known.values()
