"""A page for each verb of ``grls``, made from its ``--help``."""

import io
import os
from collections.abc import Iterator
from contextlib import redirect_stdout

from grls.cli import VERBS, Verb, main

WIDTH = 92
"""Characters of a line of help."""


def pages() -> dict[str, str]:
    """Place in the site -> its text, for the list of verbs and for every verb."""
    texts = {"reference/commands/index.md": _overview()}
    return texts | {_place(name): _page(name, verb) for name, verb in VERBS.items()}


def places() -> list[str]:
    """The places of the pages, in the order of ``grls --help``."""
    return ["reference/commands/index.md", *map(_place, VERBS)]


def _place(name: str) -> str:
    return f"reference/commands/{name}.md"


def _overview() -> str:
    rows = [f"| [`grls {name}`]({name}.md) | {_cell(verb.summary)} |" for name, verb in VERBS.items()]
    head = [
        "# Commands",
        "",
        "The texts are those of `--help`.",
        "",
        "| command | what it does |",
    ]
    return "\n".join([*head, "|---|---|", *rows, ""])


def _page(name: str, verb: Verb) -> str:
    parts = [f"# grls {name}", "", f"{verb.summary[0].upper()}{verb.summary[1:]}.", ""]
    for words, one in _commands(name, verb):
        heading = [f"## grls {' '.join(words)}", "", f"{one.summary[0].upper()}{one.summary[1:]}.", ""]
        parts += heading if len(words) > 1 else []
        parts += ["```text", _help(words).rstrip(), "```", ""]
    return "\n".join(parts)


def _commands(name: str, verb: Verb) -> Iterator[tuple[list[str], Verb]]:
    """(words, verb) of a verb and of the names that may follow it."""
    yield [name], verb
    for word, one in verb.names.items():
        yield [name, word], one


def _help(words: list[str]) -> str:
    """What ``grls WORDS --help all`` prints."""
    printed, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with redirect_stdout(printed):
            main([*words, "--help", "all"])
    except SystemExit as end:
        if end.code:
            raise
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return "".join(c for c in printed.getvalue() if c == "\n" or c.isprintable())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
