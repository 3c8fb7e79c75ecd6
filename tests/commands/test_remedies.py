"""The options that errors and warnings name are options of a command."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from grls.cli import VERBS, Command, Verb

PACKAGE = Path(__file__).parents[2] / "grls"
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.]*\w")
TRAININGS = (
    *("--data.", "--model.", "--trainer.", "--checkpoint.", "--recall.", "--mine.", "--quotes.", "--last."),
    "--ckpt_path",
)
"""The options of ``grls train``, which Lightning parses."""
OTHERS = {"--version", "--seed_everything", "--head", "--no"}
"""Those of no verb, of ``ray start`` and of ``pip install --no-deps``."""
ELSEWHERE = ("page.py", "html.py", "page/files.py", "riches/written.py")
"""Files with options of before, or with properties of style sheets."""


def texts(file: Path) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


@pytest.fixture(scope="module")
def known() -> set[str]:
    """The options of all commands."""
    found: set[str] = set()

    def collect(verb: Verb) -> None:
        for one in verb.names.values():
            collect(one)
        if verb.target and not verb.training:
            actions = Command(verb, "grls").parser()._actions
            found.update(option for action in actions for option in action.option_strings)

    for verb in VERBS.values():
        collect(verb)
    return found


def test_remedies_name_options_that_there_are(known: set[str]) -> None:
    assert {"--fit.multistep", "--search.beams", "--limits.query"} <= known
    files = [file for file in PACKAGE.rglob("*.py") if not str(file).endswith(ELSEWHERE)]
    unknown = {
        f"{file.relative_to(PACKAGE)}: {option}"
        for file in files
        for text in texts(file)
        for option in OPTION.findall(text)
        if option not in known | OTHERS and not option.startswith(TRAININGS)
    }
    assert unknown == set()
