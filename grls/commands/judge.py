"""``grls judge``: a person says which hits of several candidates are gold, and a data set is written."""

from __future__ import annotations

import io
import sys
from contextlib import closing
from pathlib import Path
from shutil import get_terminal_size
from textwrap import indent, wrap
from typing import TYPE_CHECKING

from grls.data.types import Query
from grls.errors import ConfigError, DataError, Option
from grls.io.arguments import Count
from grls.io.ending import require
from grls.io.progress import aligned, counted, visible
from grls.io.work import alone_in
from grls.models.option_names import Device, Precision
from grls.serve.start import Port, named_folders

if TYPE_CHECKING:
    from grls.fitting.judging import Judging, PooledQuestion

_TERMINAL = "/dev/tty"
_LINES, _INDENT = 3, " " * 5
_NEXT = "question (u: undo, q or an empty line: end): "
_MARK = "gold, in the order of need, as in 3 1 (n: none, s: skip, t 3: whole text, u: undo, q: end): "


def judge_command(
    folders: list[str],
    *,
    queries: str | None = None,
    output: str = "judged",
    k: Count = 5,
    page: bool = False,
    port: Port = 8000,
    device: Device = "auto",
    precision: Precision = "float32",
) -> None:
    """Judge questions: which of the passages that several retrievers find answer them.

    Each question is shown with the first hits of all retrievers, in an order that does not tell which one
    found what. The answers are a data set, which `grls fit`, `grls tune` and `grls evaluate` take: its split
    dev. Each is on disk at once. Called again, the command goes on, and asks nothing twice. After a few
    answers it says how many more would tell the two best retrievers apart; at the end it compares all.

    Args:
        folders: The output of `grls fit`, for all its candidates, or one or several retriever folders over
            the same corpus, each as FOLDER or NAME=FOLDER.
        queries: The questions: queries.jsonl, a data set folder, or any other file with a question a line;
            `-`: standard input; null: they are typed.
        output: Data set folder to write.
        k: Number of first hits of each retriever that are shown.
        page: Ask on a page in the browser, in place of the terminal; needs `pip install "grls[serve]"`.
        port: Port of the page, which this machine alone can open.
    """
    named = named_folders(folders)
    if page:
        require("serve", "grls judge --page")
    from grls.fitting.judging import Judging, open_candidates, read_questions

    if queries in ("-", "/dev/stdin"):
        questions = [Query("", text.strip()) for text in sys.stdin if text.strip()]
        if not page:
            try:
                sys.stdin = Path(_TERMINAL).open(encoding="utf-8")  # noqa: SIM115
            except OSError:
                told = "there is no terminal to type the answers: give a file, or"
                raise ConfigError(f"{Option('queries', '-')}: {told} {Option('page', 'true')}.") from None
    else:
        questions = [] if queries is None else read_questions(queries)
    candidates = open_candidates(named, device, precision)
    with alone_in(output), closing(Judging(candidates, output, questions, k)) as judging:
        found = f"{counted(len(candidates), 'candidate')} over {counted(len(judging.corpus), 'passage')}"
        print(f"{found}; {len(judging.records)} judged, {len(judging.waiting)} to judge", flush=True)
        if len(candidates) == 1:
            print("one candidate is compared with none, and what it misses is never shown: name more")
        if page:
            from grls.serve.judge_page import serve_judging

            serve_judging(judging, port)
        else:
            _ask(judging)
        _print_end(judging)


def _ask(judging: Judging) -> None:
    """Ask on the terminal, or in a pipe, until the input ends."""
    if isinstance(sys.stdin, io.TextIOWrapper):  # an error of decoding would lose what follows the line
        sys.stdin.reconfigure(errors="surrogateescape")
    shown: PooledQuestion | None = None
    while True:
        asked = judging.asked()
        if asked is not None and asked != shown:
            _print_question(asked)
        shown = asked
        try:
            word = input(_NEXT if asked is None else _MARK).strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if word == "q" or (asked is None and not word):
            return
        try:
            if word != word.encode(errors="replace").decode():
                raise DataError("expected UTF-8 text; type the line again.")
            if word == "u":
                if not judging.undo():
                    print("nothing is judged yet")
            elif asked is None and len(word) == 1:  # an answer to no question
                raise DataError(f"expected a question, got {word!r}")
            elif asked is None:
                judging.ask(word)
            elif word == "s":
                judging.skip()
            else:
                _answer(judging, asked, word)
        except DataError as error:
            print(visible(error.text))


def _answer(judging: Judging, asked: PooledQuestion, word: str) -> None:
    """Take the line ``n``, ``t NUMBER``, or the numbers of gold passages."""
    begin, *rest = word.replace(",", " ").split() or [""]
    numbers = rest if begin == "t" else [] if word == "n" else [begin, *rest]
    known = {str(number): hit for number, hit in enumerate(asked.hits, 1)}
    wrong = [number for number in numbers if number not in known or numbers.count(number) > 1]
    if wrong or (begin == "t" and not rest):
        numbered = f"numbers from 1 to {len(known)}, each once" if known else "n or s: nothing was found"
        print(f"expected {numbered}, got {visible(word)!r}")
    elif begin == "t":
        for number in rest:
            print(visible(f"{number:>3}  {known[number].title}\n{indent(known[number].text, _INDENT)}"))
    else:
        judging.judge([known[number].id for number in numbers])
        if told := judging.told():
            print(told)


def _print_question(asked: PooledQuestion) -> None:
    from grls.fitting.judging import place_of

    columns = max(40, get_terminal_size((100, 24)).columns) - len(_INDENT)
    print(visible(f"\n{asked.query.text}"))
    for number, hit in enumerate(asked.hits, 1):
        place = place_of(hit)
        print(visible(f"{number:>3}  {hit.title or hit.id}{f' ({place})' if place else ''}"))
        for row in wrap(hit.text, columns, max_lines=_LINES, placeholder=" …"):
            print(visible(f"{_INDENT}{row}"))
    print("" if asked.hits else "     nothing was found")


def _print_end(judging: Judging) -> None:
    gold, judged, rows = len(judging.gold), len(judging.records), judging.table()
    if judged:
        print(f"{counted(gold, 'question')} with gold, {judged - gold} without: {judging.output}")
    print("\n".join(aligned(rows, {0}) if rows else ["no question has gold yet"]))
