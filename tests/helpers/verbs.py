"""The commands of ``grls``."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import split
from typing import Any

from grls.cli import VERBS, Command, Verb, with_lists
from grls.errors import GrlsError, in_shell, worded
from grls.io.recipes import with_recipes

ROOT = Path(__file__).parents[2]


def commands(verbs: Mapping[str, Verb] = VERBS, before: str = "") -> dict[str, Verb]:
    """All that have a function, as they are called."""
    found: dict[str, Verb] = {}
    for name, verb in verbs.items():
        found |= {f"{before}{name}": verb} if verb.target else {}
        found |= commands(verb.names, f"{before}{name} ")
    return found


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """The options of a command, without its first word ``grls``."""
    verbs, names = VERBS, []
    while words[len(names)] in verbs:
        names.append(words[len(names)])
        verb = verbs[names[-1]]
        verbs = verb.names
    parser = Command(verb, f"grls {' '.join(names)}").parser()
    rest = with_lists(with_recipes(words[len(names) :]), parser)
    options: dict[str, Any] = parser.instantiate(parser.parse_args(rest)).as_dict()
    return options


def fault(command: str) -> str:
    """What a shell or the command would refuse of a command of a text; empty: nothing.

    Words in capitals and ``x`` stand for values. A command without options is named, not written out.
    """
    command = re.sub(r"(--[\w.]+) …", r"\1 x", command).replace("…", "")
    words = split(command, comments=True)
    if words[0] == "make":
        known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return ", ".join(set(words[1:]) - set(known))
    if words[0] != "grls":
        return ""
    verbs, names, verb = VERBS, [], None
    for word in words[1:]:
        if word not in verbs:
            break
        verb = verbs[word]
        verbs, names = verb.names, [*names, word]
    rest = words[1 + len(names) :]
    if verb is None:
        return (
            ""
            if rest in ([], ["--version"], ["VERB", "--help"], ["COMMAND", "--help"], ["--help"])
            else "no verb"
        )
    if not verb.target or not any(word.startswith("--") for word in rest):
        return ""
    parser = Command(verb, f"grls {' '.join(names)}").parser()
    try:
        parser.parse_args(with_lists(rest, parser))
    except GrlsError as error:
        said = worded(error.text, in_shell).partition("\n")[0]
        return "" if re.search(r"must be given\.$|needs a value|, got ([A-Z]+|x)\.$", said) else said
    except SystemExit:  # --help
        pass
    return ""
