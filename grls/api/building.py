"""Building the folder of a retriever from a model and a corpus, and opening it."""

from __future__ import annotations

import logging
from typing import Any

from grls.api.searcher import Searcher
from grls.api.temporary import HeldFolder
from grls.data.inputs.corpora import corpus_of
from grls.data.inputs.values import existing_path
from grls.io.files import refuse_foreign, refuse_unwritable
from grls.io.logs import quiet
from grls.retrieve.build import Building, build
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import MANIFEST

log = logging.getLogger(__name__)


def build_searcher(model: str, corpus: Any, place: HeldFolder, how: Building) -> Searcher:
    """Build a retriever folder from a model, and open it.

    Args:
        model: A folder or hub name.
        corpus: See :func:`~grls.data.inputs.corpora.corpus_of`.
        place: The folder of the retriever.
        how: The options; their output is ``place``.

    Raises:
        ConfigError: There is no such model, it is of another kind, or an option has no effect on it.
        DataError: The corpus is malformed.
        WriteError: The folder cannot be written.
    """
    quiet()
    refuse_foreign(place.path, MANIFEST)
    refuse_unwritable(place.path, folder=True)
    path, copy = existing_path(corpus, "corpus"), HeldFolder()
    if path is None:
        path = copy.path / "corpus.jsonl"
        corpus_of(corpus).write(path)
    log.info("%s", build(model, str(path), how))
    opening = Opening(how.device)
    return Searcher(load_retriever(place.path, opening), place, opening)
