"""HotpotQA at full size, in its full-wiki setting: question -> two abstracts in retrieval order; and HoVer.

The raw files are the official ones: 90,447 training and 7,405 development questions, and five million
abstracts of Wikipedia as ``bz2`` files of JSON lines. The test questions have no gold passages, so as in the
literature the development questions are our test split, and ``dev`` is held out of training, by default 2 %
as in arXiv 2204.13596. The corpus is written as it is read; memory holds the questions and the facts about
their gold passages that :mod:`data_prep.hops` needs.

A gold title names the abstract with the same title, after HTML entities are resolved and accents composed
(Unicode NFC); the first of two such abstracts counts. Sentences are joined by a space. The answers "yes" and
"no" stand only in the metadata: a passage does not answer a question because it holds the word "yes".

HoVer's claims (arXiv 2011.03088) are about the same abstracts, two to four each, and its dev claims are our
test split. A claim with two gold abstracts is ordered as a question is; of three or four any order is right.
"""

from __future__ import annotations

import html
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from data_prep import common, hops, stream
from data_prep.raw import find_raw, read_json_lines, read_json_list
from grls.data.types import Passage, Query
from grls.errors import DataError

ABSTRACTS = "enwiki-20171001-pages-meta-current-withlinks-abstracts"
TRAIN = "hotpot_train_v1.1.json"
TEST = ("hotpot_dev_fullwiki_v1.json", "hotpot_dev_distractor_v1.json")
KINDS = ("bridge", hops.COMPARISON)
HOVER_TRAIN, HOVER_TEST = "hover_train_release_v1.1.json", "hover_dev_release_v1.1.json"
LABELS = ("SUPPORTED", "NOT_SUPPORTED")
PUBLISHED = {"hotpotqa": {"train": 90_447, "test": 7_405}, "hover": {"train": 18_171, "test": 4_000}}


class Question(NamedTuple):
    """A question, or a claim without an answer, before its passages are known."""

    id: str
    text: str
    answer: str
    kind: str
    metadata: dict[str, Any]
    titles: tuple[str, ...]


DevShare = Annotated[float, "(0, 1)"]
"""The share of the training queries that become dev queries."""


def prepare(
    raw: Path,
    out: Path,
    questions: Literal["hotpotqa", "hover"] = "hotpotqa",
    dev_share: DevShare = 0.02,
    seed: int = 0,
    drop_leaks: bool = False,
    drop_missing: bool = False,
    tokenizer: Path | None = None,
) -> None:
    """Prepare HotpotQA's full-wiki setting, or HoVer's claims over the same abstracts.

    Args:
        raw: Folder with hotpot_train_v1.1.json, hotpot_dev_fullwiki_v1.json (or the same questions as
            hotpot_dev_distractor_v1.json) and the unpacked folder
            enwiki-20171001-pages-meta-current-withlinks-abstracts. With --questions hover:
            hover_train_release_v1.1.json and hover_dev_release_v1.1.json in place of the first two.
        out: Folder to write; an earlier one is replaced.
        questions: Whose questions, or claims.
        dev_share: Share of the training questions that becomes the dev split.
        seed: Seed of the draw of the dev split.
        drop_leaks: Leave out training questions whose text stands in the test split, instead of refusing the
            files.
        drop_missing: Leave out questions whose gold titles the abstracts lack, instead of refusing the files.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    test_file = next((f for name in TEST if (f := find_raw(raw, name)).is_file()), raw / TEST[0])
    if questions == "hover":
        official = {"train": list(_claims(raw / HOVER_TRAIN)), "test": list(_claims(raw / HOVER_TEST))}
    else:
        official = {"train": list(_questions(find_raw(raw, TRAIN))), "test": list(_questions(test_file))}
    read = {split: len(asked) for split, asked in official.items()}
    official = stream.without_leaks(official, lambda question: question.text, drop_leaks)
    shares = (1 - dev_share, dev_share)
    train, dev = common.split(official["train"], shares, seed, group=lambda q: common.query_key(q.text))
    splits = {"train": train, "dev": dev, "test": official["test"]}
    gold = Gold([question for part in splits.values() for question in part])

    def judged() -> dict[str, list[Query]]:
        queries = {name: [gold.query(q) for q in part] for name, part in splits.items()}
        return stream.without_missing(queries, gold.missing(), raw / ABSTRACTS, drop_missing)

    numbers = stream.finish_stream(out, gold.watch(_passages(raw / ABSTRACTS)), judged, tokenizer)
    print(hops.describe(gold.rules))
    common.compare(numbers, {**PUBLISHED[questions], "passages": 5_233_329}, **read)


class Gold:
    """Collects the facts about the questions' gold passages while the corpus goes by.

    Args:
        questions: All questions.

    Attributes:
        rules: Rule -> number of questions that it has ordered, without questions with a missing passage.
    """

    def __init__(self, questions: Sequence[Question]):
        self._users: dict[str, list[Question]] = {}
        self._found: dict[tuple[str, str], tuple[str, hops.Hop]] = {}
        self._questions = questions
        self.rules: Counter[str] = Counter()
        for question in questions:
            for title in question.titles:
                self._users.setdefault(_key(title), []).append(question)

    def watch(self, passages: Iterator[Passage]) -> Iterator[Passage]:
        """Pass the passages on, and note the facts about gold passages."""
        for passage in passages:
            key = _key(passage.title)
            for question in self._users.get(key, ()):
                title = next(title for title in question.titles if _key(title) == key)
                hop = hops.read(title, passage.text, question.titles, question.answer)
                self._found.setdefault((question.id, title), (passage.id, hop))
            yield passage

    def missing(self) -> dict[str, list[str]]:
        """Question id -> gold titles without a passage."""
        lost = {q.id: [t for t in q.titles if (q.id, t) not in self._found] for q in self._questions}
        return {name: titles for name, titles in lost.items() if titles}

    def query(self, question: Question) -> Query:
        """The question with its gold passages that are in the corpus, in retrieval order."""
        known = [self._found[question.id, t] for t in question.titles if (question.id, t) in self._found]
        ids = {hop.title: name for name, hop in known}
        ordered = hops.order(question.text, [hop for _, hop in known], question.kind)
        self.rules[ordered.rule] += len(known) == len(question.titles)
        return Query(
            id=question.id,
            text=question.text,
            evidence=tuple(ids[hop.title] for hop in ordered.hops),
            answers=spans(question.answer),
            metadata=common.metadata(**ordered.metadata(question.kind), **question.metadata),
        )


def spans(answer: str) -> tuple[str, ...]:
    """The answers that may stand in a passage: neither "yes" nor "no", nor the missing one of a claim."""
    return () if answer.lower() in ("yes", "no", "") else (answer,)


def read_records(
    file: Path, kinds: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any], tuple[str, str, str, str]]]:
    """Yield (label, record, (id, question, answer, type)) of a release in HotpotQA's form.

    Raises:
        DataError: A field is missing, a type is none of ``kinds``, or an id is used twice.
    """
    ids: set[str] = set()
    for label, record in read_json_list(file):
        name, text, answer, kind = (
            common.field(record, key, str, file, label) for key in ("_id", "question", "answer", "type")
        )
        if kind not in kinds:
            raise DataError(f"{label}: expected 'type' to be {' or '.join(kinds)}, got {kind!r}.", file)
        if name in ids:
            raise DataError(f"{label}: the id {name!r} is used twice.", file)
        ids.add(name)
        yield label, record, (name, " ".join(text.split()), answer, kind)


def supporting_titles(record: dict[str, Any], file: Path, label: str) -> list[str]:
    """The titles of the supporting facts, which are pairs (title, sentence number)."""
    facts = common.field(record, "supporting_facts", list, file, label)
    for fact in facts:
        if not (isinstance(fact, list) and fact and isinstance(fact[0], str) and fact[0].strip()):
            raise DataError(
                f"{label}: expected supporting facts as [title, sentence], got {fact!r:.80}.", file
            )
    return [fact[0] for fact in facts]


def _questions(file: Path) -> Iterator[Question]:
    for label, record, (name, text, answer, kind) in read_records(file, KINDS):
        titles = {_key(title): title for title in supporting_titles(record, file, label)}
        stored = {"level": str(record.get("level") or ""), "answer": answer}
        yield Question(name, text, answer, kind, stored, tuple(titles.values()))


def _claims(file: Path) -> Iterator[Question]:
    for label, record in read_json_list(file):
        name, text, verdict = (
            common.field(record, key, str, file, label) for key in ("uid", "claim", "label")
        )
        if verdict not in LABELS:
            raise DataError(f"{label}: expected 'label' to be {' or '.join(LABELS)}, got {verdict!r}.", file)
        kind = f"{common.field(record, 'num_hops', int, file, label)} hops"
        titles = {_key(title): title for title in supporting_titles(record, file, label)}
        yield Question(name, " ".join(text.split()), "", kind, {"label": verdict}, tuple(titles.values()))


def _passages(folder: Path) -> Iterator[Passage]:
    """All abstracts, file by file in the order of their names."""
    files = sorted(file for file in folder.rglob("wiki_*") if file.is_file())
    if not files:
        raise DataError(
            "no abstracts here; expected subfolders with files wiki_00.bz2 and so on. Unpack the archive.",
            folder,
        )
    for file in files:
        for line, record in read_json_lines(file):
            name = record.get("id")
            if not isinstance(name, int | str) or not str(name).strip():
                raise DataError(f"expected 'id' to be a number, got {name!r:.80}.", file, line)
            sentences = record.get("text")
            if not isinstance(sentences, list) or not all(isinstance(s, str) for s in sentences):
                raise DataError(
                    f"expected 'text' to be a list of sentences, got {sentences!r:.80}.", file, line
                )
            title = html.unescape(common.field(record, "title", str, file, line))
            yield Passage(str(name), " ".join(" ".join(sentences).split()), title)


def _key(title: str) -> str:
    return unicodedata.normalize("NFC", html.unescape(title))
