"""Hits as documents of other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grls.data.types import Hit


def metadata_of_hit(hit: Hit) -> dict[str, Any]:
    """The metadata of a hit with its title as ``title``, if it has one, and in a chain its hop as ``hop``."""
    return titled(hit.metadata, hit.title) | ({} if hit.hop is None else {"hop": hit.hop})


def titled(metadata: Mapping[str, Any], title: str) -> dict[str, Any]:
    """The metadata of a passage with its title as ``title``, if it has one."""
    return {**metadata, "title": title} if title else dict(metadata)
