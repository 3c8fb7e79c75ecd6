"""Which names are names on the hub; the module is light to import."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(name: str | Path) -> bool:
    """Whether a name can be that of a repository: ``user/name``."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.startswith((".", "~"))


def is_on_the_hub(name: str | Path) -> bool:
    """Whether a name means a repository: there is no such folder here, nor one of the user's name."""
    there = Path(name).exists() or Path(str(name).partition("/")[0]).is_dir()
    return is_hub_name(name) and not there
