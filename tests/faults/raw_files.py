"""Raw files of two public data sets, in their formats, with a few sentences of our own."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from data_prep import hotpotqa

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


def _hotpotqa(place: Path) -> None:
    _write_lines(place / hotpotqa.CORPUS, [{"title": t, "text": text} for t, text in TEXTS.items()])
    rows = [(f"q{n}", "bridge", f"What is question {n}?", " | ".join(_pair(n))) for n in range(COUNT)]
    _write_table(place / hotpotqa.QUESTIONS, [hotpotqa.COLUMNS, *rows])


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


WRITERS: dict[str, Callable[[Path], None]] = {"hotpotqa": _hotpotqa, "dpr": _dpr}
"""Name of ``grls prepare`` -> writes its raw files into a folder."""
