"""The options that a folder of any kind may hold, read, and merged with those of a call."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from grls.errors import DataError
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.spec import MANIFEST, followed, from_record, is_retriever, read_spec

_SECTIONS: dict[str, type[Any]] = {"search": SearchOptions, "hops": HopOptions}


def stored_search(
    spec: dict[str, Any], file: Path, heeds: Collection[str] | None = None
) -> SearchOptions | None:
    """The options of search in the ``grls.json`` of a folder; None: it has no section ``search``.

    ``heeds`` has the names of the options that the kind can use; None: all.
    """
    if "search" not in spec:
        return None
    options = from_record(SearchOptions, spec["search"], file, "search")
    if useless := [name for name in spec["search"] if heeds is not None and name not in heeds]:
        known = f"leave it out, or use {', '.join(heeds or ())}" if heeds else "leave search out"
        raise DataError(
            f"search.{useless[0]} has no effect on a retriever of kind {spec.get('kind')!r}: {known}.", file
        )
    return options


def merged(stored: SearchOptions | None, call: SearchOptions | None) -> SearchOptions | None:
    """The options of a call; those that have their defaults are taken from the folder."""
    if stored is None or call is None:
        return stored if call is None else call
    values = {field.name: getattr(call, field.name) for field in fields(SearchOptions)}
    changed = {name: value for name, value in values.items() if value != getattr(USUAL_SEARCH, name)}
    return replace(stored, **changed)


def stored_hops(spec: dict[str, Any], file: Path) -> HopOptions | None:
    """The options of hops that a folder stores; None: it has no section ``hops``."""
    return None if "hops" not in spec else from_record(HopOptions, spec["hops"], file, "hops")


def stored_options(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The options in a folder's sections ``search`` and ``hops``; those of search also from its retriever or
    generator.
    """
    options: dict[str, dict[str, Any]] = {}
    path, seen = followed(folder), set[Path]()
    sections = tuple(_SECTIONS)
    while is_retriever(path) and path.resolve() not in seen:
        seen.add(path.resolve())
        spec = read_spec(path)
        for section in sections:
            if section in spec and section not in options:
                stored = from_record(_SECTIONS[section], spec[section], path / MANIFEST, section)
                options[section] = {name: getattr(stored, name) for name in spec[section]}
        sections = ("search",)  # the hops of a member do not apply to the folder around it
        member = spec.get("retriever", spec.get("generator"))
        if not isinstance(member, str):
            break
        path = followed(path / member)
    return options
