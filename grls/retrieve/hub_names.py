"""Which names are names on the hub, and the entries of a model card; the module is light to import."""

from __future__ import annotations

import re
from pathlib import Path

from grls.errors import ConfigError
from grls.io.arguments import options

_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(name: str | Path) -> bool:
    """Whether a name has the form ``user/name`` of a repository."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and not name.startswith((".", "~"))


def is_on_the_hub(name: str | Path) -> bool:
    """Whether a name means a repository: no folder here has it, nor the name of its user."""
    return is_hub_name(name) and not Path(name).exists() and not Path(str(name).partition("/")[0]).is_dir()


_CODE = re.compile(r"[a-z0-9.+-]+")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@options()
class CardOptions:
    """Entries of the model card that the folder does not know.

    Args:
        license: The licence, by its name on the hub: ``apache-2.0``, ``mit``, ``cc-by-4.0``, ``other``, …;
            null: the card names none.
        base_models: Hub names of the models that were trained further.
        languages: Languages of the corpus by their codes: ``en``, ``de``, …
        datasets: Hub names of the data sets of the training.
    """

    license: str | None = None
    base_models: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        licenses = () if self.license is None else (self.license,)
        for option, names, pattern in (
            ("license", licenses, _CODE),
            ("base_models", self.base_models, _HUB_NAME),
            ("languages", self.languages, _CODE),
            ("datasets", self.datasets, _HUB_NAME),
        ):
            if wrong := [name for name in names if not pattern.fullmatch(name)]:
                raise ConfigError(f"{option}: {wrong[0]!r} can be no name on the hub; write it as there.")
