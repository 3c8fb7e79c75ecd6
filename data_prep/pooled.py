"""Questions with paragraphs: MuSiQue, 2WikiMultihopQA, HotpotQA's distractor set, HippoRAG's files.

The corpus is all paragraphs of the questions that are taken, each once, in the order of the file: it is
written as it is read, and memory holds the questions and 16 bytes a paragraph. The releases hide the gold of
their test questions, so their dev file is our test split where it is there, and ``dev`` is held out of
training. HippoRAG's sets (arXiv 2405.14831, 2502.14802) have the corpus as a file of its own, and each
question's paragraphs name its gold there.

Evidence is in retrieval order. MuSiQue's decomposition says it. HotpotQA: :mod:`data_prep.hops`. The
supporting facts of 2WikiMultihopQA have it in a compositional question: its second paragraph is named in the
first one. A bridge comparison is ordered in part: each of its two pairs is, and the pairs are in any order.
The release's order is kept for it, so a chain that begins with the other pair counts as one in another order.
Of a comparison any order is right, and its metadata says so (``any_order``). The answers "yes" and "no" stand
only in the metadata: a passage does not answer a question because it holds the word "yes".
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from data_prep import common, hops, stream
from data_prep.hotpotqa_full import KINDS as HOTPOT_KINDS
from data_prep.hotpotqa_full import DevShare, read_records, spans, supporting_titles
from data_prep.raw import find_raw, read_json_lines, read_json_list
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.io.arguments import Count
from grls.io.progress import counted

KINDS = ("compositional", hops.COMPARISON, "inference", "bridge_comparison")
"""The types of 2WikiMultihopQA."""

MUSIQUE = "musique_{kind}_v1.0_{split}.jsonl"
MUSIQUE_PUBLISHED = {"train": 19_938, "test": 2_417}
TWOWIKI_PUBLISHED = {"train": 167_454, "test": 12_576}
DISTRACTOR = "hotpot_dev_distractor_v1.json"
DISTRACTOR_PUBLISHED = {"test queries": 7_405, "passages": 66_581}

USUAL_RATIOS = (0.56, 0.12, 0.32)

Paragraph = tuple[str, str]
"""Title and text."""


class Question(NamedTuple):
    """A question with its paragraphs.

    Attributes:
        id: Its id in the release.
        text: The question.
        answers: The answers that may stand in a passage.
        metadata: The metadata of the query.
        gold: The gold paragraphs in retrieval order; none for a question that cannot be answered.
        paragraphs: All its paragraphs.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    metadata: dict[str, Any]
    gold: tuple[Paragraph, ...]
    paragraphs: Sequence[Paragraph]

    def query(self, evidence: Iterable[str]) -> Query:
        """The question with the ids of its gold passages."""
        stored = common.metadata(**self.metadata)
        return Query(self.id, self.text, tuple(dict.fromkeys(evidence)), self.answers, stored)


def musique(
    raw: Path,
    out: Path,
    full: bool = False,
    sample: Count | None = None,
    seed: int = 0,
    dev_share: DevShare = 0.02,
    drop_leaks: bool = False,
) -> None:
    """Prepare MuSiQue.

    Args:
        raw: Folder with musique_ans_v1.0_train.jsonl and musique_ans_v1.0_dev.jsonl, the test split.
        out: Folder to write; an earlier one is replaced.
        full: Read musique_full_v1.0_*.jsonl: its unanswerable questions have no gold and are left out, and
            their paragraphs stay in the corpus.
        sample: Number of questions to draw from each file; the corpus is their paragraphs; null: all.
        seed: Seed of the sample and of the split.
        dev_share: Share of the training file that becomes the dev split.
        drop_leaks: Leave out training questions whose text stands in the test split, instead of refusing the
            files.
    """
    kind = "full" if full else "ans"
    files = [find_raw(raw, MUSIQUE.format(kind=kind, split=split)) for split in ("train", "dev")]
    published = {} if full else MUSIQUE_PUBLISHED
    _release(out, files, musique_questions, published, sample, seed, USUAL_RATIOS, dev_share, drop_leaks)


def twowiki(
    raw: Path,
    out: Path,
    sample: Count | None = None,
    seed: int = 0,
    ratios: Sequence[float] = USUAL_RATIOS,
    dev_share: DevShare = 0.02,
    drop_leaks: bool = False,
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
        drop_leaks: Leave out training questions whose text stands in the test split, instead of refusing the
            files.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    files = [find_raw(raw, f"{split}.json") for split in ("train", "dev")]
    options = (sample, seed, ratios, dev_share, drop_leaks, tokenizer)
    _release(out, files, twowiki_questions, TWOWIKI_PUBLISHED, *options)


def hotpotqa_distractor(raw: Path, out: Path) -> None:
    """Prepare HotpotQA's development questions over the paragraphs of all of them, as a test split.

    Args:
        raw: Folder with hotpot_dev_distractor_v1.json.
        out: Folder to write; an earlier one is replaced.
    """
    questions = {"test": hotpot_questions(find_raw(raw, DISTRACTOR))}
    numbers = _pool(out, questions, lambda queries: queries, by_title=True)
    common.compare(numbers, DISTRACTOR_PUBLISHED)


def hipporag(
    raw: Path,
    out: Path,
    questions: Literal["musique", "2wikimultihopqa", "hotpotqa"],
    drop_missing: bool = False,
) -> None:
    """Prepare a set of HippoRAG, 1,000 questions, as a test split; passages keep the order of its corpus.

    Args:
        raw: Folder with QUESTIONS.json and QUESTIONS_corpus.json.
        out: Folder to write; an earlier one is replaced.
        questions: The set.
        drop_missing: Leave out questions whose gold paragraphs the corpus lacks, instead of refusing.
    """
    read, size = HIPPORAG[questions]
    corpus_file = find_raw(raw, f"{questions}_corpus.json")
    passages, ids = [], dict[str, str]()
    for n, (label, record) in enumerate(read_json_list(corpus_file)):
        title = common.field(record, "title", str, corpus_file, label)
        text = _text(record, ("text",), corpus_file, label)
        passages.append(Passage(f"d{n}", text, title))
        ids.setdefault(_dense((title, text)), f"d{n}")
    queries, missing = [], {}
    for question in read(find_raw(raw, f"{questions}.json")):
        names = {paragraph: ids.get(_dense(paragraph)) for paragraph in question.gold}
        queries.append(question.query(passage for passage in names.values() if passage))
        if lost := [title for (title, _), passage in names.items() if passage is None]:
            missing[question.id] = lost
    judged = stream.without_missing({"test": queries}, missing, corpus_file, drop_missing)
    numbers = common.finish(out, common.dataset(passages, judged))
    common.compare(numbers, {"passages": size, "test queries": 1_000})


def _release(
    out: Path,
    files: Sequence[Path],
    questions: Callable[[Path], Iterator[Question]],
    published: Mapping[str, int],
    sample: int | None,
    seed: int,
    ratios: Sequence[float],
    dev_share: DevShare,
    drop_leaks: bool,
    tokenizer: Path | None = None,
) -> None:
    """Write a release: its training file and, where it is there, its dev file as the test split."""
    common.refuse_other_than_three(ratios)
    there = {"train": files[0]} | ({"test": files[1]} if files[1].is_file() else {})
    read = Counter[str]()

    def drawn(split: str, file: Path) -> Iterator[Question]:
        chosen: set[int] | None = None
        if sample is not None:
            count = sum(1 for _ in questions(file))
            if not 0 < sample <= count:
                raise ConfigError(f"--sample {sample}: expected a number from 1 to {count}, those of a file.")
            chosen = set(random.Random(seed).sample(range(count), sample))
        for n, question in enumerate(questions(file)):
            read[split] += 1
            if chosen is None or n in chosen:
                yield question

    def splits(queries: Mapping[str, list[Query]]) -> dict[str, list[Query]]:
        official = stream.without_leaks(queries, lambda query: query.text, drop_leaks)
        test = [official["test"]] if "test" in there else []
        shares = (1 - dev_share, dev_share) if test else ratios
        parts = common.split(official["train"], shares, seed, group=lambda q: common.query_key(q.text))
        return dict(zip(common.SPLITS, [*parts, *test], strict=True))

    drawn_of = {split: drawn(split, file) for split, file in there.items()}
    numbers = _pool(out, drawn_of, splits, tokenizer=tokenizer)
    common.compare(numbers, {split: published[split] for split in there if split in published}, **read)


def _pool(
    out: Path,
    questions: Mapping[str, Iterable[Question]],
    splits: Callable[[Mapping[str, list[Query]]], Mapping[str, list[Query]]],
    by_title: bool = False,
    tokenizer: Path | None = None,
) -> common.Statistics:
    """Write the paragraphs of all questions, each once, or one of each title."""
    ids: dict[bytes, str] = {}
    queries: dict[str, list[Query]] = {split: [] for split in questions}
    without = 0

    def digest(paragraph: Paragraph) -> bytes:
        key = paragraph[0] if by_title else "\n".join(paragraph)
        return hashlib.blake2b(key.encode(), digest_size=16).digest()

    def passages() -> Iterator[Passage]:
        nonlocal without
        for split, read in questions.items():
            for question in read:
                for title, text in question.paragraphs:
                    name = f"p{len(ids):06d}"
                    if ids.setdefault(digest((title, text)), name) == name:
                        yield Passage(name, text, title)
                without += not question.gold
                if question.gold:
                    queries[split].append(question.query(ids[digest(gold)] for gold in question.gold))
        if without:
            print(f"{'left out':<20} {counted(without, 'question')} that cannot be answered")

    return stream.finish_stream(out, passages(), lambda: splits(queries), tokenizer)


def musique_questions(file: Path) -> Iterator[Question]:
    """The questions of a file in MuSiQue's form: JSON lines, or a JSON list as HippoRAG writes it.

    Raises:
        DataError: A field is missing, as in the test files, which have no gold.
    """
    records: Iterable[tuple[int | str, dict[str, Any]]]
    records = read_json_lines(file) if ".jsonl" in file.suffixes else read_json_list(file)
    for label, record in records:
        name, text, answer = (
            common.field(record, key, str, file, label) for key in ("id", "question", "answer")
        )
        paragraphs: dict[int, Paragraph] = {}
        for entry in common.field(record, "paragraphs", list, file, label):
            title = common.field(entry, "title", str, file, label)
            number = common.field(entry, "idx", int, file, label)
            paragraphs[number] = title, _text(entry, ("paragraph_text", "text"), file, label)
        steps = common.field(record, "question_decomposition", list, file, label)
        supports = [step.get("paragraph_support_idx") if isinstance(step, dict) else None for step in steps]
        gold = [paragraphs[n] for n in supports if isinstance(n, int) and n in paragraphs]
        answerable = record.get("answerable", True)
        if answerable and len(gold) < len(steps):
            text = f"expected each 'paragraph_support_idx' to be the 'idx' of a paragraph, got {supports}."
            raise common.fault(text, file, label)
        aliases = record.get("answer_aliases") and common.strings(record, "answer_aliases", file, label)
        yield Question(
            id=name,
            text=" ".join(text.split()),
            answers=tuple(dict.fromkeys(span for a in (answer, *(aliases or ())) for span in spans(a))),
            metadata={"type": name.partition("__")[0], "answer": answer},
            gold=tuple(gold) if answerable else (),
            paragraphs=list(paragraphs.values()),
        )


def twowiki_questions(file: Path) -> Iterator[Question]:
    """The questions of a file of 2WikiMultihopQA."""
    for label, record, (name, text, answer, kind) in read_records(file, KINDS):
        context = dict(_context(record, file, label))
        gold = tuple((title, context[title]) for title in _gold_titles(record, context, file, label))
        free = {"any_order": True} if kind == hops.COMPARISON else {}
        stored = {"type": kind, "answer": answer, **free}
        yield Question(name, text, spans(answer), stored, gold, list(context.items()))


def hotpot_questions(file: Path) -> Iterator[Question]:
    """The questions of a file of HotpotQA with paragraphs (the distractor setting)."""
    for label, record, (name, text, answer, kind) in read_records(file, HOTPOT_KINDS):
        context = dict(_context(record, file, label, blank=True))
        titles = _gold_titles(record, context, file, label)
        ordered = hops.order(text, [hops.read(t, context[t], titles, answer) for t in titles], kind)
        gold = tuple((hop.title, context[hop.title]) for hop in ordered.hops)
        stored = {**ordered.metadata(kind), "level": str(record.get("level") or ""), "answer": answer}
        yield Question(name, text, spans(answer), stored, gold, list(context.items()))


def _gold_titles(
    record: dict[str, Any], context: Mapping[str, str], file: Path, label: str
) -> tuple[str, ...]:
    """The titles of the supporting facts, each once, in their order."""
    titles = tuple(dict.fromkeys(supporting_titles(record, file, label)))
    if unknown := [title for title in titles if title not in context]:
        raise common.fault(
            f"the supporting fact {unknown[0]!r} is no paragraph of its 'context'.", file, label
        )
    return titles


def _context(record: dict[str, Any], file: Path, label: str, blank: bool = False) -> Iterator[Paragraph]:
    """The paragraphs of a question, each title once; ``blank``: also those without a sentence."""
    seen: set[str] = set()
    for entry in common.field(record, "context", list, file, label):
        match entry:
            case [str(title), list(sentences)] if title.strip() and all(
                isinstance(s, str) for s in sentences
            ):
                text = " ".join(" ".join(sentences).split())
            case _:
                raise common.fault(
                    f"expected 'context' as [title, [sentences]], got {entry!r:.80}.", file, label
                )
        if (text or blank) and title not in seen:
            seen.add(title)
            yield title, text


def _text(record: Mapping[str, Any], keys: Sequence[str], file: Path, label: int | str) -> str:
    """The text of a paragraph, under the first of the keys that is there; it may be empty."""
    text = next((record[key] for key in keys if key in record), None)
    if not isinstance(text, str):
        raise common.fault(f"expected {keys[0]!r} to be a text, got {text!r:.80}.", file, label)
    return " ".join(text.split())


def _dense(paragraph: Paragraph) -> str:
    """A paragraph without white space: HippoRAG joins the sentences of its sets in two ways."""
    return "".join("\n".join(paragraph).split())


HIPPORAG: Mapping[str, tuple[Callable[[Path], Iterator[Question]], int]] = {
    "musique": (musique_questions, 11_656),
    "2wikimultihopqa": (twowiki_questions, 6_119),
    "hotpotqa": (hotpot_questions, 9_811),
}
"""Name -> how its questions are read, and the published number of passages."""
