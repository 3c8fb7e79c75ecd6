"""Data sets of plugins: functions that prepare one from raw files, which ``grls prepare NAME`` finds by name.

Those of grls itself are modules of ``data_prep``. How a command finds a plugin: :mod:`grls.io.recipes`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from grls.errors import ConfigError
from grls.io.arguments import checked
from grls.io.recipes import definition


class Preparer(NamedTuple):
    """A function that prepares a data set.

    Its parameters are the options of the command, its docstring is the help, and ``what`` a line of the help
    of ``grls prepare``.
    """

    prepare: Callable[..., None]
    what: str


PREPARERS: dict[str, Preparer] = {}
"""Name -> a data set of :func:`register_preparer`."""


@checked
def register_preparer(name: str, prepare: Callable[..., None], what: str) -> None:
    """Add a data set; ``grls prepare NAME`` then prepares it.

    Args:
        name: Its name, one word that no data set of grls has.
        prepare: Prepares it. All parameters have types and are described in the docstring.
        what: A line that says what it is, such as "riddle -> two sentences".
    """
    if name.split() != [name] or name.startswith("-"):
        raise ConfigError(f"expected the name of a data set as one word, got {name!r}.")
    known = PREPARERS.get(name)
    if known is not None and definition(known.prepare) != definition(prepare):
        raise ConfigError(f"the data set {name!r} is there already; choose another name.")
    PREPARERS[name] = Preparer(prepare, what)
