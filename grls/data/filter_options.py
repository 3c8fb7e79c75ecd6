"""Filters as options of a command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FilterOptions:
    """Which passages queries may find; a passage must pass all filters, which hold in every hop.

    Args:
        allow: A file of the allowed passages: one passage id a line, or `query-id <tab> passage-id`.
        where: A filter over the metadata of passages: `year>=2000`, or `lang=de|fr and year<1990`. It holds
            in every hop, so it must hold the passages on the way as well.
        queries: Also apply the filters in the metadata of each query: `allow` (a list of passage ids) and
            `where`.
    """

    allow: str | None = None
    where: str | None = None
    queries: bool = False

    @property
    def record(self) -> dict[str, str | bool]:
        """The options that are set, for manifests."""
        options = {"allow": self.allow, "where": self.where, "query_filters": self.queries or None}
        return {name: value for name, value in options.items() if value is not None}


NO_FILTER = FilterOptions()
