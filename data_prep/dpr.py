"""Natural Questions and SQuAD as dense passage retrieval released them: question -> passage of Wikipedia.

The full-size counterpart of :mod:`data_prep.nq` (arXiv 2004.04906): 21 million passages of 100 words and the
training and development questions with their positive passages, matched by passage id. The corpus is written
as it is read; memory holds the questions and the ids of their gold passages, never the corpus.

The test questions come with a gold paragraph of the original page (``nq-test_gold_info.json``) instead of a
passage id. Their gold passage has the same title and shares the most words with that paragraph, at least half
of the shorter of the two; passages with an accepted answer win over passages without one. Questions without
such a passage cannot be judged and are left out; the command prints their number. SQuAD's test questions
(Open-SQuAD, arXiv 2212.14024) have their paragraphs in SQuAD's own ``dev-v1.1.json``, of an older Wikipedia.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from data_prep import common, stream
from data_prep.raw import find_raw, read_csv, read_json_list
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.progress import counted

PASSAGES = "psgs_w100.tsv"
QUESTIONS = "biencoder-{questions}-{split}.json"
TEST_ANSWERS = "{questions}-test.qa.csv"
TEST_GOLD = {"nq": "nq-test_gold_info.json", "squad1": "dev-v1.1.json"}
PUBLISHED = {
    "nq": {"train": 58_880, "dev": 6_515, "test": 3_610, "passages": 21_015_324},
    "squad1": {"train": 70_096, "dev": 7_921, "test": 10_570, "passages": 21_015_324},
}
"""Training and dev questions with a positive passage, and all test questions."""
ID_KEYS = ("passage_id", "psg_id")


def prepare(
    raw: Path,
    out: Path,
    questions: Literal["nq", "squad1"] = "nq",
    gold: Literal["first", "all"] = "first",
    drop_leaks: bool = False,
    drop_missing: bool = False,
    tokenizer: Path | None = None,
) -> None:
    """Prepare DPR's release of Natural Questions or of SQuAD (Open-SQuAD), at any size.

    Args:
        raw: Folder with psgs_w100.tsv, biencoder-nq-train.json and biencoder-nq-dev.json, and for a test
            split nq-test_gold_info.json, with accepted answers from nq-test.qa.csv; each may be gzip'd (.gz).
            With --questions squad1: biencoder-squad1-train.json and so on, squad1-test.qa.csv, and
            dev-v1.1.json of SQuAD in place of nq-test_gold_info.json.
        out: Folder to write; an earlier one is replaced.
        questions: Whose questions.
        gold: Gold passages: the first positive passage, as in DPR's training, or all of them.
        drop_leaks: If a question stands in two splits, leave it out of the earlier of train, dev and test,
            instead of refusing the files.
        drop_missing: Leave out questions whose gold passages are not in the corpus, instead of refusing.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    splits: dict[str, list[Query]] = {
        split: list(_questions(raw, questions, split, gold)) for split in ("train", "dev")
    }
    matcher = TestGold(raw, questions)
    read = {split: len(asked) for split, asked in {**splits, "test": matcher.queries}.items() if asked}
    splits = stream.without_leaks({**splits, "test": matcher.queries}, lambda query: query.text, drop_leaks)
    watch = stream.GoldWatch(splits)
    corpus = find_raw(raw, PASSAGES)

    def passages() -> Iterator[Passage]:
        for _, (name, text, title) in read_csv(corpus, ("id", "text", "title"), delimiter="\t"):
            passage = Passage(name, " ".join(text.split()), title)
            matcher.offer(passage)
            yield passage

    def judged() -> dict[str, list[Query]]:
        queries = watch.found(corpus, drop_missing)
        queries["test"] = matcher.matched(queries["test"])
        return queries

    numbers = stream.finish_stream(out, watch.watch(passages()), judged, tokenizer)
    there = {name: count for name, count in PUBLISHED[questions].items() if name in (*read, "passages")}
    common.compare(numbers, there, **read)


def _questions(raw: Path, questions: str, split: str, gold: str) -> Iterator[Query]:
    """The questions of a split with a positive passage; DPR also skips the others."""
    file = find_raw(raw, QUESTIONS.format(questions=questions, split=split))
    skipped = 0
    for number, (label, record) in enumerate(read_json_list(file), 1):
        text = common.field(record, "question", str, file, label)
        positives = record.get("positive_ctxs")
        if not isinstance(positives, list):
            raise DataError(f"{label}: expected 'positive_ctxs' to be a list, got {positives!r:.80}.", file)
        if not positives:
            skipped += 1
            continue
        evidence = [_passage_id(p, file, label) for p in (positives[:1] if gold == "first" else positives)]
        answers = tuple(common.strings(record, "answers", file, label))
        yield Query(f"{questions}-{split}-{number}", text, tuple(dict.fromkeys(evidence)), answers)
    if skipped:
        print(f"{'left out':<20} {counted(skipped, f'{split} question')} without a positive passage")


def _passage_id(passage: Any, file: Path, label: str) -> str:
    """The id of a positive passage, a number or its digits."""
    record = passage if isinstance(passage, dict) else {}
    for key in ID_KEYS:
        if isinstance(record.get(key), int | str) and str(record[key]).strip():
            return str(record[key])
    raise DataError(
        f"{label}: expected a positive passage with {' or '.join(ID_KEYS)}, got {passage!r:.80}.", file
    )


class TestGold:
    """Finds the passage for each test question while the corpus goes by.

    Attributes:
        queries: The test questions, without evidence; none without the file of their gold.
    """

    __test__ = False  # not a class of tests

    def __init__(self, raw: Path, questions: str):
        self.queries: list[Query] = []
        self._paragraphs: dict[str, Counter[str]] = {}
        self._by_title: dict[str, list[Query]] = {}
        self._best: dict[str, tuple[bool, int, str]] = {}
        gold_file = find_raw(raw, TEST_GOLD[questions])
        answers_file = find_raw(raw, TEST_ANSWERS.format(questions=questions))
        if not gold_file.is_file():
            if answers_file.is_file():
                raise DataError(
                    f"the file names no gold passages; put {TEST_GOLD[questions]} beside it, or remove it to "
                    "prepare only train and dev.",
                    answers_file,
                )
            return
        answers = _test_answers(answers_file) if answers_file.is_file() else {}
        records = read_json_list(gold_file, "data") if questions == "nq" else _squad(gold_file)
        for number, (label, record) in enumerate(records, 1):
            self._add(f"{questions}-test-{number}", record, answers, gold_file, label)

    def _add(
        self, name: str, record: dict[str, Any], answers: dict[str, tuple[str, ...]], file: Path, label: str
    ) -> None:
        text = common.field(record, "question", str, file, label)
        short = record.get("short_answers")
        listed = short if isinstance(short, list) else []
        known = tuple(dict.fromkeys(a for a in listed if isinstance(a, str) and a.strip()))
        query = Query(name, text, answers=answers.get(common.query_key(text), known))
        self.queries.append(query)
        title, paragraph = (record.get(key) for key in ("title", "context"))
        if isinstance(title, str) and isinstance(paragraph, str) and paragraph.strip():
            self._paragraphs[name] = Counter(common.plain_words(paragraph).split())
            self._by_title.setdefault(common.plain_words(title), []).append(query)

    def offer(self, passage: Passage) -> None:
        """Keep the id of a passage that is the best so far for a question with its title."""
        if not self._by_title:
            return
        for query in self._by_title.get(common.plain_words(passage.title), ()):
            paragraph, words = self._paragraphs[query.id], Counter(common.plain_words(passage.text).split())
            shared = (paragraph & words).total()
            if 2 * shared < min(paragraph.total(), words.total()):
                continue
            answered = any(common.holds(passage.text, answer) for answer in query.answers)
            best = self._best.get(query.id, (False, 0, ""))
            if (answered, shared) > best[:2]:
                self._best[query.id] = (answered, shared, passage.id)

    def matched(self, queries: Sequence[Query]) -> list[Query]:
        """The questions with a matching passage, which becomes their evidence."""
        judged = [q._replace(evidence=(self._best[q.id][2],)) for q in queries if q.id in self._best]
        if queries:
            print(f"{'test questions':<20} {len(judged):,} of {len(queries):,} matched with a passage")
        return judged


def _squad(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(label, question) of a file of SQuAD 1.1, in the form of the test questions of Natural Questions."""
    for label, page in read_json_list(file, "data"):
        title = common.field(page, "title", str, file, label).replace("_", " ")
        for paragraph in common.field(page, "paragraphs", list, file, label):
            context = common.field(paragraph, "context", str, file, label)
            for entry in common.field(paragraph, "qas", list, file, label):
                asked = entry if isinstance(entry, dict) else {}
                answers = [a.get("text") for a in asked.get("answers") or () if isinstance(a, dict)]
                yield label, {**asked, "title": title, "context": context, "short_answers": answers}


def _test_answers(file: Path) -> dict[str, tuple[str, ...]]:
    """Question (see ``query_key``) -> accepted answers."""
    accepted = {}
    for line, (question, listed) in read_csv(file, ("question", "answers"), "\t", header=False):
        try:
            answers = ast.literal_eval(listed)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            answers = None
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise DataError(f"expected the answers as ['one', 'two'], got {listed!r:.80}.", file, line)
        accepted[common.query_key(question)] = tuple(answer for answer in answers if answer.strip())
    return accepted
