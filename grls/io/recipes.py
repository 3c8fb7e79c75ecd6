"""Recipes: the files of ``configs/``, which ``--config`` finds by name wherever grls is installed.

A wheel holds them inside the package (``setup.py`` puts them there); a checkout holds them in its top folder.
The module knows their places and names, but not their content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from grls.errors import ConfigError, Option, OptionError

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
"""The folder in a wheel, and in a checkout."""
_OPTION = "--config"
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
_MOST_VALUES = 100_000
"""More values than any options have."""
_ENDING = re.compile(r"\.ya?ml$")


def with_recipes(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with the path of a file in place of each ``--config NAME``.

    Args:
        arguments: The arguments after the name of the command.

    Raises:
        OptionError: There is neither a local file nor a recipe of a name.
    """
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

    Args:
        name: Path of a file, or name of a recipe (``memorise``, ``memorise.yaml``, ``configs/memorise.yaml``,
            ``default/chains``). Options as YAML text and absolute paths are returned unchanged.

    Raises:
        OptionError: There is neither such a file nor such a recipe.
    """
    path = Path(name)
    if not _NAME.fullmatch(name) or (path.exists() and not path.is_dir()):
        return name
    recipes = _recipes()
    wanted = _short(path)
    if wanted in recipes:
        return str(recipes[wanted])
    near = get_close_matches(wanted, recipes, 3) or [key for key in recipes if "/" not in key]
    raise OptionError(
        f"{Option('config', name)}: there is no such file here, and no recipe of that name. "
        f"Near names: {', '.join(near) or 'none, for this installation has no recipes'}. "
        "Name one of these, or a file by its path."
    )


def recipe_values(names: Sequence[str]) -> dict[str, Any]:
    """The options of recipes and YAML files as nested objects; later ones override earlier ones.

    Args:
        names: Names of recipes, or paths of files.

    Raises:
        ConfigError: There is neither such a file nor such a recipe, or the file holds no options in YAML.
    """
    values: dict[str, Any] = {}
    for name in names:
        _lay_over(values, read_options(config_file(name)))
    return values


def read_options(file: str | Path) -> dict[str, Any]:
    """The options of a YAML file as nested objects.

    Raises:
        ConfigError: The file cannot be read, or holds no options in YAML; or its aliases make too many.
    """
    import yaml

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
    return options


def _refuse_endless(options: Any) -> None:
    """Raise ValueError where aliases of YAML make more values than any options have, or endless ones."""
    waiting, count = [options], 0
    while waiting:
        value = waiting.pop()
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        waiting += inner
        count += 1 + len(inner)
        if count > _MOST_VALUES:
            raise ValueError(f"its aliases make more than {_MOST_VALUES:,} values")


def _lay_over(values: dict[str, Any], options: dict[str, Any]) -> None:
    for name, value in options.items():
        if isinstance(value, dict) and isinstance(values.get(name), dict):
            _lay_over(values[name], value)
        else:
            values[name] = value


def _recipes() -> dict[str, Path]:
    folder = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    return {_short(file.relative_to(folder)): file for file in sorted(folder.rglob("*.yaml"))}


def _short(path: Path) -> str:
    """``configs/default/chains.yaml`` as ``default/chains``."""
    return _ENDING.sub("", path.as_posix()).removeprefix("configs/")
