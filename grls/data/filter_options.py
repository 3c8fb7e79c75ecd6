"""Filters as options of a command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FilterOptions:
    """Which passages queries may find; a passage must pass all filters, which hold in every hop.

    Args:
        allow: A file of the allowed passages.
        where: A filter over the metadata of passages.
        queries: Also apply the filters in the metadata of each query.
    """

    allow: str | None = None
    where: str | None = None
    queries: bool = False

    @property
    def record(self) -> dict[str, str | bool]:
        """The options that are set."""
        options = {"allow": self.allow, "where": self.where, "query_filters": self.queries or None}
        return {name: value for name, value in options.items() if value is not None}
