"""Passages that must not be found: those of the texts that are read (arXiv 2302.00083 leaves them out, too).

A file names them, a title or a passage id a line: ids as they stand, titles whatever white space is around
them. A line that matches nothing is told of: it may be a title
that was spelled otherwise.
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
"""Lines without a match that are named."""


def without(corpus: Corpus, file: Path) -> Numbered:
    """All passages but those whose title or id stands in a file.

    Lines that are no title and no id are counted in a warning, with the first few.

    Raises:
        DataError: There is no such file, it is no text, or none of its lines matches.
    """
    named = dict.fromkeys(line for _, line in named_lines(file, "a title or a passage id a line"))
    titled: dict[str, list[str]] = {}
    for line in named:
        titled.setdefault(line.strip(), []).append(line)
    kept, met = [], set()
    for number, passage in enumerate(corpus):
        found = {*titled.get(passage.title.strip(), ()), *(named.keys() & {passage.id})}
        met |= found
        if not found:
            kept.append(number)
    if not met:
        raise DataError(f"no passage of {corpus.source} has a title or id that stands in it.", file)
    missing = [name for name in named if name not in met]
    if missing:
        some = ", ".join(map(repr, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
        log.warning(
            "%s: %d of %d lines are no title and no id of a passage of %s, so they exclude nothing: %s",
            file, len(missing), len(named), corpus.source, some,
        )  # fmt: skip
    return Numbered(np.array(kept, dtype=np.int64))
