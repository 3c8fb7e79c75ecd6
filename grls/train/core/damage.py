"""Whether checkpoints are as they were written.

torch and safetensors take what they read as it is: a flipped bit gives another model, silently. A file of
torch is a zip archive with a checksum of each part. A checkpoint that is a folder gets the hashes of its
files. It knows nothing of what a checkpoint holds.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

from grls.errors import ConfigError, DataError
from grls.io.files import read_json, sha256, write_json

HASHES = "hashes.json"
"""File -> SHA-256, in a checkpoint that is a folder; written last."""

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, MemoryError, NotImplementedError, OSError,
    OverflowError, RuntimeError, ValueError,
)  # fmt: skip
"""What a damaged archive makes :mod:`zipfile` raise."""


def damage(path: Path) -> str | None:
    """What is wrong with a file that ``torch.save`` has written; None: nothing."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
    except _UNREADABLE as error:
        return str(error) or type(error).__name__
    return None if broken is None else f"the checksum of its part {broken} is another"


def refuse_damaged(path: Path) -> None:
    """Refuse a file of torch that is not as it was written, and name the newest whole one beside it.

    Raises:
        ConfigError: It is damaged.
    """
    what = damage(path)
    if what is None:
        return
    others = (file for file in path.parent.glob("*.ckpt") if file != path)
    whole = (f for f in sorted(others, key=lambda file: -file.stat().st_mtime) if damage(f) is None)
    other = next(whole, None)
    remedy = (
        "there is no whole one beside it: begin anew" if other is None else f"take {other}, which is whole"
    )
    raise ConfigError(f"{path} cannot be read as a checkpoint ({what}); it is damaged, or none: {remedy}.")


def write_hashes(folder: Path) -> None:
    """Note what the files of a folder are."""
    names = sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    write_json(folder / HASHES, {str(name): sha256(folder / name) for name in names if str(name) != HASHES})


def folder_damage(folder: Path) -> str | None:
    """Which file of a checkpoint is not as it was written, and why; None: all are.

    A folder without hashes was written before there were any: of it the files of torch are looked at alone.
    """
    if not (folder / HASHES).is_file():
        files = sorted([*folder.glob("*.pt"), *folder.glob("*.pth")])
        found = ((file.name, damage(file)) for file in files)
        return next((f"{name}: {what}" for name, what in found if what is not None), None)
    try:
        known = read_json(folder / HASHES)
        for name, digest in known.items():
            if sha256(folder / name) != digest:
                return f"{name} has changed"
    except (AttributeError, DataError, OSError, TypeError, ValueError) as error:
        return str(error)
    return None
