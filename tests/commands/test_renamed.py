"""Commands of earlier versions say what they are called now."""

import re
from contextlib import suppress

import pytest

from grls.cli import VERBS, main
from grls.commands.renamed import ARGUMENTS, RENAMED

BEFORE = {
    "train": ("train --config=configs/memorise.yaml", "train memorise|retrieve|chains|riches|doc2query"),
    "neighbours": ("neighbours --data d --output o", "prepare neighbours"),
    "train-biencoder": ("train-biencoder --data d", "train biencoder"),
    "index": ("index --model m --corpus c --output o", "index MODEL"),
    "update": ("update --retriever r --add a", "index update"),
    "retrieve": ("retrieve --retriever=r --data d --output o", "retrieve RETRIEVER"),
    "tune-hybrid": ("tune-hybrid --retriever r", "tune"),
    "tune-assess": ("tune-assess --retriever r", "tune"),
    "tune-dynamic": ("tune-dynamic --retriever r", "tune"),
    "ensemble": ("ensemble a.jsonl b.jsonl --output o", "fuse"),
    "cut": ("cut a.jsonl --tune b.jsonl", "fuse cut"),
    "evaluate": ("evaluate --data d --run r.jsonl", "evaluate RUN"),
    "riches": ("riches --data d --model m", "answer riches"),
    "propositions": ("propositions --data d", "prepare propositions"),
    "pseudo-queries": ("pseudo-queries --data d", "prepare pseudo-queries"),
    "read": ("read --data d --model m", "answer direct"),
    "program": ("program run openqa --data d", "answer dsp"),
    "answers": ("answers a.answers.jsonl --data d", "evaluate"),
    "ralm": ("ralm --job examples --model m", "ralm, ralm examples or ralm generate"),
    "train-reranker": ("train-reranker --examples e", "train reranker"),
}
"""Command of before -> how it was called, and its name now."""
AS_BEFORE = {"report": "a.jsonl", "explain": "q1", "check": "data"}
"""Commands that are called as before, with their argument."""


def test_all_commands_of_the_first_version_are_here() -> None:
    assert len({*BEFORE, *AS_BEFORE}) == 23
    assert {*RENAMED, *(name for name, _ in ARGUMENTS)} - {"tune-rescore"} == set(BEFORE)


@pytest.mark.parametrize("old", BEFORE)
def test_a_command_of_before_says_its_new_name(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    line, now = BEFORE[old]
    assert main(line.split()) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert re.match(rf"error: `grls {re.escape(old)}( --\w+)?` is now `grls {re.escape(now)}[` (]", text)


@pytest.mark.parametrize("now", [*RENAMED.values(), *ARGUMENTS.values()])
def test_a_new_name_is_a_command(now: str) -> None:
    for way in re.split(r", | or ", now.split(" (")[0]):
        first, _, names = way.removeprefix("grls ").partition(" ")
        verb = VERBS[first]
        for name in names.split("|") if names else []:
            assert name in verb.names or name.isupper() or (first, name) == ("retrieve", "bm25")


@pytest.mark.parametrize("name", AS_BEFORE)
def test_a_command_that_stays_takes_what_it_took(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: list[list[str]] = []
    monkeypatch.setattr("grls.cli.Command.run", lambda command, arguments: run.append(arguments))
    assert main([name, AS_BEFORE[name], "--output", "o"]) == 0
    assert run == [[AS_BEFORE[name], "--output", "o"]]


@pytest.mark.parametrize("line", ["train --help", "train", "retrieve --help", "index fusion a b --help"])
def test_commands_of_today_are_not_taken_for_those_of_before(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):
        main(line.split())
    said = "".join(capsys.readouterr())
    assert "usage: grls" in said
    assert "is now" not in said
