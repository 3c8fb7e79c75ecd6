"""Detects damaged checkpoints.

torch and safetensors do not check what they read: a flipped bit silently gives another model. A file of torch
is a zip archive with a checksum of each part. A checkpoint that is a folder gets a file with the hashes of
its files. This module does not know the content of a checkpoint.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

from grls.errors import DataError
from grls.io.files import read_json, sha256, write_json

HASHES = "hashes.json"
"""The file of hashes (file -> SHA-256) in a checkpoint that is a folder; written last."""

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, MemoryError, NotImplementedError, OSError,
    OverflowError, RuntimeError, ValueError,
)  # fmt: skip
"""Errors that :mod:`zipfile` raises for a damaged archive."""


def damage(path: Path) -> str | None:
    """The damage of a file written by ``torch.save``, in words; None: the file is whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except _UNREADABLE as error:
        return str(error) or type(error).__name__
    return None if broken is None else f"the checksum of its part {broken} does not match"


def write_hashes(folder: Path) -> None:
    """Write the hashes of a folder's files."""
    names = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    write_json(folder / HASHES, {str(name): sha256(folder / name) for name in names if str(name) != HASHES})


def folder_damage(folder: Path) -> str | None:
    """The damaged file of a checkpoint folder, with the reason; None: all files are whole.

    In a folder without hashes, of a run that was killed before they were written, only the files of torch are
    checked.
    """
    if not (folder / HASHES).is_file():
        files = sorted([*folder.glob("*.pt"), *folder.glob("*.pth")])
        damages = ((file.name, damage(file)) for file in files)
        return next((f"{name}: {what}" for name, what in damages if what is not None), None)
    try:
        known = read_json(folder / HASHES)
        for name, digest in known.items():
            if sha256(folder / name) != digest:
                return f"{name} has changed"
    except (AttributeError, DataError, OSError, TypeError, ValueError) as error:
        return str(error)
    return None
