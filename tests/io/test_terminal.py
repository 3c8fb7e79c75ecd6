"""Foreign text in a terminal cannot steer it, and help texts fit it."""

import logging
import re
from pathlib import Path

import pytest
from fixture_types import Capsys, Patch

from grls.answer.kept import shown_answer
from grls.answer.written import Piece, Quote, Written
from grls.cli import main
from grls.data.dataset import DataFault, format_faults, write_dataset
from grls.data.types import Hit, Passage, Query
from grls.evaluation.evaluate import judged_runs
from grls.evaluation.examples import format_examples
from grls.explain.text import aligned
from grls.io.progress import Visible, visible
from grls.runs.run import Run
from grls.runs.trec import write_run

EVIL = "\x1b]0;owned\x07\x1b[2Jclear\x9b1m\rover\x7f\x00"
SHOWN = "␛]0;owned␇␛[2Jclear\\x9b1m␍over␡␀"


def clean(text: str) -> bool:
    return "owned" in text and not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in text)


def test_control_characters_are_signs_and_all_else_stays() -> None:
    assert visible(EVIL) == SHOWN
    assert visible(SHOWN) == SHOWN
    plain = "a\tb\nc é 東京 שלום \u200f\u200d 👩\u200d🚀 \xa0"
    assert visible(plain) == plain


def test_what_was_written_cannot_steer_a_terminal() -> None:
    quote = Quote(EVIL, (EVIL,), (EVIL,))
    written = Written(EVIL, True, (Piece("thought", EVIL), Piece("quote", EVIL, 0)), (quote,))
    assert clean(shown_answer(written.record(Query(EVIL, EVIL))))


def test_examples_cannot(tmp_path: Path) -> None:
    query = Query("q", EVIL, ("a",))
    write_dataset(tmp_path / "data", [Passage("a", EVIL)], [query], {"test": {"q": {"a": 1}}})
    write_run(tmp_path / "run", {"q": [Hit("a", -1.0)]})
    assert clean(format_examples(*judged_runs([Run.load(tmp_path / "run")], tmp_path / "data"), 1))


def test_tables_and_checks_cannot() -> None:
    assert clean("\n".join(aligned([["rank", EVIL]], left=(1,))))
    assert clean(format_faults([DataFault(Path("queries.jsonl"), 1, EVIL)]))


def test_errors_and_warnings_cannot(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["check", str(tmp_path / "\x1b]0;owned\x07")]) == 1
    assert clean(capsys.readouterr().err)
    record = logging.LogRecord("grls", logging.WARNING, "", 0, "query %s", (EVIL,), None)
    assert Visible().format(record) == f"query {SHOWN}"
    assert logging.lastResort is not None
    assert isinstance(logging.lastResort.formatter, Visible)


@pytest.mark.parametrize("words", [["--help"], ["prepare", "--help"], ["train", "--help"]])
def test_the_lists_of_verbs_fit(words: list[str], monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72


def test_the_names_that_may_follow_a_verb_stand_in_lines(monkeypatch: Patch, capsys: Capsys) -> None:
    """They were one paragraph, whose lines ended in the middle of a command."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["index", "--help"])
    text = capsys.readouterr().out
    assert re.search(r"\n\nSee also `grls index NAME`:\n\n  hybrid {10} *a generator with priors", text)
