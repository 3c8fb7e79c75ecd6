"""2WikiMultihopQA: question -> two or four paragraphs, in the order of its supporting facts.

The raw files are those of the release: ``train.json`` and ``dev.json``, lists of questions, each with ten
paragraphs in ``context``. The corpus is all paragraphs of the questions that are taken. The questions of the
release's test file have no gold passages, so ``dev.json`` is our test split where it is there, and ``dev`` is
held out of training. Without ``dev.json`` all three splits come from ``train.json``.

The supporting facts of a compositional question are in retrieval order: its second paragraph is named in the
first one. Of a comparison any order is right, and its metadata says so (``any_order``). A bridge comparison
is ordered in part: each of its two pairs is, and the pairs are in any order. The release's order is kept for
it, so a chain that begins with the other pair counts as one in another order. The answers "yes" and "no"
stand only in the metadata: a passage does not answer a question because it holds the word "yes".
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_prep import common
from data_prep.hotpotqa_full import read_records, supporting_titles
from data_prep.raw import find_raw
from grls.data.types import Query
from grls.errors import ConfigError, DataError

TRAIN, TEST = "train.json", "dev.json"
COMPARISON = "comparison"
KINDS = ("compositional", COMPARISON, "inference", "bridge_comparison")


class Question(NamedTuple):
    """A question with its paragraphs.

    Attributes:
        id: Its id in the release.
        text: The question.
        kind: One of :data:`KINDS`.
        answer: The answer.
        gold: Titles of the supporting facts, each once, in their order.
        context: (title, text) of its paragraphs.
    """

    id: str
    text: str
    kind: str
    answer: str
    gold: tuple[str, ...]
    context: tuple[tuple[str, str], ...]


def prepare(
    raw: Path,
    out: Path,
    sample: int | None = None,
    seed: int = 0,
    ratios: Sequence[float] = (0.56, 0.12, 0.32),
    dev_share: float = 0.02,
    tokenizer: Path | None = None,
) -> None:
    """Prepare 2WikiMultihopQA.

    Args:
        raw: Folder with train.json and, for the official split, dev.json.
        out: Folder to write; an earlier one is replaced.
        sample: Number of questions to draw from each file; the corpus is their paragraphs; null: all.
        seed: Seed of the sample and of the split.
        ratios: Shares of train, dev and test where there is no dev.json; they add up to 1.
        dev_share: Share of train.json that becomes the dev split where dev.json is the test split.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    common.refuse_other_than_three(ratios)
    if not 0 < dev_share < 1:
        raise ConfigError(f"expected dev_share to lie between 0 and 1, got {dev_share}.")
    train = _drawn(list(_questions(find_raw(raw, TRAIN))), sample, seed)
    test_file = find_raw(raw, TEST)
    test = _drawn(list(_questions(test_file)), sample, seed) if test_file.is_file() else []
    pool = common.PassagePool()
    for question in (*train, *test):
        for title, text in question.context:
            pool.add(text, title)
    find = pool.finder()
    shares = (1 - dev_share, dev_share) if test else ratios
    parts = common.split(train, shares, seed, group=lambda q: common.query_key(q.text))
    splits = dict(zip(common.SPLITS, [*parts, test] if test else parts, strict=True))
    judged = {name: [_query(q, find) for q in questions] for name, questions in splits.items()}
    common.finish(out, common.dataset(pool.passages(), judged), tokenizer)


def _drawn(questions: list[Question], sample: int | None, seed: int) -> list[Question]:
    """A sample of the questions, in their order."""
    if sample is None:
        return questions
    if not 0 < sample <= len(questions):
        raise ConfigError(
            f"--sample {sample}: expected a number from 1 to {len(questions)}, those of a file."
        )
    return [questions[n] for n in sorted(random.Random(seed).sample(range(len(questions)), sample))]


def _questions(file: Path) -> Iterator[Question]:
    for label, record, texts in read_records(file, KINDS):
        context = tuple(_paragraphs(record, file, label))
        gold = supporting_titles(record, file, label)
        titles = dict(context)
        unknown = [title for title in gold if title not in titles]
        if unknown:
            raise DataError(
                f"{label}: the supporting fact {unknown[0]!r} is no paragraph of its 'context'.", file
            )
        name, text, answer, kind = texts
        yield Question(name, text, kind, answer, tuple(dict.fromkeys(gold)), context)


def _paragraphs(record: dict[str, Any], file: Path, label: str) -> Iterator[tuple[str, str]]:
    """(title, text) of the paragraphs of a question, each title once."""
    seen: set[str] = set()
    for entry in common.field(record, "context", list, file, label):
        match entry:
            case [str(title), list(sentences)] if title.strip() and all(
                isinstance(s, str) for s in sentences
            ):
                text = " ".join(" ".join(sentences).split())
            case _:
                raise DataError(
                    f"{label}: expected 'context' as [title, [sentences]], got {entry!r:.80}.", file
                )
        if text and title not in seen:  # some paragraphs of the release have no sentence
            seen.add(title)
            yield title, text


def _query(question: Question, find: common.Finder) -> Query:
    texts = dict(question.context)
    free: dict[str, Any] = {"any_order": True} if question.kind == COMPARISON else {}
    return Query(
        id=question.id,
        text=question.text,
        evidence=find((texts[title], title) for title in question.gold),
        answers=() if question.answer.lower() in ("yes", "no") else (question.answer,),
        metadata=common.metadata(type=question.kind, answer=question.answer, **free),
    )


if __name__ == "__main__":
    common.run(prepare)
