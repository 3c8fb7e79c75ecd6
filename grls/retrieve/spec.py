"""A retriever as data: the content of ``grls.json`` of its folder.

A composite retriever is a folder with this file alone. It names its members, each the path of a folder
(relative to its own), or a whole specification that is embedded::

    {"format": 1, "kind": "hybrid", "generator": "../spans",
     "priors": [{"retriever": "../biencoder", "weight": 2.0}, {"retriever": {"kind": "bm25"}}]}

``seal`` is the checksum of all other fields (:func:`refuse_broken_seal`).

``search`` and ``hops`` are options that any folder may hold; tuning writes there what it chooses, so that the
folder retrieves so without further options. The module knows the form, no kind.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from grls.data.corpus import Corpus
from grls.data.inputs.arguments import UnfitError, fitted
from grls.errors import ConfigError, DataError, MismatchError, Option, in_python, worded
from grls.io.files import atomic_folder, is_temporary, read_json, sha256, write_json

MANIFEST = "grls.json"
FORMAT = 1
"""The format of composite retrievers; those that hold data of their own have others."""

LINK = "link"
"""The kind of a folder that only names another one."""

SEAL = "seal"
"""The field with the checksum of all others: take it out when you change the file by hand."""

OPTIONS = ("search", "hops")
"""Sections of options that any folder may have, a link excepted."""

Member = str | dict[str, Any]
"""The path of a retriever folder, or an embedded specification."""

Made = TypeVar("Made")


def read_spec(folder: str | Path) -> dict[str, Any]:
    """The content of the ``grls.json`` of a retriever folder of any kind, without its seal.

    Raises:
        DataError: There is none, or it is no object.
    """
    return {name: value for name, value in _read(folder).items() if name != SEAL}


def _read(folder: str | Path) -> dict[str, Any]:
    file = Path(folder) / MANIFEST
    if not is_retriever(Path(folder)):
        remedy = "make one with `grls index`"
        if os.path.isfile(Path(folder) / "corpus.jsonl"):  # noqa: PTH113 (as in is_retriever)
            named = Option("corpus", Path(folder))
            remedy = (
                f"it holds a corpus: make one of it with `grls index bm25 {named}`, `grls index MODEL "
                f"{named}` or `grls fit`"
            )
        raise DataError(f"no retriever here ({MANIFEST} is missing); {remedy}.", folder)
    spec = read_json(file)
    if not isinstance(spec, dict) or "kind" not in spec:
        raise DataError("expected an object with the kind of the retriever in 'kind'; make it again.", file)
    return spec


def followed(folder: str | Path) -> Path:
    """The folder that a link leads to; a folder of another kind, or none, as it is.

    Raises:
        DataError: A link leads to itself, to no retriever, or has options.
    """
    place, seen = Path(folder), set[Path]()
    while is_retriever(place) and (spec := read_spec(place)).get("kind") == LINK:
        file = place / MANIFEST
        seen.add(place.resolve())
        target = linked(spec, file)
        refuse_broken_seal(place)
        place = member_path(target, place)
        if place.resolve() in seen:
            raise DataError(f"retriever names {target}, which leads back here: name another folder.", file)
        if not is_retriever(place):
            raise DataError(
                f"retriever names {target}, but there is no retriever at {place}: move it back, or write its "
                "new path.",
                file,
            )
    return place


DATA = "data"
"""The folder of the data set in a run of ``grls fit``."""


def data_beside(folder: Path) -> Path | None:
    """The data set that a run of ``grls fit`` has left in a folder, or beside it; None: there is none."""
    places = [folder, followed(folder), folder.resolve().parent, folder.resolve().parent.parent]
    found = [place / DATA for place in places if (place / DATA / "queries.jsonl").is_file()]
    return found[0] if found else None


def linked(spec: Mapping[str, Any], file: Path) -> str:
    """The path of the retriever that a link names, relative to the folder of the link.

    Raises:
        DataError: It names none, or holds more than that.
    """
    check_fields(spec, ("retriever",), (), file)
    stored = [name for name in OPTIONS if name in spec]
    if stored:
        raise DataError(f"a link has no {stored[0]}: write it into the folder that `retriever` names.", file)
    if not isinstance(spec["retriever"], str):
        raise DataError("retriever: expected the path of a retriever folder.", file)
    return spec["retriever"]


def write_link(folder: str | Path, retriever: str | Path) -> None:
    """Make a folder open as another retriever, atomically; its other content stays.

    Args:
        folder: The folder; its ``grls.json`` is replaced.
        retriever: The folder that it opens as; it may lie within.
    """
    content = {"format": FORMAT, "kind": LINK, "retriever": relative(retriever, folder)}
    write_manifest(folder, content)


def write_manifest(folder: str | Path, content: Mapping[str, Any]) -> None:
    """Write the ``grls.json`` of a folder, sealed, atomically."""
    write_json(Path(folder) / MANIFEST, sealed(content))


def sealed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A specification with the checksum of all its fields."""
    rest = {name: value for name, value in spec.items() if name != SEAL}
    return {**rest, SEAL: hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}


def refuse_broken_seal(folder: str | Path) -> None:
    """Refuse a ``grls.json`` whose seal is not that of its fields; one without a seal passes.

    Raises:
        MismatchError: The file is damaged, or was changed by hand.
    """
    spec = _read(folder)
    if spec.get(SEAL) not in (None, sealed(spec)[SEAL]):
        raise MismatchError(
            f"{Path(folder) / MANIFEST} has changed since it was written, so it may be damaged: if you "
            f"changed it, take its field {SEAL!r} out; otherwise make the retriever again."
        )


def is_retriever(folder: Path) -> bool:
    """Whether a folder is one of a retriever; what can be no name of a folder is none."""
    return os.path.isfile(folder / MANIFEST)  # noqa: PTH113 (Path.is_file fails for a name too long)


def write_spec(folder: str | Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write the folder of a composite retriever, atomically; an earlier one there is replaced.

    Raises:
        ConfigError: The folder exists and holds something else, a member among it.
        WriteError: The disk is full or the place cannot be written.
    """
    refuse_own_members(folder, content)
    with atomic_folder(folder, MANIFEST) as new:
        write_manifest(new, {"format": FORMAT, "kind": kind, **content})


def refuse_own_members(folder: str | Path, content: Mapping[str, Any]) -> None:
    """Refuse to replace a folder that is a member of what is to be written, or holds one.

    Raises:
        ConfigError: It would be lost.
    """
    for text in _texts(content):
        below = text != "" and not Path(text).is_absolute() and ".." not in Path(text).parts
        if below and is_retriever(Path(folder) / text):
            raise ConfigError(
                f"{folder} is written as a whole, and its member {Path(folder) / text} would be lost: choose "
                "another folder, or move the member out of it."
            )


def _texts(content: Any) -> Iterator[str]:
    """All texts among JSON values."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for value in content.values() if isinstance(content, Mapping) else content:
            yield from _texts(value)


def update_spec(folder: str | Path, changes: Mapping[str, Any]) -> None:
    """Change some fields of a folder's ``grls.json``, atomically; None takes a field out.

    The checksums of the file itself are made anew.

    Raises:
        DataError: There is no retriever.
        MismatchError: The file is not as its checksum says, which a new one would hide.
    """
    file = Path(folder) / MANIFEST
    refuse_broken_seal(folder)
    spec = _read(folder)
    if spec.get("sha256") not in (None, own_sum(spec)):
        raise MismatchError(f"{file} has changed since it was written; make the retriever again.")
    gone = {name for name, value in changes.items() if value is None}
    spec = {name: value for name, value in {**spec, **changes}.items() if name not in gone}
    if "sha256" in spec:
        spec["sha256"] = own_sum(spec)
    write_json(file, sealed(spec) if SEAL in spec else spec)


def own_sum(spec: Mapping[str, Any]) -> str:
    """SHA-256 of all fields but itself and the options, so that no limit or stage changes unseen."""
    rest = {name: value for name, value in spec.items() if name not in ("sha256", SEAL, *OPTIONS)}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def check_fields(
    spec: Mapping[str, Any], needed: tuple[str, ...], known: tuple[str, ...], file: Path
) -> None:
    """Refuse a composite's specification of a newer format, with a field too many or too few.

    Raises:
        DataError: With the field's name and the remedy.
    """
    if spec.get("format", FORMAT) != FORMAT:
        raise DataError(
            f"format {spec['format']!r} of a retriever of kind {spec.get('kind')!r}; this version reads "
            f"{FORMAT}: install a newer grls, or make the folder again.",
            file,
        )
    lacking = [name for name in needed if name not in spec]
    if lacking:
        raise DataError(f"the field {lacking[0]!r} is missing; make the folder again, or write it in.", file)
    unknown = [name for name in spec if name not in {"format", "kind", *OPTIONS, *needed, *known}]
    if unknown:
        raise DataError(
            f"unknown field {unknown[0]!r} of kind {spec.get('kind')!r}; known are "
            f"{', '.join((*needed, *known, *OPTIONS))}.",
            file,
        )


def made(cls: type[Made], record: Any, file: Path, field: str) -> Made:
    """A dataclass of options from JSON.

    Args:
        cls: The dataclass; nested ones are made, too.
        record: Its fields, those that are left out as usual.
        file: For errors.
        field: Where in the file it stands.

    Raises:
        DataError: A field is unknown or cannot be.
    """
    if not isinstance(record, dict):
        raise DataError(f"{field}: expected an object, got {record!r}.", file)
    hints = get_type_hints(cls)
    known = {one.name for one in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name not in known:
            raise DataError(f"{field}.{name} is no option; known are {', '.join(sorted(known))}.", file)
        kind = hints[name]
        if is_dataclass(kind) and isinstance(kind, type):
            values[name] = made(kind, value, file, f"{field}.{name}")
            continue
        try:
            values[name] = fitted(value, kind)
        except UnfitError as error:
            raise DataError(error.said_of(f"{field}.{name}"), file) from None
    try:
        return cls(**values)
    except ConfigError as error:
        raise DataError(f"{field}: {worded(error.text, in_python)}", file) from None
    except TypeError as error:
        raise DataError(f"{field}: {error}; write what is missing.", file) from None


def recorded(options: Any) -> dict[str, Any]:
    """A dataclass of options as JSON, without what is as usual."""
    values, record = asdict(options), dict[str, Any]()
    for field in fields(options):
        value, usual = values[field.name], field.default
        if usual is MISSING and field.default_factory is not MISSING:
            usual = field.default_factory()
            if is_dataclass(usual) and not isinstance(usual, type):
                usual = asdict(usual)
        if value != usual:
            record[field.name] = list(value) if isinstance(value, tuple) else value
    return record


def relative(path: str | Path, folder: str | Path) -> str:
    """A member's path as it stands in a folder's file."""
    return Path(os.path.relpath(Path(path).resolve(), Path(folder).resolve())).as_posix()


def member_path(name: str, folder: Path) -> Path:
    """Where the path of a member leads that stands in a folder's file; the folder need not be there yet."""
    return folder / name if folder.is_dir() else Path(os.path.normpath(folder / name))


def named_from(folder: str | Path, member: str | Path | Mapping[str, Any]) -> Member:
    """A member as it stands in a folder's file: the path of its folder, or its specification as it is."""
    return dict(member) if isinstance(member, Mapping) else relative(member, folder)


def member_slots(spec: Any, path: list[str]) -> Iterator[tuple[Any, Any]]:
    """(object or list, key) of every value that a field such as ``priors.*.retriever`` names."""
    first, *rest = path
    if first == "*":
        keys: Any = range(len(spec)) if isinstance(spec, list) else ()
    else:
        keys = (first,) if isinstance(spec, dict) and first in spec else ()
    for key in keys:
        if rest:
            yield from member_slots(spec[key], rest)
        else:
            yield spec, key


# The checksums of all files of a folder, in ``checksums.json``: what is downloaded is what was uploaded.


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


# The fingerprints of the passages of a folder, in its ``grls.json``: no text or metadata changes unseen.
#
# Also what to do where a retriever has other passages than a data set.


CORPUS_FIELDS = ("passages_sha256", "metadata")
"""The fields: the fingerprint of ids, titles and texts, and that of the metadata, which filters depend on."""


def passages_record(corpus: Corpus) -> dict[str, str]:
    """The fields of a corpus."""
    return dict(zip(CORPUS_FIELDS, (corpus.fingerprint, corpus.metadata_fingerprint), strict=True))


def remedy_of_other_corpus(retrieved: Corpus, wanted: Corpus) -> str:
    """What to do where a retriever and a data set have different passages: either may be the newer one.

    Args:
        retrieved: The corpus of the retriever.
        wanted: The corpus of the data set.
    """
    remedy = f"if {wanted.source} is right, make the retriever again with `grls index` over it"
    if not Path(retrieved.source).is_file() or is_temporary(retrieved.source):
        return remedy
    return (
        f"{remedy}; if the retriever is (after `grls index update`), copy its corpus {retrieved.source} to "
        f"{wanted.source}, and take removed passages out of qrels and evidence"
    )


def refuse_other_passages(corpus: Corpus, spec: Mapping[str, Any]) -> None:
    """Refuse another corpus than that of a specification; without the fields, any passes.

    Raises:
        MismatchError: Ids, titles, texts or metadata are others.
    """
    for name, value in passages_record(corpus).items():
        if name in spec and spec[name] != value:
            what = "the metadata have" if name == "metadata" else "an id, title or text has"
            raise MismatchError(
                f"{corpus.source}: {what} changed since the retriever was made; make it again with `grls "
                "index`."
            )
