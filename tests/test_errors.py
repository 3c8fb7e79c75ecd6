"""Errors carry options as values, and each surface words them: shell, Python, requests."""

import ast
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import split

import pytest
from small_data import write_jsonl
from verbs import commands, fault

import grls
from grls.cli import Command, main
from grls.errors import (
    ConfigError,
    DataError,
    GrlsError,
    Option,
    in_python,
    in_request,
    in_shell,
    worded,
    worded_for,
)


@pytest.mark.parametrize(("text", "shell", "python", "request_"), [
    (f"choose {Option('hops.steps', 'fixed', 'dynamic')}.", "choose --hops.steps fixed or dynamic.",
     'choose steps="fixed" or "dynamic".', 'choose hops.steps "fixed" or "dynamic".'),
    (f"leave {Option('hops.steps')} out", "leave --hops.steps out", "leave steps out",
     "leave hops.steps out"),
    (f"with {Option('resume', True)}", "with --resume true", "with resume=True", "with resume true"),
    (f"raise {Option('limits.input', 96)}.", "raise --limits.input 96.", "raise input=96.",
     "raise limits.input 96."),
    (f"give {Option('retriever', 'FOLDER')}", "give --retriever FOLDER", "give retriever=FOLDER",
     "give retriever FOLDER"),
    (f"lower {Option('data.batch_size')}", "lower --data.batch_size", "lower data.batch_size",
     "lower data.batch_size"),
    (f"set {Option('dev_split', None)}", "set --dev_split null", "set dev_split=None", "set dev_split null"),
    (f"run `grls train {Option('resume', True)}`.", *["run `grls train --resume true`."] * 3),
    (f"with {Option('ratios', [0.8, 0.2])}", "with --ratios 0.8 0.2", "with ratios=[0.8, 0.2]",
     "with ratios [0.8, 0.2]"),
    (f"got {Option('name', 'é⟧ x')}", "got --name 'é⟧ x'", 'got name="é⟧ x"', 'got name "é⟧ x"'),
    (f"raise {Option('limits.input', python='max_tokens')}", "raise --limits.input", "raise max_tokens",
     "raise limits.input"),
    ('a text ⟦["of a user⟧', *['a text ⟦["of a user⟧'] * 3),
    ('a text ⟦["x", y]⟧', *['a text ⟦["x", y]⟧'] * 3),
    ('a text ⟦["x", 3]⟧', *['a text ⟦["x", 3]⟧'] * 3),
])  # fmt: skip
def test_each_surface_words_an_option(text: str, shell: str, python: str, request_: str) -> None:
    for surface, expected in ((in_shell, shell), (in_python, python), (in_request, request_)):
        assert worded(text, surface) == expected
        with worded_for(surface):
            assert str(ConfigError(text)) == expected
    assert str(ConfigError(text)) == python


def test_an_error_about_an_error_keeps_the_options() -> None:
    inner = ConfigError(f"leave {Option('hops.steps')} out.")
    outer = pickle.loads(pickle.dumps(DataError(f"hops: {inner.text}", "grls.json")))
    assert str(outer) == "grls.json: hops: leave steps out."
    with worded_for(in_shell):
        assert str(outer) == "grls.json: hops: leave --hops.steps out."
        assert f"{Option('k', 5)!s}" == "--k 5"  # as in the arguments of a log


def test_a_long_text_is_cut() -> None:
    text = str(GrlsError("x" * 20_000))
    assert "xxx … (12,000 characters left out) … xxx" in text


@pytest.mark.parametrize(("verb", "option"), [
    ("index bm25 --corpus=c --output=o", "--bm25.k1"),
    ("retrieve bm25 --data=d --output=o", "--bm25.b"),
    ("prepare pseudo-queries --data=d --model=m --output=o", "--draw.temperature"),
    ("train biencoder --data=d --output=o --source=m", "--fit.hard_negatives"),
    ("retrieve r --data=d --output=o", "--hops.temperature"),
])  # fmt: skip
def test_an_option_out_of_bounds_is_named_as_it_is_typed(
    verb: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb.split(), f"{option}=-1"]) == 1
    assert f"error: {option} must be " in capsys.readouterr().err


ROOT = Path(grls.__file__).parents[1]
SHELL = {
    "io/option_errors.py": "reads what jsonargparse says",
    **dict.fromkeys(("io/html.py", "serve/page/files.py"), "styles"),
}
"""Files and folders that may write ``--``, and why."""


def texts(file: Path, show: Callable[[ast.expr], str] = lambda _: "x") -> Iterator[tuple[int, str]]:
    """The line and the content of the strings of a module, without docstrings; ``show`` shows values."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            parts.add(node.value)
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            whole = (part.value if isinstance(part, ast.Constant) else show(part) for part in node.values)
            yield node.lineno, "".join(map(str, whole))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.lineno, node.value


def test_no_text_of_the_library_names_options_as_a_shell_does() -> None:
    root, faults = Path(grls.__file__).parent, list[str]()
    for file in sorted(root.rglob("*.py")):
        name = file.relative_to(root).as_posix()
        if name == "cli.py" or name.startswith(("commands/", *SHELL)):
            continue
        for line, text in texts(file):
            plain = re.sub(r"`(?!grls )[^`]*`", "", text)  # the command of another program
            if re.search(r"\s", text) and re.search(r"(?<![\w-])--[a-z]", plain):
                faults.append(f"{name}, line {line}: {text}: pass an Option")
    assert not faults, "\n".join(faults)


OPTION = re.compile(r"(?<![\w-])--[a-z][\w.]*\w")
OTHERS = {"--version", "--head", "--no", "--help", "--config"}
"""Those of no verb, of ``ray start`` and of ``pip install --no-deps``."""


def test_remedies_name_options_that_there_are() -> None:
    parsers = [Command(verb, "grls").parser() for verb in commands().values()]
    known = {
        option for one in parsers for action in one._actions for option in action.option_strings
    } | OTHERS
    root = Path(grls.__file__).parent
    assert {"--fit.multistep", "--search.beams", "--limits.query"} <= known
    styled = ("page.py", "html.py", "page/files.py")
    unknown = {
        f"{file.relative_to(root)}: {option}"
        for file in root.rglob("*.py")
        if not str(file).endswith(styled)
        for _, text in texts(file)
        for option in OPTION.findall(text)
        if option not in known and not option.startswith("--x.")
    }
    assert unknown == set()


UNQUOTED = "\N{REPLACEMENT CHARACTER}"
"""A value in a command that a shell may read as several words."""


def typed(part: ast.expr) -> str:
    """An option as a shell has it, and ``x`` for a value that is quoted for one."""
    call = part.value if isinstance(part, ast.FormattedValue) else part
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "''.join":  # of options
        return ""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return UNQUOTED
    if call.func.id != "Option" or not isinstance(call.args[0], ast.Constant):
        return "x" if call.func.id in ("quote", "join") else UNQUOTED
    values = ["x" if "Name(" in ast.dump(value) else ast.literal_eval(value) for value in call.args[1:]]
    return in_shell(str(call.args[0].value), values)


def test_a_command_in_a_text_can_be_pasted() -> None:
    """It stands between backticks, within one string; a shell reads it, and the command its options."""
    faults, commands_read = list[str](), 0
    for file in [file for folder in ("grls", "data_prep") for file in sorted((ROOT / folder).rglob("*.py"))]:
        for line, text in texts(file, typed):
            where = f"{file.relative_to(ROOT)}, line {line}"
            if re.search("pip install", re.sub(r"`[^`]*`", "", text)) or (
                text.count("`") % 2 and re.search("`(grls|pip|make) [a-z]", text)
            ):
                faults.append(f"{where}: put the whole command between backticks: {text}")
            for command in re.findall(r"`((?:grls|pip|make) [\w-][^`]*)`", text):
                commands_read += 1
                command = command.replace(f'"grls[{UNQUOTED}]"', "grls")
                if said := "quote its values" if UNQUOTED in command else fault(command):
                    faults.append(f"{where}: {command}: {said}")
    assert commands_read > 50
    assert not faults, "\n".join(faults)


def test_a_remedy_with_a_list_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "of mine"
    write_jsonl(folder / "corpus.jsonl", [{"_id": str(n), "text": f"passage {n}"} for n in range(4)])
    queries = [{"_id": str(n), "text": f"query {n}", "evidence": [str(n % 4)]} for n in range(12)]
    write_jsonl(folder / "queries.jsonl", queries)
    assert main(["retrieve", "bm25", "--data", str(folder), "--output", str(tmp_path / "run")]) == 1
    (remedy,) = re.findall("`grls (prepare [^`]*)`", capsys.readouterr().err)
    assert main(split(remedy.replace("NEW", str(tmp_path / "new")))) == 0
    assert (tmp_path / "new" / "qrels" / "test.tsv").is_file()


def test_the_error_of_a_value_is_plain_english() -> None:
    """Of each type of an option; a list is written as words, as remedies have it."""
    faults, kinds = list[str](), set[str]()
    for name, verb in commands().items():
        parser = Command(verb, f"grls {name}").parser()
        for action in parser._actions if parser else ():
            kind = str(getattr(action, "_typehint", None))
            if kind in kinds or not action.option_strings or action.dest.endswith(".help"):
                continue
            kinds.add(kind)
            for value in ("a b", "0.5,1", "[1,", '{"a":1}'):
                try:
                    parser.parse_args([f"--{action.dest}={value}"])
                except GrlsError as error:
                    said = error.text.partition("\n")[0].partition(", got")[0]
                    if re.search(r"class|typing|collections|\[[a-z]|\||None|Sequence|tuple|Union", said):
                        faults.append(said)
    assert len(kinds) > 40
    assert not faults, "\n".join(faults)
