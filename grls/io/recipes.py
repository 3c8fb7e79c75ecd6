"""Recipes: the files of ``configs/``, which ``--config`` finds by name wherever grls is installed.

A wheel holds them within the package (``setup.py`` puts them there); in a checkout they stand at its top. The
module knows where they are and what they are called, and nothing of what they say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from grls.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parents[1]
_PLACES = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
"""In a wheel, in a checkout."""
_OPTION = "--config"
_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*")
_ENDING = re.compile(r"\.ya?ml$")


def with_recipes(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, each ``--config NAME`` with the path of the file that it means.

    Args:
        arguments: What follows the name of the command.

    Raises:
        ConfigError: A name is that of no local file and of no recipe.
    """
    found: list[str] = []
    for argument in arguments:
        option, sign, value = argument.partition("=")
        if option == _OPTION and sign:
            argument = f"{_OPTION}={config_file(value)}"
        elif found and found[-1] == _OPTION:
            argument = config_file(argument)
        found.append(argument)
    return found


def config_file(name: str) -> str:
    """The file that a value of ``--config`` means: a local one as it is, else the recipe of that name.

    Args:
        name: Path of a file, or name of a recipe (``memorise``, ``memorise.yaml``, ``configs/memorise.yaml``,
            ``default/chains``). Options as YAML text and absolute paths are left as they are.

    Raises:
        ConfigError: There is neither such a file nor such a recipe.
    """
    path = Path(name)
    if not _NAME.fullmatch(name) or (path.exists() and not path.is_dir()):
        return name
    recipes = _recipes()
    wanted = _short(path)
    if wanted in recipes:
        return str(recipes[wanted])
    near = get_close_matches(wanted, recipes, 3) or [key for key in recipes if "/" not in key]
    raise ConfigError(
        f"{_OPTION} {name}: there is no such file here, and no recipe of that name. "
        f"Near names: {', '.join(near) or 'none, for this installation has no recipes'}. "
        "Name one of these, or a file by its path."
    )


def _recipes() -> dict[str, Path]:
    folder = next((place for place in _PLACES if place.is_dir()), _PLACES[0])
    return {_short(file.relative_to(folder)): file for file in sorted(folder.rglob("*.yaml"))}


def _short(path: Path) -> str:
    """``configs/default/chains.yaml`` as ``default/chains``."""
    return _ENDING.sub("", path.as_posix()).removeprefix("configs/")
