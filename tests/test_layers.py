"""The imports go one way."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "grls").rglob("*.py"))

ORDER = (
    ("grls.errors", "grls.types", "grls.logs", "grls.shown"),
    ("grls.spelling", "grls.temporary", "grls.where"),
    ("grls.files",),
    (
        "grls.ending",
        "grls.jsonl",
        "grls.language",
        "grls.locks",
        "grls.progress",
        "grls.text",
        "grls.webpage",
    ),
    ("grls.words",),
    ("grls.corpus", "grls.growing", "grls.sentences"),
    ("grls.assess", "grls.dataset", "grls.filters", "grls.neighbours", "grls.views"),
    ("grls.index",),
    ("grls.models",),
    ("grls.decode",),
    ("grls.retrieve", "grls.evaluation"),
    ("grls.readers",),
    ("grls.explain", "grls.programs"),
    ("grls.train",),
    ("grls.report",),
    ("grls.check", "grls.check_data"),
    ("grls.commands",),
    ("grls.cli",),
)
"""From the bottom to the top. A layer imports itself and what stands below it."""


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> list[tuple[str, list[str]]]:
    """(module, imported names) of every import in a file, those inside functions included."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append((node.module or "", [alias.name for alias in node.names]))
    return found


def own(file: Path) -> list[tuple[str, list[str]]]:
    found = imports(ast.parse(file.read_text(encoding="utf-8")))
    spread = []
    for module, names in found:
        if module == "grls":  # `from grls import commands` names modules
            spread += [(f"grls.{name}", []) for name in names]
        elif module.startswith("grls."):
            spread.append((module, names))
    return spread


def layer(module: str) -> tuple[int, str]:
    """Level and name of the layer a module belongs to."""
    for level, names in enumerate(ORDER):
        for name in names:
            if module == name or module.startswith(name + "."):
                return level, name
    raise AssertionError(f"{module} belongs to no layer; add it to ORDER")


@pytest.mark.parametrize("file", [f for f in FILES if module_name(f) != "grls"], ids=module_name)
def test_a_file_imports_only_what_stands_below_it(file: Path) -> None:
    level, name = layer(module_name(file))
    for module, _ in own(file):
        below, other = layer(module)
        assert other == name or below < level, f"{module_name(file)} imports {module}"


def test_the_package_itself_imports_nothing_of_ours() -> None:
    assert own(ROOT / "grls" / "__init__.py") == []


def test_models_take_only_array_types_from_the_index() -> None:
    for file in (ROOT / "grls" / "models").glob("*.py"):
        for module, names in own(file):
            if module.startswith("grls.index"):
                assert (module, set(names) <= {"Ints", "Array"}) == ("grls.index.rows", True), file


def test_the_lightning_module_knows_no_index_and_no_retrieval() -> None:
    data = ("grls.corpus", "grls.dataset")
    forbidden = ("grls.index", "grls.decode", "grls.retrieve", "grls.evaluation", *data)
    for module, _ in own(ROOT / "grls" / "train" / "module.py"):
        assert not module.startswith(forbidden), module


def test_training_retrieves_only_to_validate_to_mine_and_to_be_taught() -> None:
    for file in (ROOT / "grls" / "train").glob("*.py"):
        if not file.stem.endswith(("validation", "mining", "teacher", "prior", "proposals")):
            reached = [m for m, _ in own(file) if m.startswith(("grls.decode", "grls.retrieve"))]
            assert reached == [], file


def test_nothing_in_the_package_imports_the_preparations_or_benchmarks() -> None:
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert not [m for m, _ in imports(tree) if m.split(".")[0] in ("data_prep", "benchmarks", "tests")]


def test_the_walk_sees_every_kind_of_import() -> None:
    """The tests above rest on this."""
    tree = ast.parse("import grls.a\nfrom grls.b import x\ndef f():\n    from grls import c\n")
    assert imports(tree) == [("grls.a", []), ("grls.b", ["x"]), ("grls", ["c"])]
