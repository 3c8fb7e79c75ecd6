"""A searcher over changed passages: some are added, others removed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from grls.api.searching import Searching
from grls.api.temporary import HeldFolder
from grls.data.inputs.corpora import corpus_of
from grls.errors import ConfigError
from grls.retrieve.base import Retriever
from grls.retrieve.changes import Changes
from grls.retrieve.registry import load_retriever
from grls.retrieve.update import update_folder


def write_updated(
    searcher: Searching,
    place: HeldFolder,
    add: Any,
    remove: Collection[str | int] | None,
    merge: bool,
    batch_size: int,
) -> Retriever:
    """Write the folder of a searcher with changed passages, and open it.

    Args:
        searcher: The searcher; its folder stays as it is, unless ``place`` is that folder.
        place: The changed folder.
        add: Passages in any form of :func:`~grls.data.inputs.corpora.corpus_of`; None: none.
        remove: Ids of passages; None: none.
        merge: See :class:`~grls.retrieve.changes.Changes`.
        batch_size: Passages encoded together.

    Raises:
        ConfigError: There is nothing to do, or the kind takes no changes.
        DataError: A passage is unknown, or its id is taken.
    """
    gone = list(dict.fromkeys(map(str, () if remove is None else remove)))
    new = None if add is None else corpus_of(add, "add")
    if new is None and not gone and not merge:
        raise ConfigError("nothing to do: give passages to add, ids to remove, or merge=True.")
    update_folder(searcher.folder, place.path, Changes(new, gone, merge, searcher.how.device, batch_size))
    return load_retriever(place.path, searcher.how)
