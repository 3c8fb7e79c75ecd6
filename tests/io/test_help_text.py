"""Help texts fit the terminal, and a list stays a list."""

import re

import pytest

from grls.cli import main


@pytest.mark.parametrize("words", [["--help"], ["prepare", "--help"], ["train", "--help"]])
def test_the_lists_of_verbs_fit(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert main(words) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 72


def test_the_names_that_may_follow_a_verb_stand_in_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were one paragraph, whose lines ended in the middle of a command."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["fuse", "--help"])
    text = capsys.readouterr().out
    assert re.search(r"\n\nSee also `grls fuse NAME`:\n\n  cut {13} *cut each ranking", text)
