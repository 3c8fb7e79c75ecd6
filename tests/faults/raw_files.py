"""Raw files of the public data sets, in their formats, with a few sentences of our own."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from data_prep import entailmentbank, hotpotqa, hotpotqa_full, nq

TITLES = ("Otter", "Lynx", "Heron", "Mill", "River", "Holt")
TEXTS = {title: f"The {title.lower()} is calm. It is seen by the river." for title in TITLES}
COUNT = 60
"""Questions of a split: enough that writing them takes a moment."""


def write_raw(place: Path) -> None:
    """Write the raw files of every data set, each below a folder of its name."""
    for name, write in WRITERS.items():
        (place / name).mkdir(parents=True)
        write(place / name)


def _write_lines(file: Path, records: Iterable[object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def _write_table(file: Path, rows: Iterable[Sequence[object]], delimiter: str = ",") -> None:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(rows)
    file.write_text(stream.getvalue())


def _pair(number: int) -> tuple[str, str]:
    """The titles of the two passages of a question."""
    return TITLES[number % 6], TITLES[(number + 1 + number % 4) % 6]


def _entailmentbank(place: Path) -> None:
    def record(number: int, split: str) -> dict[str, object]:
        facts = {f"sent{n}": TEXTS[title] for n, title in enumerate(_pair(number), 1)}
        name, question = f"{split}{number}", f"Why is {split} {number} so?"
        if split == "train":
            context = " ".join(f"{key}: {text}" for key, text in facts.items())
            text = f"$proof$ ; $question$ = {question} ; $answer$ = it is {number} ; $hypothesis$ = so ; "
            return {"id": name, "input": f"{text}$context$ = {context}", "output": "$proof$ = "}
        return {"id": name, "question": question, "answer": f"it is {number}", "meta": {"triples": facts}}

    for task in ("task_1", "task_3"):
        for split, file in entailmentbank.FILES.items():
            _write_lines(place / task / file, [record(number, split) for number in range(COUNT)])
    (place / entailmentbank.FACT_BANK).write_text(json.dumps({"x:1": "snow is white"}))


def _strategyqa(place: Path) -> None:
    for split, first in (("train", 0), ("dev", COUNT)):
        records = [
            {"qid": f"s{n}", "question": f"Is {n} odd?", "answer": bool(n % 2), "facts": [f"{n} is a number"]}
            | {"decomposition": ["What is it?"]}
            for n in range(first, first + COUNT)
        ]
        (place / f"{split}.json").write_text(json.dumps(records))


def _explagraphs(place: Path) -> None:
    for split, first in (("train", 0), ("dev", COUNT)):
        rows = [
            (f"Belief {n}.", f"Argument {n}.", "support", f"(tea {n}; is a; drink)(drink; is; warm)")
            for n in range(first, first + COUNT)
        ]
        (place / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))


def _hotpotqa(place: Path) -> None:
    _write_lines(place / hotpotqa.CORPUS, [{"title": t, "text": text} for t, text in TEXTS.items()])
    rows = [(f"q{n}", "bridge", f"What is question {n}?", " | ".join(_pair(n))) for n in range(COUNT)]
    _write_table(place / hotpotqa.QUESTIONS, [hotpotqa.COLUMNS, *rows])


def _hop_question(split: str, number: int) -> dict[str, object]:
    """A question in the format that HotpotQA and 2WikiMultihopQA share."""
    titles = _pair(number)
    return {
        "_id": f"{split}{number}", "question": f"What is {split} {number}?", "answer": "calm",
        "level": "hard", "supporting_facts": [[title, 0] for title in titles],
        "evidences": [],
        "context": [[title, TEXTS[title].split(". ")] for title in titles],
    }  # fmt: skip


def _hotpotqa_full(place: Path) -> None:
    records = [
        {"id": n, "url": f"https://example.org/{n}", "title": title, "text": [text], "charoffset": []}
        | {"text_with_links": [text], "charoffset_with_links": []}
        for n, (title, text) in enumerate(TEXTS.items())
    ]
    file = place / hotpotqa_full.ABSTRACTS / "AA" / "wiki_00.bz2"
    file.parent.mkdir(parents=True)
    file.write_bytes(bz2.compress("".join(json.dumps(record) + "\n" for record in records).encode()))
    for split, name in (("train", hotpotqa_full.TRAIN), ("test", hotpotqa_full.TEST[0])):
        asked = [_hop_question(split, number) | {"type": "bridge"} for number in range(COUNT)]
        (place / name).write_text(json.dumps(asked))


def _twowiki(place: Path) -> None:
    for split in ("train", "dev"):
        asked = [_hop_question(split, number) | {"type": "compositional"} for number in range(COUNT)]
        (place / f"{split}.json").write_text(json.dumps(asked))


def _nq(place: Path) -> None:
    lines = [
        {"question": f"what is {n}", "answers": [str(n)]}
        | {"ctxs": [{"title": "Numbers", "text": f"The number {n}.", "isgold": True, "hasanswer": True}]}
        for n in range(COUNT)
    ]
    (place / nq.FILE).write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def _dpr(place: Path) -> None:
    rows = [(n, text, title) for n, (title, text) in enumerate(TEXTS.items(), 1)]
    _write_table(place / "psgs_w100.tsv", [("id", "text", "title"), *rows], "\t")
    for split in ("train", "dev"):
        asked = [
            {"dataset": "nq", "question": f"what is {split} {n}", "answers": [f"a{n}"], "negative_ctxs": []}
            | {"hard_negative_ctxs": [], "positive_ctxs": [{"title": "T", "text": "x", "passage_id": "2"}]}
            for n in range(COUNT)
        ]
        (place / f"biencoder-nq-{split}.json").write_text(json.dumps(asked))


WRITERS: dict[str, Callable[[Path], None]] = {
    "entailmentbank": _entailmentbank, "strategyqa": _strategyqa, "explagraphs": _explagraphs,
    "hotpotqa": _hotpotqa, "hotpotqa_full": _hotpotqa_full, "twowiki": _twowiki, "nq": _nq, "dpr": _dpr,
}  # fmt: skip
"""Name of ``grls prepare`` -> writes its raw files into a folder."""
