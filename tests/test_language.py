"""Texts of the code are plain: some turns of phrase and some names of variables do not come back."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CLEAN = (
    "grls/errors.py",
    "grls/__init__.py",
    "grls/data",
    "grls/decode",
    "grls/index",
    "grls/io",
    "grls/cluster",
    "grls/cli.py",
    "grls/train",
    "grls/models",
    # Retrieval, training and the commands.
    "grls/tune",
    "grls/runs",
    "grls/retrieve",
    "grls/commands",
    # Answers, reports, and what stands beside the package.
    "grls/answer",
    "grls/explain",
    "grls/evaluation",
    "grls/report",
    # What users call, and what stands above it.
    "grls/fitting",
    "grls/api",
    "grls/adapters",
    "grls/serve",
    "data_prep",
    "benchmarks",
)
"""Files and folders whose texts have been gone through. Add a folder once it is plain."""

PHRASES = {
    r"\baffairs?\b": "say where the thing is done: 'Loss: grls.train.chains.loss'",
    r"\bNull:": "'…; null: the default': the value is written as in YAML, in lower case",
    r"\. (?:None|null):": "'…; None: the default': one sentence, as everywhere",
    r"\btheirs\b": "name what belongs to them",
    r"\bLikewise\b": "say it again, or name the field it is like",
    r"\b[Aa]s of (?=[:`]|grls|another)": "'see', 'like' or 'as in'",
    r"\b(?:is|are) to count\b": "'the weight of'",
    r"\b(?:is|are|was|were) told\b(?! (?:to|apart))": "'reported', 'given' or 'known from'",
    r"\btold of\b": "'reported'",
    r"\b[Ww]hoever\b": "name who does it",
    r"\bheed(?:s|ed|ing)?\b(?![`:]|$)": "'used', 'obeyed' or 'taken into account'",
    r"\bas is usual for\b": "'by default'",
    r"(?<!self-)\bassess(?:es|ed|ing|ments?)?\b(?!-|\.json)": "'rescore', 'score' or 'judge'",
    r"\bbeginnings\b": "'first step' or 'prefixes'",
    r"(?:^|[.:;] )Who \w+s\b": "name who does it",
    r"\bleaves? off\b": "'the frontier' or 'stops'",
    r"\bis (?:said|known) of\b": "name the thing: 'priors', 'settings'",
    r"\bnumbered anew\b": "'renumbered'",
}
"""Turns that are not plain -> what to write instead. (Seeds hold "assess-"; kinds have ``heeds``.)"""

EARLIER = ("grls/commands/renamed.py", "grls/retrieve/generative/earlier.py")
"""Files that hold the names of earlier versions."""

NAMES = {"told", "theirs", "some"}
"""Variables and arguments that say nothing: name what they hold (hits, rows, scores)."""


def files() -> list[Path]:
    chosen = [ROOT / place for place in CLEAN]
    listed = [[place] if place.is_file() else sorted(place.rglob("*.py")) for place in chosen]
    assert all(listed), "a place of CLEAN is not there"
    return sorted({file for group in listed for file in group} - {ROOT / place for place in EARLIER})


def texts(source: str) -> list[tuple[int, str]]:
    """(line, text) of all strings, docstrings among them, and comments."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    return [(node.lineno, node.value) for node in nodes if isinstance(node.value, str)] + comments


def names(source: str) -> list[tuple[int, str]]:
    """(line, name) of every variable that is set, and every argument."""
    nodes = list(ast.walk(ast.parse(source)))
    pairs = [(node.lineno, node.arg) for node in nodes if isinstance(node, ast.arg)]
    loaded = ast.Load
    pairs += [(n.lineno, n.id) for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, loaded)]
    return sorted(set(pairs))


def turns(source: str) -> list[str]:
    """Every turn of the list above that a source text holds, with its line and the remedy."""
    found = []
    for line, text in texts(source):
        for pattern, remedy in PHRASES.items():
            for match in re.finditer(pattern, " ".join(text.split())):
                found.append(f"line {line}: {match[0]!r}; write {remedy}")
    return found + [f"line {line}: the name {name!r}" for line, name in names(source) if name in NAMES]


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_texts_are_plain(file: Path) -> None:
    assert turns(file.read_text(encoding="utf-8")) == []


def test_the_list_finds_each_kind_of_text() -> None:
    """The test above rests on this."""
    source = (
        '"""What it learns is another\'s affair."""\n# Likewise.\ndef f(told: int) -> str:\n'
        '    """Arguments as of :func:`g`."""\n    return f"{told} passages are\\nto count"\n'
    )
    assert [line.partition(";")[0] for line in turns(source)] == [
        "line 1: 'affair'",
        "line 4: 'as of '",
        "line 5: 'are to count'",
        "line 2: 'Likewise'",
        "line 3: the name 'told'",
    ]
