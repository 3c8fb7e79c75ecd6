"""The checksums of all files of a folder, in ``checksums.json``: what is downloaded is what was uploaded."""

from __future__ import annotations

from pathlib import Path

from grls.errors import DataError, MismatchError
from grls.io.files import read_json, sha256, write_json

CHECKSUMS = "checksums.json"

_FREE = (CHECKSUMS, "README.md")
"""Files that have no checksum: the card may be edited on the hub."""


def write_checksums(folder: str | Path) -> None:
    """Write the checksums of all files of a folder; hidden files have none."""
    place = Path(folder)
    files = sorted(path.relative_to(place) for path in place.rglob("*") if path.is_file())
    named = [file for file in files if not any(part.startswith(".") for part in file.parts)]
    sums = {file.as_posix(): sha256(place / file) for file in named if file.as_posix() not in _FREE}
    write_json(place / CHECKSUMS, {"files": sums})


def compare_checksums(folder: str | Path) -> None:
    """Compare all files of a folder with its checksums; a folder without checksums is left to its kind.

    Raises:
        DataError: The file of checksums cannot be read.
        MismatchError: A file is missing, or another one than it was.
    """
    place = Path(folder)
    file = place / CHECKSUMS
    if not file.is_file():
        return
    content = read_json(file)
    sums = content.get("files") if isinstance(content, dict) else None
    if not isinstance(sums, dict) or not all(isinstance(one, str) for one in sums.values()):
        raise DataError('expected {"files": {…}}; download or save the retriever again.', file)
    for name, expected in sums.items():
        path = place / name
        if not path.is_file() or sha256(path) != expected:
            what = "has changed since it was written" if path.is_file() else "is missing"
            raise MismatchError(f"{path} {what}; download or save the retriever again.")
