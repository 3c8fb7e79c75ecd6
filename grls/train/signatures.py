"""The stages that LightningCLI trains, and the options of classes, read from source: ``--help`` is quick.

A class names its options in its constructor (a dataclass: in its fields) and explains them in its
docstring. This module reads both as text, and those of the base class where the constructor takes
``**kwargs``. It finds bases and types through ``from … import …``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

REQUIRED = "required"


class TrainingStage(NamedTuple):
    """The classes of a stage, by their paths.

    ``measured``: option groups of callbacks that measure on dev -> path of the callback. ``options``: default
    options of the stage, which the command line overrides.
    """

    model: str
    data: str
    measured: Mapping[str, str] = MappingProxyType({})
    options: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        return [f"--model={self.model}", f"--data={self.data}", *self.options]


_RECALL = {"recall": "grls.train.generator.callbacks.ConstrainedRecall"}

STAGES = {
    "memorise": TrainingStage(
        "grls.train.generator.module.Memorise", "grls.train.generator.data.MemoriseData", _RECALL
    ),
    "retrieve": TrainingStage(
        "grls.train.generator.module.Retrieve", "grls.train.generator.data.RetrieveData", _RECALL
    ),
    "chains": TrainingStage(
        "grls.train.generator.module.RetrieveChains",
        "grls.train.generator.data.RetrieveData",
        _RECALL,
    ),
    "riches": TrainingStage(
        "grls.train.riches.module.Interlace",
        "grls.train.riches.data.InterlacedData",
        {"quotes": "grls.train.riches.callbacks.QuoteRecall"},
    ),
    "doc2query": TrainingStage(
        "grls.train.doc2query.module.WriteQueries",
        "grls.train.doc2query.data.QueryData",
        options=("--checkpoint.monitor=dev_loss", "--checkpoint.mode=min"),
    ),
}


class ClassOption(NamedTuple):
    """An option of a class.

    Attributes:
        name: The whole name, with the options around it: ``mix.memorise.reads``.
        kind: Its type, as written in the source.
        usual: Its default, as written there; :data:`REQUIRED`; empty where its fields have defaults.
        help: Its help text.
    """

    name: str
    kind: str
    usual: str
    help: str


class _Class(NamedTuple):
    module: str
    node: ast.ClassDef


def class_options(path: str, prefix: str = "") -> list[ClassOption]:
    """The options of a class ``module.Class``, with the fields of options that are dataclasses."""
    module, _, name = path.rpartition(".")
    owner = _class(module, name)
    return [] if owner is None else list(_options(owner, prefix))


def class_summary(path: str) -> str:
    """The first paragraph of a class's docstring, in one line."""
    module, _, name = path.rpartition(".")
    owner = _class(module, name)
    doc = "" if owner is None else ast.get_docstring(owner.node) or ""
    return " ".join(doc.split("\n\n")[0].split())


def _options(owner: _Class, prefix: str) -> Iterator[ClassOption]:
    for module, argument, default, text in _parameters(owner):
        inner: list[_Class] = []  # the dataclasses of grls that the type names
        for node in [] if argument.annotation is None else ast.walk(argument.annotation):
            if isinstance(node, ast.Name) and node.id[0].isupper():
                named = _class(module, node.id)
                if named is not None and _is_dataclass(named.node) and named.module.startswith("grls."):
                    inner.append(named)
        kind = "" if argument.annotation is None else _written(module, argument.annotation)
        usual = REQUIRED if default is None else _written(module, default)
        if inner and usual not in (REQUIRED, "null"):
            usual = ""  # each field has its default
        yield ClassOption(f"{prefix}{argument.arg}", kind, usual, text)
        for nested in inner:
            yield from _options(nested, f"{prefix}{argument.arg}.")


def _written(module: str, node: ast.expr) -> str:
    """A type or a value as text, with the names of constants and types replaced by their values."""
    text = ast.unparse(_Spelled(module).visit(ast.parse(ast.unparse(node), mode="eval").body))
    return "null" if text == "None" else text.replace(" | None", " | null")


class _Spelled(ast.NodeTransformer):
    def __init__(self, module: str):
        self._module = module

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "rare":  # a default that is rarely changed
            inner: ast.AST = self.visit(node.args[0])
            return inner
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = _constant(self._module, node.id)
        return node if value is None else value


def _parameters(owner: _Class) -> Iterator[tuple[str, ast.arg, ast.expr | None, str]]:
    """(defining module, parameter, default, help) of a class and, by ``**kwargs``, of its bases."""
    from docstring_parser import parse

    maker = next(
        (n for n in owner.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
    )
    defined: list[tuple[ast.arg, ast.expr | None]] = []
    if maker is not None:
        arguments = maker.args.args[1:]
        lacking: list[ast.expr | None] = [None] * (len(arguments) - len(maker.args.defaults))
        defined = list(zip(arguments, [*lacking, *maker.args.defaults], strict=True))
        defined += zip(maker.args.kwonlyargs, maker.args.kw_defaults, strict=True)
    elif _is_dataclass(owner.node):
        defined = [
            (ast.arg(n.target.id, n.annotation), n.value)
            for n in owner.node.body
            if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        ]
    texts = [ast.get_docstring(node) or "" for node in (owner.node, maker) if node is not None]
    helps = {param.arg_name: param.description or "" for text in texts for param in parse(text).params}
    inherited: list[tuple[str, ast.arg, ast.expr | None, str]] = []
    if maker is None or maker.args.kwarg is not None:
        for base in owner.node.bases:
            parent = None
            if isinstance(base, ast.Name):
                parent = _class(owner.module, base.id)
            elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):  # L.Trainer
                origin = _imports(owner.module).get(base.value.id)
                parent = None if origin is None else _class(origin[0], base.attr)
            if parent is not None:
                inherited = list(_parameters(parent))
                break
    names = {argument.arg for argument, _ in defined}
    if maker is None:  # fields of a base come first
        yield from (parameter for parameter in inherited if parameter[1].arg not in names)
    for argument, default in defined:
        yield owner.module, argument, default, helps.get(argument.arg, "")
    if maker is not None:
        yield from (parameter for parameter in inherited if parameter[1].arg not in names)


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)


@cache
def _class(module: str, name: str) -> _Class | None:
    for node in _body(module):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _Class(module, node)
    origin = _imports(module).get(name)
    return None if origin is None or not origin[1] else _class(*origin)


@cache
def _constant(module: str, name: str) -> ast.expr | None:
    """The value of a name: a literal, or the choices of ``Literal``; None: something else."""
    for node in _body(module):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = getattr(node, "value", None)
            choice = isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal"
            plain = isinstance(value, ast.Constant | ast.UnaryOp)
            return value if choice or plain else None
    origin = _imports(module).get(name)
    return None if origin is None or not origin[1] else _constant(*origin)


@cache
def _imports(module: str) -> dict[str, tuple[str, str]]:
    """The imports at the top of a module: name -> (module, name there; empty: the module itself)."""
    origins: dict[str, tuple[str, str]] = {}
    for node in _body(module):
        if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            origins |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            origins |= {alias.asname: (alias.name, "") for alias in node.names if alias.asname}
    return origins


@cache
def _body(module: str) -> Sequence[ast.stmt]:
    """The statements of a module; only the topmost package is looked up, so nothing is imported."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder, *rest)
        for file in (path.with_suffix(".py") if rest else path, path / "__init__.py"):
            if file.is_file():
                return ast.parse(file.read_text(encoding="utf-8")).body
    return []
