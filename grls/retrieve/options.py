"""The options that a folder of any kind may hold, read, and put together with those that are given."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from grls.errors import DataError
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.spec import made


def stored_search(
    spec: dict[str, Any], file: Path, heeds: Collection[str] | None = None
) -> SearchOptions | None:
    """How to search, where the folder says so.

    Args:
        spec: What stands in its file.
        file: For errors.
        heeds: The options that its kind can use; None: all.

    Raises:
        DataError: It says what cannot be, or what its kind has no use for.
    """
    if "search" not in spec:
        return None
    found = made(SearchOptions, spec["search"], file, "search")
    useless = [name for name in spec["search"] if heeds is not None and name not in heeds]
    if useless:
        known = f"leave it out, or use {', '.join(heeds or ())}" if heeds else "leave search out"
        raise DataError(
            f"search.{useless[0]} means nothing to a retriever of kind {spec.get('kind')!r}: {known}.", file
        )
    return found


def merged(stored: SearchOptions | None, given: SearchOptions | None) -> SearchOptions | None:
    """Options that are given, those of them that are as usual replaced by what a folder says itself."""
    if stored is None or given is None:
        return stored if given is None else given
    usual = SearchOptions()
    names = [one.name for one in fields(SearchOptions)]
    told = {name: getattr(given, name) for name in names if getattr(given, name) != getattr(usual, name)}
    return replace(stored, **told)


def stored_hops(spec: dict[str, Any], file: Path) -> HopOptions | None:
    """How to go hop by hop, where the folder says so.

    Raises:
        DataError: It says what cannot be.
    """
    return None if "hops" not in spec else made(HopOptions, spec["hops"], file, "hops")
