"""The seal of a folder: its manifest lists size and SHA-256 of every file, and has a checksum of itself.

An index within is listed by its manifest alone, which lists the rest. A retriever within is not listed: it
has a seal of its own, which tuning renews.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from grls.io.files import sha256, write_json
from grls.io.progress import value_of

SEAL = "seal"
"""The field with the checksum of all others: take it out when you change the file by hand."""
FILES = "files"
"""The field with the files: path -> ``bytes``, ``sha256``, and of arrays the checksum of a ``sample``."""

RETRIEVER = "grls.json"
INDEXES = ("index.json", "ranges.json", "substring.json", "keys.json", "identifiers.json")
"""The manifests of folders, which list their files."""
_FREE = ("README.md", "time.json")
"""Files without a checksum: the card may be edited on the hub, and times differ."""

CHECKED_BYTES = 64 * 2**20
"""The checksums of an index up to this size are compared at every load; it takes a fraction of a second."""
_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16

_verify: ContextVar[bool | None] = ContextVar("verify", default=None)


def verifying(verify: bool | None) -> AbstractContextManager[None]:
    """A context that sets ``verify`` for all folders that are opened without it."""
    return value_of(_verify, verify)


def chosen_verify(verify: bool | None, content: Mapping[str, Any] | None = None) -> bool | None:
    """``verify``, or that of :func:`verifying`, or true if the files of a manifest are small."""
    verify = _verify.get() if verify is None else verify
    if verify is None and content is not None:
        small = sum(entry["bytes"] for entry in content.get(FILES, {}).values()) <= CHECKED_BYTES
        return True if small else None
    return verify


def files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The entries of all files of a folder, for its manifest."""
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in (*_FREE, RETRIEVER, *INDEXES):
            continue
        if not path.is_dir():
            entries[path.name] = _entry(path)
        elif not (path / RETRIEVER).is_file():
            manifests = [path / name for name in INDEXES if (path / name).is_file()]
            within = {file.name: _entry(file) for file in manifests} or files_of(path)
            entries |= {f"{path.name}/{name}": entry for name, entry in within.items()}
    return entries


def _entry(file: Path) -> dict[str, Any]:
    sample = {"sample": _sample(file)} if file.suffix == ".npy" else {}
    return {"bytes": file.stat().st_size, "sha256": sha256(file), **sample}


def _sample(file: Path) -> str:
    """SHA-256 of evenly spaced blocks of a file."""
    step = (file.stat().st_size - _SAMPLE_BYTES) / (_SAMPLES - 1)
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        for number in range(_SAMPLES):
            stream.seek(max(0, int(number * step)))
            digest.update(stream.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in content.items() if name != SEAL}
    return {**rest, SEAL: hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def seal(manifest: Path, content: Mapping[str, Any]) -> None:
    """Seal a folder: write its manifest, which lists all files that the folder holds now."""
    write_json(manifest, sealed({**content, FILES: files_of(manifest.parent)}))


def seal_broken(manifest: Path, content: Mapping[str, Any]) -> str:
    """The fault, if a manifest is not as it was written; one without a seal passes."""
    if content.get(SEAL) in (None, sealed(content)[SEAL]):
        return ""
    return (
        f"{manifest} has changed since it was written, so it may be damaged (if you changed it, take its "
        f"field {SEAL!r} out)"
    )


def changed(manifest: Path, content: Mapping[str, Any], verify: bool | None = True) -> str:
    """The first fault of a folder that is not as it was sealed, with its file; empty: there is none.

    ``verify`` True: every byte is read; False: sizes are compared; None: as :func:`verifying` says, else all
    bytes, or of a folder above ``CHECKED_BYTES`` sixteen blocks of each array.
    """
    files = content.get(FILES, {})
    if not isinstance(files, dict) or not all(map(_is_entry, files.values())):
        return f"{manifest}: the key {FILES!r} is malformed"
    verify = chosen_verify(verify, content)
    for name, entry in files.items():
        file = manifest.parent / name
        if not os.path.isfile(file):  # noqa: PTH113 (Path.is_file fails for a name too long)
            return f"{file}: the file is missing"
        if (size := file.stat().st_size) != entry["bytes"]:
            return f"{file}: it has changed ({size} bytes, expected {entry['bytes']}; truncated?)"
        if verify is False:
            continue
        sampled = verify is None and "sample" in entry
        same = _sample(file) == entry["sample"] if sampled else sha256(file) == entry["sha256"]
        if not same:
            return f"{file}: it has changed since it was written (the checksum differs)"
    return seal_broken(manifest, content)


def _is_entry(entry: Any) -> bool:
    known = isinstance(entry, dict) and isinstance(entry.get("bytes"), int)
    return known and isinstance(entry.get("sha256"), str)
