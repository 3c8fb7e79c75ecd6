"""Filters as options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FilterOptions:
    """Which passages queries may find; every filter that is given must let a passage through.

    Args:
        allow: A file of the passages that may be found: a passage id a line, or `query-id <tab> passage-id`.
        where: Find only passages whose metadata meet this: `year>=2000`, or `lang=de|fr and year<1990`.
        queries: Heed each query's own metadata, too: `allow` (a list of passage ids) and `where`.
    """

    allow: str | None = None
    where: str | None = None
    queries: bool = False

    @property
    def record(self) -> dict[str, str | bool]:
        """What is given, for manifests."""
        given = {"allow": self.allow, "where": self.where, "query_filters": self.queries or None}
        return {name: value for name, value in given.items() if value is not None}


NO_FILTER = FilterOptions()
