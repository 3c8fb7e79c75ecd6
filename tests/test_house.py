"""How large the package is and how many joints a call passes: `make house` prints it, with bounds.

The figures are of the whole, for no file or function has a limit. Tokens are counted, not lines: a bound on
lines makes lines denser. A bound is what was reached, and goes down with it; the last column is where the
package is to go.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "grls"


class Bound(NamedTuple):
    """The most that a figure may be, and where it is to go."""

    most: int
    aim: int


BOUNDS = {
    "tokens of grls": Bound(428_500, 360_000),
    "tokens of tests": Bound(515_300, 410_000),
    "words of docstrings": Bound(100_100, 90_000),
    "modules of grls": Bound(345, 300),
    "functions": Bound(3_560, 2_900),
    "private functions called once": Bound(280, 450),
    "modules with one importer": Bound(45, 45),
    "modules that name done_bias": Bound(3, 3),
    "option places": Bound(1_050, 700),
    "distinct options": Bound(345, 300),
    "grls.load: files": Bound(34, 30),
    "grls.load: functions": Bound(134, 130),
    "search, one step: files": Bound(26, 20),
    "search, one step: functions": Bound(157, 110),
    "search until DONE: files": Bound(34, 24),
    "search until DONE: functions": Bound(193, 125),
    "grls search: files": Bound(54, 42),
    "grls search: functions": Bound(317, 240),
    "BM25(texts).search: files": Bound(16, 12),
    "BM25(texts).search: functions": Bound(79, 60),
    "grls fuse: files": Bound(23, 18),
    "grls fuse: functions": Bound(156, 90),
}


LAYOUT = {
    tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


def tokens_of(folder: Path) -> int:
    """Tokens of the Python files of a folder, without comments and layout; an f-string is one."""
    n = depth = 0
    for file in folder.rglob("*.py"):
        with file.open("rb") as lines:
            for token in tokenize.tokenize(lines.readline):
                name = tokenize.tok_name[token.type]
                depth -= name == "FSTRING_END"  # Python 3.12 parts f-strings, 3.11 does not
                n += depth == 0 and token.type not in LAYOUT and name != "FSTRING_START"
                depth += name == "FSTRING_START"
    return n


def structure() -> dict[str, int]:
    """Figures of the source."""
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
        for file in PACKAGE.rglob("*.py")
    }
    importers: dict[str, set[str]] = {name: set() for name in modules}
    functions = called_once = done_bias = words = 0
    for module, file in modules.items():
        text = file.read_text(encoding="utf-8")
        done_bias += "done_bias" in text
        tree = ast.parse(text)
        uses = Counter[str]()
        private: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                words += len((ast.get_docstring(node) or "").split())
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                if node.name.startswith("_") and not node.name.startswith("__"):
                    private.append(node.name)
            elif isinstance(node, ast.Name):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
            elif isinstance(node, ast.ImportFrom) and node.module in modules:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    importers[name if name in modules else node.module].add(module)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    importers.get(alias.name, set()).add(module)
        called_once += sum(uses[name] == 1 for name in private)
    return {
        "tokens of grls": tokens_of(PACKAGE),
        "tokens of tests": tokens_of(ROOT / "tests"),
        "words of docstrings": words,
        "modules of grls": len(modules),
        "functions": functions,
        "private functions called once": called_once,
        "modules with one importer": sum(len(names) == 1 for names in importers.values()),
        "modules that name done_bias": done_bias,
    }


def options() -> dict[str, int]:
    """Options of all verbs, without ``--config``, ``--print_config``, and the names of groups."""
    from verbs import commands

    from grls.cli import Command

    names: list[str] = []
    for verb in commands().values():
        actions = Command(verb, "grls").parser()._actions
        names += leaves([a.dest for a in actions if a.option_strings])
    return {"option places": len(names), "distinct options": len(set(names))}


def leaves(names: list[str]) -> list[str]:
    """The names of options that take a value."""
    groups = {name[:at] for name in names for at, sign in enumerate(name) if sign == "."}
    return [name for name in names if name not in groups | {"config", "help", "print_config"}]


def entered(call: Callable[[], Any]) -> tuple[int, int]:
    """Files and functions of the package that a call enters, without imports.

    A comprehension is no function: Python 3.12 enters none, and a reader neither.
    """
    files: set[str] = set()
    functions: set[tuple[str, str]] = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        counts = code.co_flags & 1 and code.co_name not in COMPREHENSIONS
        if event == "call" and counts and code.co_filename.startswith(str(PACKAGE)):
            files.add(code.co_filename)
            functions.add((code.co_filename, code.co_qualname))

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        call()  # imports and caches
        sys.setprofile(watch)
        try:
            call()
        finally:
            sys.setprofile(None)
    return len(files), len(functions)


def calls(place: Path) -> dict[str, int]:
    """Figures of calls, on a small random generator and on BM25."""
    from llama_small import write_llama
    from small_data import passages, write_small

    import grls
    from grls.cli import main

    data, folder, question = write_small(place / "data"), place / "retriever", "is the otter calm ?"
    write_llama(place / "llama", data)
    texts = [passage.text for passage in passages()]
    made = [["index", str(place / "llama"), f"--corpus={data}", f"--output={folder}", "--device=cpu"]]
    for name in ("one", "two"):
        made.append(["retrieve", "bm25", f"--data={data}", "--split=train", f"--output={place / name}"])
    for command in made:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            if main(command) != 0:
                raise RuntimeError(f"grls {' '.join(command)} failed")
    searcher = grls.load(folder, device="cpu")
    hopping = searcher.hops(steps="dynamic")
    files = [f"{place / name}.jsonl" for name in ("one", "two")]
    watched = {
        "grls.load": lambda: grls.load(folder, device="cpu"),
        "search, one step": lambda: searcher.search(question),
        "search until DONE": lambda: hopping.search(question),
        "grls search": lambda: main(["search", str(folder), question, "--device=cpu"]),
        "BM25(texts).search": lambda: grls.BM25(texts).search(question),
        "grls fuse": lambda: main(["fuse", *files, f"--output={place / 'fused'}"]),
    }
    figures = {}
    for name, call in watched.items():
        figures[f"{name}: files"], figures[f"{name}: functions"] = entered(call)
    return figures


def figures() -> dict[str, int]:
    """All figures."""
    with tempfile.TemporaryDirectory() as place:
        return structure() | options() | calls(Path(place))


def report(measured: dict[str, int]) -> tuple[str, list[str]]:
    """The table, and the figures that are above their bounds."""
    rows = [f"{'figure':36} {'now':>7} {'bound':>7} {'aim':>7}"]
    for name, n in measured.items():
        rows.append(f"{name:36} {n:>7,} {BOUNDS[name].most:>7,} {BOUNDS[name].aim:>7,}")
    return "\n".join(rows), [name for name, n in measured.items() if n > BOUNDS[name].most]


def test_the_package_is_no_larger_than_it_was() -> None:
    table, above = report(figures())
    assert above == [], table


def test_a_figure_above_its_bound_is_named() -> None:
    name, bound = next(iter(BOUNDS.items()))
    assert report({name: bound.most})[1] == []
    assert report({name: bound.most + 1})[1] == [name]


def test_a_call_enters_what_it_enters(tmp_path: Path) -> None:
    from grls.io.progress import plural

    assert entered(lambda: plural("query")) == (1, 1)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]
    table, above = report(figures())
    print(table)
    sys.exit(f"above the bound: {', '.join(above)}" if above else 0)
