"""The Python of the pages runs as it stands there, and prints what follows it; commands name real options."""

import doctest
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from verbs import fault

from grls.data.identifiers import KINDS as IDENTIFIERS
from grls.evaluation.measures import REGISTERED
from grls.index.backends import BACKENDS
from grls.retrieve.registry import KINDS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ELSEWHERE = {
    "python.md": "tests/api/test_documented.py",
    "adapters.md": "tests/adapters/test_adapters_docs.py",
    "guides/train.md": "tests/api/test_fit_generator.py",
    "fit.md": "the README, whose test runs the same call",
    "guides/serve.md": "tests/serve",
    "guides/agents.md": "tests/serve/test_tools.py",
}
"""Pages whose Python needs models or packages -> where it is run."""
REGISTRIES: tuple[dict[str, Any], ...] = (KINDS, BACKENDS, REGISTERED, IDENTIFIERS)
"""What the examples of the pages on extending add to."""
BLOCK = re.compile(
    r"(?<!<!-- no-run -->\n\n)^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL
)


def name(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def pages() -> list[Path]:
    """The pages with Python that is run here."""
    every = [page for page in sorted(DOCS.rglob("*.md")) if name(page) not in ELSEWHERE]
    return [page for page in every if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.fixture
def as_before() -> Iterator[None]:
    """What pages register, and the modules that they write, are gone afterwards."""
    known, modules = [(now, dict(now)) for now in REGISTRIES], set(sys.modules)
    yield
    for now, before in known:
        for added in set(now) - set(before):
            del now[added]
    for added in set(sys.modules) - modules:
        file = getattr(sys.modules[added], "__file__", None) or ""
        if Path(file).parent.name.startswith("test_python_prints"):  # pytest's temporary folder
            del sys.modules[added]


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("page", pages(), ids=name)
def test_python_prints_what_the_page_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is one program; ``...`` stands for what differs each time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {"__name__": name(page)}
    for code, expected in BLOCK.findall(page.read_text(encoding="utf-8")):
        printed = StringIO()
        if code.startswith("# file: "):  # a module that later blocks import
            (tmp_path / code.split("\n", 1)[0].removeprefix("# file: ")).write_text(code)
            continue
        with redirect_stdout(printed):
            exec(compile(code, name(page), "exec"), names)
        expected = re.sub(" +[.]{3}", " ...", expected)  # numbers differ in width, too
        same = doctest.OutputChecker().check_output(expected, printed.getvalue(), doctest.ELLIPSIS)
        assert same or not expected, printed.getvalue()


def commands(page: Path) -> list[str]:
    """The ``grls`` commands in blocks of code without a language, and between backticks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    blocks = "\n".join(block for language, block in fenced if language in ("", "sh"))
    lines = [line for line in blocks.replace("\\\n", " ").splitlines() if line.startswith("grls ")]
    return lines + re.findall(r"`(grls [a-z-][^`]*)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.stem
)
def test_commands_can_be_pasted(page: Path) -> None:
    """Trainings parse their options by Lightning: tests/test_configs.py runs them, and all of the guides."""
    assert {command: said for command in commands(page) if (said := fault(command))} == {}
