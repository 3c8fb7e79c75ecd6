"""The folder of a retriever whose model encodes texts.

It holds ``model/``, one file with the encoded passages, ``corpus.jsonl`` and ``grls.json``, which ties the
three together by checksums and fingerprints. The form of the encoded passages differs by kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grls.errors import DataError, MismatchError, Option
from grls.io.files import sha256
from grls.models.load.settings import settings_in
from grls.retrieve.spec import MANIFEST, OPTIONS, read_spec, write_manifest

FORMAT = 1

REBUILD = "make it again with `grls index`."
"""The remedy for a folder that cannot be used."""

_MOST = 1e15
"""The largest absolute number of an encoded passage: products of larger ones may be infinite in float32."""

_FIELDS = (
    "format", "kind", "model", "corpus", "embeddings", "dimension", "max_tokens", "stages", "settings",
    "metadata",
)  # fmt: skip
"""The fields of ``grls.json`` that every kind has."""


def read_encoded_manifest(folder: Path, kind: str, called: str, fields: Sequence[str] = ()) -> dict[str, Any]:
    """The manifest of a folder of one kind.

    Args:
        folder: The folder.
        kind: The kind that it must be of.
        called: The kind in error messages: "a dense retriever".
        fields: Further fields of this kind.

    Raises:
        DataError: There is no manifest, or it is of another kind or format.
    """
    file = folder / MANIFEST
    manifest = read_spec(folder)
    if manifest["kind"] != kind:
        raise DataError(
            f"this is a retriever of the kind {manifest['kind']!r}, and {called} is wanted here: give the "
            f"folder of one, or make one with `grls index {Option('kind', kind)}`.",
            file,
        )
    if manifest.get("format") != FORMAT:
        raise DataError(f"expected {called} of format {FORMAT}; {REBUILD}", file)
    types = {"model": str, "corpus": str, "embeddings": dict, "max_tokens": int, "settings": dict}
    wrong = [key for key, type_ in types.items() if not isinstance(manifest.get(key), type_)]
    if wrong or not {"bytes", "sha256"} <= set(manifest["embeddings"]):
        raise DataError(f"the key {(wrong or ['embeddings'])[0]!r} is missing or malformed; {REBUILD}", file)
    known = (*_FIELDS, *fields, *OPTIONS)
    if unknown := sorted(set(manifest) - set(known)):
        raise DataError(f"unknown field {unknown[0]!r} of kind {kind!r}; known are {', '.join(known)}.", file)
    return manifest


def write_encoded_manifest(folder: Path, file: str, fields: dict[str, Any]) -> None:
    """Write the ``grls.json`` of a folder whose other files are written.

    Args:
        folder: The folder.
        file: The name of the file with the encoded passages.
        fields: All fields but the format, the checksum of that file and the settings of the model.
    """
    encoded = folder / file
    sums = {"bytes": encoded.stat().st_size, "sha256": sha256(encoded)}
    settings = settings_in(folder / "model")
    write_manifest(folder, {"format": FORMAT, **fields, "embeddings": sums, "settings": settings})


def check_embeddings(file: Path, manifest: dict[str, Any], verify: bool) -> None:
    """Check that the file with the encoded passages is as it was written.

    Args:
        file: The file.
        manifest: The ``grls.json`` beside it.
        verify: Compare the checksum, not the size alone.

    Raises:
        DataError: The file is missing or truncated.
        MismatchError: The file has another checksum.
    """
    expected = manifest["embeddings"]
    if not file.is_file() or file.stat().st_size != expected["bytes"]:
        raise DataError(f"the embeddings are missing or truncated; {REBUILD}", file)
    if verify and sha256(file) != expected["sha256"]:
        raise MismatchError(f"{file}: these are not the embeddings of this retriever; {REBUILD}")


def refuse_other_part(part: str, fingerprint: str, manifest: dict[str, Any], folder: Path) -> None:
    """Refuse a model or corpus that the embeddings were not made with.

    Args:
        part: ``model`` or ``corpus``, as ``grls.json`` names it.
        fingerprint: Fingerprint of the part in the folder.
        manifest: The ``grls.json``.
        folder: The folder, for the error.

    Raises:
        MismatchError: The part has another fingerprint.
    """
    if fingerprint != manifest[part]:
        raise MismatchError(
            f"{folder}: the embeddings were made with another {part} than this one; {REBUILD}"
        )


def usable(numbers: Any) -> Any:
    """Which numbers of an array of floats can be searched with: finite ones, up to 1e15."""
    return np.abs(numbers) <= np.float64(_MOST)  # no number of half precision is above it, but infinite ones


def all_usable(numbers: Any) -> bool:
    """Whether all numbers of an array are :func:`usable`; it is faster, and makes no copy of the array."""
    return not numbers.size or (float(numbers.max()) <= _MOST and float(numbers.min()) >= -_MOST)


def refuse_other_dimension(dimension: int, manifest: dict[str, Any], file: Path) -> None:
    """Refuse a manifest whose dimension is not that of the model.

    Args:
        dimension: That of the model in the folder.
        manifest: The ``grls.json``.
        file: The manifest's file, for the error.

    Raises:
        DataError: It names another one.
    """
    claimed = manifest.get("dimension", dimension)
    if claimed != dimension:
        raise DataError(
            f"dimension is {claimed!r}, and the model here encodes in {dimension}; {REBUILD}", file
        )


def sampled_numbers(count: int, most: int = 8) -> list[int]:
    """At most ``most`` numbers below ``count``, evenly spaced, the first and the last among them."""
    return sorted({round(place * (count - 1) / max(most - 1, 1)) for place in range(min(most, count))})


def refuse_other_rows(stored: Iterable[Any], again: Iterable[Any], file: Path) -> None:
    """Refuse encoded passages that the model does not encode so, beyond what rounding can do.

    Args:
        stored: Arrays of the file.
        again: The same passages, encoded anew.
        file: The file.

    Raises:
        MismatchError: One differs by more than 5 % of its length.
    """
    for one, other in zip(stored, again, strict=True):
        same_form = one.shape == other.shape
        if not same_form or np.linalg.norm(one - other) > 0.05 * np.linalg.norm(other) + 1e-6:
            raise MismatchError(f"{file}: the model encodes a passage of it differently; {REBUILD}")
