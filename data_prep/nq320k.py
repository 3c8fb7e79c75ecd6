"""NQ320k: question -> its article of Wikipedia, from Google's release of Natural Questions.

The set of generative retrieval by identifiers (arXiv 2206.02743): all questions of the simplified training
file and of the dev file, and the articles of both, each title once. The dev file is the test split, and
``dev`` is held out of training. The text is the whole article without tags, or its first words. Titles are
compared in lower case without accents, with signs as words, much as by BERT's tokenizer, which the paper
takes for it. Articles are written as they are read; memory holds the questions and the titles.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep import common, stream
from data_prep.hotpotqa_full import DevShare
from data_prep.raw import find_raw, read_json_lines
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.arguments import Count

FILES = {"train": "simplified-nq-train.jsonl", "test": "nq-dev-all.jsonl"}
PREFIX = "v1.0-simplified_"
"""Of the names under which the files are downloaded."""
PUBLISHED = {"train": 307_373, "test": 7_830, "passages": 109_739}

_TAG = re.compile(r"</?[A-Za-z][^\s<>]*>")
_TITLE = re.compile(r"<H1> (.*?) </H1>")


def prepare(
    raw: Path,
    out: Path,
    words: Count | None = None,
    dev_share: DevShare = 0.02,
    seed: int = 0,
    drop_leaks: bool = False,
) -> None:
    """Prepare NQ320k.

    Args:
        raw: Folder with simplified-nq-train.jsonl and nq-dev-all.jsonl, each as it was downloaded (gzip'd,
            and with v1.0-simplified_ before its name) or not.
        out: Folder to write; an earlier one is replaced.
        words: Number of first words of an article that become the passage; null: all.
        dev_share: Share of the training questions that becomes the dev split.
        seed: Seed of the draw of the dev split.
        drop_leaks: Leave out training questions whose text stands in the test split, instead of refusing the
            files.
    """
    ids: dict[str, str] = {}
    queries: dict[str, list[Query]] = {split: [] for split in FILES}

    def passages() -> Iterator[Passage]:
        for split, name in FILES.items():
            file = next((f for n in (PREFIX + name, name) if (f := find_raw(raw, n)).is_file()), raw / name)
            for title, text, query in _pages(file, words):
                number = f"p{len(ids):06d}"
                if ids.setdefault(_key(title), number) == number:
                    yield Passage(number, text, title)
                queries[split].append(query._replace(evidence=(ids[_key(title)],)))

    def judged() -> dict[str, list[Query]]:
        official = stream.without_leaks(queries, lambda query: query.text, drop_leaks)
        shares = (1 - dev_share, dev_share)
        train, dev = common.split(official["train"], shares, seed, group=lambda q: common.query_key(q.text))
        return {"train": train, "dev": dev, "test": official["test"]}

    numbers = stream.finish_stream(out, passages(), judged)
    common.compare(numbers, PUBLISHED, **{split: len(read) for split, read in queries.items()})


def _pages(file: Path, words: int | None) -> Iterator[tuple[str, str, Query]]:
    """(title, text, question with its short answers) of every record."""
    for line, record in read_json_lines(file):
        name = record.get("example_id")
        if not isinstance(name, int | str):
            raise DataError(f"expected 'example_id' to be a number, got {name!r:.80}.", file, line)
        tokens = _tokens(record, file, line)
        text = " ".join(tokens)
        title = str(record.get("document_title") or "") or next(iter(_TITLE.findall(text)), "")
        if not title.strip():
            raise DataError("the document has no 'document_title', and no <H1> in its text.", file, line)
        plain = _TAG.sub(" ", text.partition("</H1>")[2] or text).split()
        question = " ".join(common.field(record, "question_text", str, file, line).split())
        answers = tuple(dict.fromkeys(_answers(record, tokens, file, line)))
        yield " ".join(title.split()), " ".join(plain[:words]), Query(str(name), question, (), answers)


def _tokens(record: dict[str, Any], file: Path, line: int) -> list[str]:
    """The tokens of a document, tags included: of the simplified form, or of the original one."""
    if "document_text" in record or "document_tokens" not in record:
        return common.field(record, "document_text", str, file, line).split(" ")
    entries = common.field(record, "document_tokens", list, file, line)
    return [common.field(entry, "token", str, file, line) for entry in entries]


def _answers(record: dict[str, Any], tokens: list[str], file: Path, line: int) -> Iterator[str]:
    try:
        for annotation in record["annotations"]:
            for short in annotation["short_answers"]:
                answer = " ".join(tokens[short["start_token"] : short["end_token"]])
                if answer.strip():
                    yield answer
    except (KeyError, TypeError):
        raise DataError(
            "expected 'annotations' with 'short_answers' of 'start_token' and 'end_token'.", file, line
        ) from None


def _key(title: str) -> str:
    plain = unicodedata.normalize("NFD", title.lower())
    letters = "".join(c for c in plain if unicodedata.category(c) != "Mn")
    return " ".join(re.findall(r"\w+|[^\w\s]", letters))
