"""The options that a folder of any kind may hold, read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.spec import made


def stored_search(spec: dict[str, Any], file: Path) -> SearchOptions | None:
    """How to search, where the folder says so.

    Raises:
        DataError: It says what cannot be.
    """
    return None if "search" not in spec else made(SearchOptions, spec["search"], file, "search")


def stored_hops(spec: dict[str, Any], file: Path) -> HopOptions | None:
    """How to go hop by hop, where the folder says so.

    Raises:
        DataError: It says what cannot be.
    """
    return None if "hops" not in spec else made(HopOptions, spec["hops"], file, "hops")
