"""Uploading a searcher to the hub, with its model card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grls.api.searching import Searching
from grls.errors import ConfigError
from grls.retrieve.card import CardOptions, card_of
from grls.retrieve.hub_names import is_hub_name


def publish(searcher: Searching, name: str, private: bool, options: Mapping[str, Any]) -> str:
    """Upload a searcher's retriever; see :meth:`grls.api.searcher.Searcher.push_to_hub`."""
    said = CardOptions(**options)
    if not is_hub_name(name):
        raise ConfigError(f"expected the name of a repository as user/name, got {name!r}.")
    from grls.retrieve.hub import upload

    card = card_of(searcher.retriever, searcher.folder, name, said)
    return upload(searcher.folder, name, private, card)
