"""Passages to exclude from retrieval: those of the texts that are read, as in arXiv 2302.00083.

A file names the passages, a title or a passage id a line. White space around titles is ignored, ids must
match exactly. A warning lists lines that match nothing: they may be misspelled titles.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Numbered
from grls.errors import DataError
from grls.io.files import named_lines

log = logging.getLogger(__name__)

_SHOWN = 5
"""Most lines without a match that the warning lists."""


def without(corpus: Corpus, file: Path) -> Numbered:
    """All passages except those whose title or id stands in a file.

    A warning counts lines that are no title and no id, and lists the first few.

    Raises:
        DataError: The file is missing or no text, or none of its lines matches.
    """
    named = dict.fromkeys(line for _, line in named_lines(file, "a title or a passage id a line"))
    titled: dict[str, list[str]] = {}
    for line in named:
        titled.setdefault(line.strip(), []).append(line)
    kept, matched = [], set()
    for number, passage in enumerate(corpus):
        names = {*titled.get(passage.title.strip(), ()), *(named.keys() & {passage.id})}
        matched |= names
        if not names:
            kept.append(number)
    if not matched:
        raise DataError(f"no passage of {corpus.source} has a title or id that stands in this file.", file)
    missing = [name for name in named if name not in matched]
    if missing:
        listed = ", ".join(map(repr, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
        log.warning(
            "%s: %d of %d lines are no title and no id of a passage of %s, so they exclude nothing: %s",
            file, len(missing), len(named), corpus.source, listed,
        )  # fmt: skip
    return Numbered(np.array(kept, dtype=np.int64))
