"""The imports go one way."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import grls
from grls.retrieve.registry import KINDS

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "grls").rglob("*.py"))

ORDER = (
    ("grls.errors",),
    ("grls.io",),
    ("grls.cluster",),
    ("grls.data",),
    ("grls.index", "grls.runs"),
    ("grls.constraint", "grls.models"),
    ("grls.identifiers",),
    ("grls.decode",),
    ("grls.retrieve", "grls.evaluation"),
    ("grls.answer", "grls.tune"),
    ("grls.explain",),
    ("grls.train",),
    ("grls.report",),
    ("grls.fitting",),
    ("grls.api",),
    ("grls.adapters", "grls.serve"),
    ("grls.commands",),
    ("grls.cli",),
    ("grls.__main__",),
)
"""From the bottom to the top. A layer imports itself and what stands below it."""


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


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
    found = imports(parsed(file))
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


def test_no_files_import_each_other_in_a_circle() -> None:
    """Imports for types and within functions count, too. Names that a folder hands on lead to its files."""
    known = {module_name(file): file for file in FILES}
    arrows = {
        name: {
            target
            for module, names in own(file)
            for target in [module, *(f"{module}.{one}" for one in names)]
            if target in known and target != name and known[target].name != "__init__.py"
        }
        for name, file in known.items()
    }
    order = TopologicalSorter(arrows)
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_package_itself_imports_nothing_of_ours_but_types() -> None:
    """Its names are imported when they are used; type checkers see them at once."""
    tree = parsed(ROOT / "grls" / "__init__.py")
    for_types = [node for node in tree.body if isinstance(node, ast.If)]
    assert [ast.unparse(node.test) for node in for_types] == ["TYPE_CHECKING"]
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    seen = {module for node in at_once for module, _ in imports(node)}
    assert seen == {"importlib", "typing"}


def test_the_face_names_what_is_there() -> None:
    tree = parsed(ROOT / "grls" / "__init__.py")
    for_types = {name: m for n in tree.body if isinstance(n, ast.If) for m, (name,) in imports(n)}
    assert for_types == grls._MODULES
    for name in grls.__all__:
        assert getattr(grls, name).__name__ == name


def test_no_module_asks_for_the_kind_of_a_retriever() -> None:
    """It asks for a capability, so that a plugin has it too."""
    known = {kind for kind, target in KINDS.items() if target.startswith("grls.")}

    def names_a_kind(node: ast.expr) -> bool:
        """Whether it is the name of a kind, the kind of a class, or a collection of either."""
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(map(names_a_kind, node.elts))
        if isinstance(node, ast.Attribute):
            return node.attr == "kind" and isinstance(node.value, ast.Name) and node.value.id[0].isupper()
        return isinstance(node, ast.Constant) and node.value in known

    def is_a_kind(node: ast.expr) -> bool:
        named = isinstance(node, ast.Name) and node.id == "kind"
        return named or (isinstance(node, ast.Attribute) and node.attr == "kind")

    asking = [
        f"{module_name(file)}:{node.lineno}: {ast.unparse(node)}"
        for file in FILES
        if module_name(file) != "grls.retrieve.registry"
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Compare)
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False)
        if (is_a_kind(left) and names_a_kind(right)) or (is_a_kind(right) and names_a_kind(left))
    ]
    assert asking == []


def test_models_take_only_array_types_from_the_index() -> None:
    for file in (ROOT / "grls" / "models").rglob("*.py"):
        for module, names in own(file):
            if module.startswith("grls.index"):
                assert (module, set(names) <= {"Ints", "Array"}) == ("grls.index.rows", True), file


def test_the_lightning_module_knows_no_index_and_no_retrieval() -> None:
    data = ("grls.data.corpus", "grls.data.dataset")
    forbidden = ("grls.index", "grls.decode", "grls.retrieve", "grls.evaluation", *data)
    for module, _ in own(ROOT / "grls" / "train" / "core" / "module.py"):
        assert not module.startswith(forbidden), module


def test_what_learns_does_not_retrieve() -> None:
    """Retrieval validates, mines and teaches: around the modules, their losses and their batches."""
    for file in (ROOT / "grls" / "train").rglob("*.py"):
        if file.stem in ("module", "loss", "collate", "targets"):
            reached = [m for m, _ in own(file) if m.startswith(("grls.decode", "grls.retrieve"))]
            assert reached == [], file


def folders() -> list[Path]:
    return sorted(file.parent for file in FILES if file.name == "__init__.py")


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(ROOT)))
def test_a_folder_says_what_each_of_its_files_is_for(folder: Path) -> None:
    """The docstring of a folder names its modules and folders; ``grls`` has a page for it."""
    if folder.name == "grls":
        return
    told = ast.get_docstring(parsed(folder / "__init__.py")) or ""
    names = [f.stem for f in folder.glob("*.py") if f.stem != "__init__"]
    names += [f"{f.name}/" for f in folder.iterdir() if (f / "__init__.py").is_file()]
    unnamed = [name for name in names if f"``{name}``" not in told]
    assert unnamed == []


def defined(file: Path) -> list[str]:
    """The public classes and functions of a module."""
    body = parsed(file).body
    kinds = ast.ClassDef | ast.FunctionDef
    return [node.name for node in body if isinstance(node, kinds) and not node.name.startswith("_")]


def test_a_public_name_stands_for_one_thing() -> None:
    where: dict[str, list[str]] = {}
    for file in FILES:
        for name in defined(file):
            where.setdefault(name, []).append(module_name(file))
    assert {name: modules for name, modules in where.items() if len(modules) > 1} == {}


ROLE = re.compile(r":(?:mod|class|func|meth|data|attr|exc):`~?\.?([^`<]+)`")


def named_in(tree: ast.AST) -> set[str]:
    """What a module or class holds: functions, classes, variables, fields, and what it imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return found


def test_what_docstrings_refer_to_exists() -> None:
    """``:mod:``, ``:class:``, ``:func:`` and the like name something that is there, where they say."""
    trees = {module_name(file): parsed(file) for file in FILES}
    held = {module: named_in(tree) for module, tree in trees.items()}
    classes = {
        node.name: named_in(node)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    anywhere = set().union(*held.values())
    gone = []
    for file in FILES:
        for match in ROLE.finditer(file.read_text(encoding="utf-8")):
            name = re.sub(r"\s+", "", match[1]).removesuffix("()")
            first, *rest = name.split(".")
            if first == "grls":
                module = max((m for m in held if f"{name}.".startswith(f"{m}.")), key=len)
                rest = name.removeprefix(module).split(".")[1:]
                there = not rest or rest[0] in held[module]
                there &= len(rest) < 2 or rest[1] in classes.get(rest[0], anywhere)
            else:
                there = first in anywhere and (not rest or rest[0] in classes.get(first, anywhere))
            if not there:
                gone.append(f"{module_name(file)}: {name}")
    assert gone == []


def test_folders_and_files_that_texts_name_are_there() -> None:
    path = re.compile(r"`((?:grls|data_prep|benchmarks|tests|docs)/[\w/.-]*)`")
    texts = [*FILES, ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    named = {(file.name, one) for file in texts for one in path.findall(file.read_text(encoding="utf-8"))}
    assert sorted((file, one) for file, one in named if not (ROOT / one).exists()) == []
    assert len(named) > 10


def test_nothing_in_the_package_imports_the_preparations_or_benchmarks() -> None:
    for file in FILES:
        tree = parsed(file)
        assert not [m for m, _ in imports(tree) if m.split(".")[0] in ("data_prep", "benchmarks", "tests")]


def test_who_uses_a_retriever_asks_for_a_capability_and_not_for_its_kind() -> None:
    """Capabilities are the protocols of ``grls.retrieve.base``; kinds are known to the registry alone."""
    asked = re.compile(r"isinstance\(.*Retriever")
    for file in FILES:
        if module_name(file) != "grls.retrieve.registry":
            assert not asked.search(file.read_text(encoding="utf-8")), file


def test_the_walk_sees_every_kind_of_import() -> None:
    """The tests above rest on this."""
    tree = ast.parse("import grls.a\nfrom grls.b import x\ndef f():\n    from grls import c\n")
    assert imports(tree) == [("grls.a", []), ("grls.b", ["x"]), ("grls", ["c"])]


def duty(node: ast.ClassDef | ast.FunctionDef) -> str | None:
    """The file of a training folder that a class or function belongs to; None: any."""
    if isinstance(node, ast.FunctionDef):
        return "module" if node.name.endswith("_loss") else None
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    if node.name.endswith("Collator"):
        return "collate"
    if any(base.endswith("Module") for base in bases):
        return "module"
    return "data" if any(base.endswith("Data") for base in bases) else None


def test_training_folders_have_one_duty_under_one_name() -> None:
    wrong = []
    for file in (ROOT / "grls" / "train").glob("*/*.py"):
        for node in parsed(file).body:
            name = duty(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else None
            duties = ("module",) if file.stem == "loss" else (file.stem,)
            if name not in (None, *duties) and file.stem != "datamodule":
                wrong.append(f"{file.relative_to(ROOT)}: {node.name} belongs to {name}.py")
    assert wrong == []


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports test files by their base names, so the second of one name is an error of collection."""
    names = Counter(file.name for file in (ROOT / "tests").rglob("*.py") if file.name != "__init__.py")
    assert {name for name, count in names.items() if count > 1} <= {"conftest.py"}
