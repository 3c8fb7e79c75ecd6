"""Recipes (files of ``configs/`` that ``--config`` finds by name), plugins, and names imported on first use.

A wheel holds the recipes inside the package (``setup.py`` puts them there); a checkout in its top folder.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, Option, OptionError

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
"""The folder in a wheel, and in a checkout."""
_OPTION = "--config"
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
_MOST_VALUES = 100_000
"""More values than any options have."""
_ENDING = re.compile(r"\.ya?ml$")


def with_recipes(arguments: Sequence[str]) -> list[str]:
    """The arguments with ``--config NAME`` replaced by ``--config FILE``."""
    replaced: list[str] = []
    for argument in arguments:
        option, sign, value = argument.partition("=")
        if option == _OPTION and sign:
            argument = f"{_OPTION}={config_file(value)}"
        elif replaced and replaced[-1] == _OPTION:
            argument = config_file(argument)
        replaced.append(argument)
    return replaced


def config_file(name: str) -> str:
    """The file for a value of ``--config``: a local file, or else the recipe of this name.

    A recipe is named ``memorise``, ``memorise.yaml``, ``configs/memorise.yaml`` or ``default/chains``. YAML
    text and absolute paths are returned unchanged.
    """
    path = Path(name)
    if not _NAME.fullmatch(name) or (path.exists() and not path.is_dir()):
        return name
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), _FOLDERS[0])
    recipes = {_short(file.relative_to(folder)): file for file in sorted(folder.rglob("*.yaml"))}
    recipe = _short(path)
    if recipe in recipes:
        return str(recipes[recipe])
    near = get_close_matches(recipe, recipes, 3) or [key for key in recipes if "/" not in key]
    raise OptionError(
        f"{Option('config', name)}: there is no such file here, and no recipe of that name. "
        f"Near names: {', '.join(near) or 'none, for this installation has no recipes'}. "
        "Name one of these, or a file by its path."
    )


def recipe_values(names: Sequence[str]) -> dict[str, Any]:
    """The options of recipes and YAML files as nested objects; later ones override earlier ones."""
    import yaml

    values: dict[str, Any] = {}
    for name in names:
        file = config_file(name)
        try:
            options = yaml.safe_load(Path(file).read_text(encoding="utf-8-sig"))
            _refuse_endless(options)
        except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"{file} cannot be read as options in YAML ({reason}): correct it, or name another file."
            ) from None
        if not isinstance(options, dict):
            raise ConfigError(f"{file} holds no options; expected a YAML mapping, such as `batch_size: 8`.")
        _lay_over(values, options)
    return values


def _refuse_endless(options: Any) -> None:
    """Raise ValueError if aliases of YAML make endless values, or too many."""
    stack, count = [options], 0
    while stack:
        value = stack.pop()
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        stack += inner
        count += 1 + len(inner)
        if count > _MOST_VALUES:
            raise ValueError(f"its aliases make more than {_MOST_VALUES:,} values")


def _lay_over(values: dict[str, Any], options: dict[str, Any]) -> None:
    for name, value in options.items():
        before: Any = values.get(name)
        same = isinstance(value, dict) and isinstance(before, dict)
        if same and before.get("class_path") == value.get("class_path", before.get("class_path")):
            _lay_over(before, value)
        else:  # also where the class is another: its options are its own
            values[name] = value


def _short(path: Path) -> str:
    """``configs/default/chains.yaml`` as ``default/chains``."""
    return _ENDING.sub("", path.as_posix()).removeprefix("configs/")


VARIABLE = "GRLS_PLUGINS"
GROUP = "grls.plugins"

logger = logging.getLogger(__name__)


def load_plugins() -> None:
    """Import the modules that add kinds, index backends and measures.

    ``GRLS_PLUGINS`` names modules, with commas between them; an installed package has an entry point of the
    group ``grls.plugins``. If such a package cannot be imported, a warning says so. Plugins are imported
    only when the package does not know a name.
    """
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        try:
            import_module(name)
        except ImportError as error:
            raise ConfigError(
                f"{VARIABLE}: the module {name!r} cannot be imported ({error}); install what it needs, or "
                "put the folder that holds it on PYTHONPATH."
            ) from error
    for point in entry_points(group=GROUP):
        try:
            import_module(point.module)
        except ImportError as error:
            logger.warning("the plugin %s cannot be imported (%s); it is left out.", point.value, error)


def definition(plugin: object) -> tuple[str, str]:
    """Module and name of a function or class; equal for a notebook's cell that is run twice."""
    return getattr(plugin, "__module__", ""), getattr(plugin, "__qualname__", repr(plugin))


def on_demand(folder: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a folder whose names are imported on first use.

    ``modules``: name -> the module that defines it. A name must differ from every module's name: once
    imported, the module would hide it.
    """

    def attribute(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {folder!r} has no attribute {name!r}")
        return getattr(import_module(f"{folder}.{modules[name]}"), name)

    return attribute
