"""Uploading a searcher to the hub, with its model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grls.api.options import options_of
from grls.api.searching import Searching
from grls.errors import ConfigError
from grls.retrieve.card import CARD, Card, CardOptions, figures_beside
from grls.retrieve.hub_names import is_hub_name


def publish(searcher: Searching, name: str, private: bool, options: Mapping[str, Any]) -> str:
    """Upload a searcher's retriever; see :meth:`grls.api.searcher.Searcher.push_to_hub`."""
    said = options_of(CardOptions, options, "push_to_hub")
    if not is_hub_name(name):
        raise ConfigError(f"expected the name of a repository as user/name, got {name!r}.")
    from grls.retrieve.hub import upload

    return upload(searcher.folder, name, private, _card(searcher, name, said))


def _card(searcher: Searching, name: str, options: CardOptions) -> str:
    written = searcher.folder / CARD
    if options == CardOptions() and written.is_file():
        return written.read_text(encoding="utf-8")
    figures = figures_beside(searcher.folder)
    return Card(name, searcher.describe(), len(searcher.corpus), options, figures).text
