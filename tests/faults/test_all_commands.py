"""Every command that writes is in the fault harness."""

from inspect import signature
from pathlib import Path

from command_lines import commands
from verbs import commands as every_command

from grls.cli import VERBS, Command

EXCEPT = {
    "search": "prints, and writes no file",
    "push": "uploads a copy; no file here is written",
    "serve": "its own test kills it: test_killed_server.py",
    "judge": "its own test kills it: test_judge.py",
    **dict.fromkeys(
        (
            f"prepare {name}"
            for name in [
                "entailmentbank",
                "strategyqa",
                "explagraphs",
                "hotpotqa_full",
                "hotpotqa_distractor",
                "twowiki",
                "musique",
                "hipporag",
                "multihop_rag",
                "nq",
                "nq320k",
                "msmarco",
                "browsecomp_plus",
                "qrecc",
                "ruletaker_release",
            ]
        ),
        "writes as `prepare hotpotqa` does",
    ),
}
"""Commands without a case in the harness, each with the reason."""


def command_of(line: list[str]) -> str:
    """The command of a line: its words that are names."""
    verb, names = VERBS[line[0]], [line[0]]
    for word in line[1:]:
        if word not in verb.names:
            break
        verb, names = verb.names[word], [*names, word]
    return " ".join(names)


def test_every_command_that_writes_is_in_the_harness() -> None:
    tried = {command_of(one.line(Path("in"), Path("out"))) for one in commands()}
    missing = every_command().keys() - tried - EXCEPT.keys()
    assert not missing, f"give these a case in command_lines.py, or a reason in EXCEPT: {sorted(missing)}"
    assert not tried & EXCEPT.keys()
    assert every_command().keys() >= EXCEPT.keys()
    for name, why in EXCEPT.items():
        if why.startswith("prints"):
            assert "output" not in signature(Command(VERBS[name], name).function).parameters


def test_the_cases_have_names_of_their_own() -> None:
    names = [one.name for one in commands()]
    assert len(names) == len(set(names))
