"""A folder that only names another retriever, and opens as it.

A folder of many parts (members, data, runs) can so be a retriever itself. A link is followed before anything
of it is opened (:func:`grls.retrieve.spec.followed`), so no code meets it as a retriever of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grls.retrieve.base import Retriever
from grls.retrieve.registry import Opening, open_member
from grls.retrieve.spec import LINK, MANIFEST, linked


class Link:
    """The kind ``link``."""

    kind = LINK

    @staticmethod
    def open(folder: Path, spec: dict[str, Any], how: Opening) -> Retriever:
        """Open the retriever that a link names, which may be embedded in another specification.

        Raises:
            DataError: There is none.
        """
        return open_member(linked(spec, folder / MANIFEST), folder, "retriever", how)
