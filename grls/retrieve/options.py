"""The options that a folder of any kind may hold, read, and merged with those of a call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from grls.errors import DataError
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.spec import MANIFEST, followed, is_retriever, made, read_spec

_SECTIONS: dict[str, type[Any]] = {"search": SearchOptions, "hops": HopOptions}


def stored_search(
    spec: dict[str, Any], file: Path, heeds: Collection[str] | None = None
) -> SearchOptions | None:
    """The options of search that a folder stores; None: it stores none.

    Args:
        spec: The content of its ``grls.json``.
        file: The path of that file, for errors.
        heeds: Names of the options of search that its kind can use; None: all.

    Raises:
        DataError: An option is invalid, or of no use to the kind.
    """
    if "search" not in spec:
        return None
    options = made(SearchOptions, spec["search"], file, "search")
    useless = [name for name in spec["search"] if heeds is not None and name not in heeds]
    if useless:
        known = f"leave it out, or use {', '.join(heeds or ())}" if heeds else "leave search out"
        raise DataError(
            f"search.{useless[0]} has no effect on a retriever of kind {spec.get('kind')!r}: {known}.", file
        )
    return options


def merged(stored: SearchOptions | None, given: SearchOptions | None) -> SearchOptions | None:
    """The options of a call; where one has its default, the folder's own option stands in."""
    if stored is None or given is None:
        return stored if given is None else given
    usual = SearchOptions()
    names = [one.name for one in fields(SearchOptions)]
    changed = {name: getattr(given, name) for name in names if getattr(given, name) != getattr(usual, name)}
    return replace(stored, **changed)


def stored_hops(spec: dict[str, Any], file: Path) -> HopOptions | None:
    """The options of hops that a folder stores; None: it stores none.

    Raises:
        DataError: An option is invalid.
    """
    return None if "hops" not in spec else made(HopOptions, spec["hops"], file, "hops")


def stored_options(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The options that a folder holds; options of search also those of its retriever or generator.

    Returns:
        ``search`` and ``hops``, those that there are: name -> value, as the dataclass of options holds it.

    Raises:
        DataError: The folder cannot be read, or an option in it cannot be used.
    """
    options: dict[str, dict[str, Any]] = {}
    path, seen = followed(folder), set[Path]()
    sections = tuple(_SECTIONS)
    while is_retriever(path) and path.resolve() not in seen:
        seen.add(path.resolve())
        spec = read_spec(path)
        for section in sections:
            if section in spec and section not in options:
                held = made(_SECTIONS[section], spec[section], path / MANIFEST, section)
                options[section] = {name: getattr(held, name) for name in spec[section]}
        sections = ("search",)  # hops of a member are the member's, as when a folder is opened
        member = spec.get("retriever", spec.get("generator"))
        if not isinstance(member, str):
            break
        path = followed(path / member)
    return options
