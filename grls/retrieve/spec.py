"""A retriever as data: the content of ``grls.json`` of its folder.

A composite retriever is a folder with this file alone. It names its members, each the path of a folder
(relative to its own), or a whole specification that is embedded::

    {"format": 1, "kind": "hybrid", "generator": "../spans",
     "priors": [{"retriever": "../biencoder", "weight": 2.0}, {"retriever": {"kind": "bm25"}}]}

``seal`` and ``files`` are its checksums (:mod:`grls.io.seal`).

``search`` and ``hops`` are options that any folder may hold. Tuning writes them, so the folder retrieves with
them from then on. The module knows the form, no kind.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from grls.errors import ConfigError, DataError, MismatchError, Option, in_python, worded
from grls.io.files import is_temporary, near_name, read_json, write_json
from grls.io.seal import FILES, SEAL, changed, chosen_verify, seal_broken, sealed

if TYPE_CHECKING:
    from grls.data.corpus import Corpus
    from grls.retrieve.base import Retriever

MANIFEST = "grls.json"
FORMAT = 1
"""The format of composite retrievers; kinds that hold data have formats of their own."""

LINK = "link"
"""The kind of a folder that only names another one."""

OPTIONS = ("search", "hops")
"""Sections of options that any folder may have, a link excepted."""

TIME = "time.json"
"""The file of a folder that `grls index` made from a model or a corpus: the ``seconds`` that it took."""

_ADDRESS = re.compile(r"(?:https?:/+[^/]+|hub:)(?:/*([^/]+/[^/]+))?")
"""Other forms of the name of a repository; a path has lost a slash of them."""

Options = TypeVar("Options")


class Component:
    """A retriever at hand, as a member of a composite in memory.

    Args:
        retriever: The retriever.
        given: The folder that holds it, which a composite on disk names; None: it is in memory alone. A
            temporary folder stays as long as this object.
        spec: The specification of a composite that was made in memory, whose members are parts; None: the
            retriever has no members, or was opened from its folder.
    """

    def __init__(
        self,
        retriever: Retriever,
        given: str | os.PathLike[str] | None = None,
        spec: dict[str, Any] | None = None,
    ):
        self.retriever, self.given, self.spec = retriever, given, spec
        self.folder = None if given is None else Path(given).absolute()

    def __deepcopy__(self, memo: dict[int, Any]) -> Component:
        return self  # of a specification that is copied

    @property
    def name(self) -> str:
        """Its name in manifests, and among the members of a copy."""
        return self.retriever.kind if self.folder is None else folder_name(self.folder.resolve())

    @property
    def single_step(self) -> Retriever:
        """The retriever without hops that its folder stores; those of a composite of kind ``hops`` stay."""
        spec = self.spec or ({} if self.folder is None else read_spec(followed(self.folder)))
        from grls.retrieve.base import single_steps  # late: a server reads specifications before NumPy

        return self.retriever if spec.get("kind", "hops") == "hops" else single_steps(self.retriever)


Member = str | dict[str, Any] | Component
"""The path of a retriever folder, an embedded specification, or, in memory, a retriever at hand."""


def folder_name(folder: Path) -> str:
    """The name of a folder; where that is temporary or the hub's, its kind, or ``data`` if it has none."""
    if not folder.parent.name.startswith(".") and folder.parent.name != "snapshots":
        return folder.name
    return str(read_spec(folder)["kind"]) if is_retriever(folder) else "data"


def read_spec(folder: str | Path, checksums: bool = False) -> dict[str, Any]:
    """The content of the ``grls.json`` of a retriever folder of any kind, with or without its checksums."""
    file = Path(folder) / MANIFEST
    if not is_retriever(Path(folder)):
        if os.path.isfile(folder):  # noqa: PTH113 (as in is_retriever)
            raise DataError("a retriever is a folder; give the one that holds this file.", folder)
        if address := _ADDRESS.match(str(folder)):
            hub = address[1] or "as user/name"
            raise DataError(
                f"an address is no retriever; give a folder, or its name on the hub, {hub}.", folder
            )
        remedy = "make one with `grls index`"
        if os.path.isfile(Path(folder) / "corpus.jsonl"):  # noqa: PTH113 (as in is_retriever)
            remedy = (
                f"it holds a corpus: make one of it with `grls index bm25 {Option('corpus', Path(folder))} "
                f"{Option('output', 'NEW')}` or `grls fit {quote(str(folder))} {Option('output', 'NEW')}`"
            )
        raise DataError(f"no retriever here ({MANIFEST} is missing); {remedy}{near_name(folder)}", folder)
    spec = read_json(file)
    if not isinstance(spec, dict) or "kind" not in spec:
        raise DataError("expected an object with the kind of the retriever in 'kind'; make it again.", file)
    return spec if checksums else {name: spec[name] for name in spec if name not in (SEAL, FILES)}


def followed(folder: str | Path) -> Path:
    """The folder that a link leads to; any other path unchanged."""
    path, seen = Path(folder), set[Path]()
    while is_retriever(path) and (spec := read_spec(path)).get("kind") == LINK:
        file = path / MANIFEST
        seen.add(path.resolve())
        target = linked(spec, file)
        refuse_broken_seal(path)
        path = member_path(target, path)
        if path.resolve() in seen:
            raise DataError(f"retriever names {target}, which leads back here: name another folder.", file)
        if not is_retriever(path):
            raise DataError(
                f"retriever names {target}, but there is no retriever at {path}: move it back, or write its "
                "new path.",
                file,
            )
    return path


DATA = "data"
"""The folder of the data set in the output of ``grls fit`` and of a training."""


def data_beside(folder: Path) -> Path | None:
    """The data set that a run of ``grls fit`` has left in a folder, or in its parent."""
    places = [folder, followed(folder), folder.resolve().parent, folder.resolve().parent.parent]
    found = [place / DATA for place in places if (place / DATA / "queries.jsonl").is_file()]
    return found[0] if found else None


def linked(spec: Mapping[str, Any], file: Path) -> str:
    """The path that a link names, relative to the folder of the link."""
    check_fields(spec, ("retriever",), (), file)
    if stored := [name for name in OPTIONS if name in spec]:
        raise DataError(f"a link has no {stored[0]}: write it into the folder that `retriever` names.", file)
    if not isinstance(spec["retriever"], str):
        raise DataError("retriever: expected the path of a retriever folder.", file)
    return spec["retriever"]


def write_link(folder: str | Path, retriever: str | Path) -> None:
    """Make a folder open as another retriever, which may be inside it; only its ``grls.json`` is replaced."""
    write_manifest(folder, {"format": FORMAT, "kind": LINK, "retriever": relative(retriever, folder)})


def write_manifest(folder: str | Path, content: Mapping[str, Any]) -> None:
    """Write the ``grls.json`` of a folder, atomically, with a checksum of itself alone."""
    write_json(Path(folder) / MANIFEST, sealed(content))


def refuse_broken_seal(folder: str | Path) -> None:
    """Refuse a ``grls.json`` that is not as it was written; one without a seal passes."""
    if fault := seal_broken(Path(folder) / MANIFEST, read_spec(folder, checksums=True)):
        raise MismatchError(f"{fault}; make it again with `grls index`.")


def refuse_changed(folder: str | Path, verify: bool | None = True) -> None:
    """Refuse a folder that is not as it was sealed; ``verify`` false compares the sizes of files alone."""
    spec, read = read_spec(folder, checksums=True), chosen_verify(verify) is not False
    if fault := changed(Path(folder) / MANIFEST, spec, read):
        raise MismatchError(f"{fault}; make it again with `grls index`.")


def is_retriever(folder: Path) -> bool:
    """Whether a folder holds a retriever; a name that no folder can have is false."""
    return os.path.isfile(folder / MANIFEST)  # noqa: PTH113 (Path.is_file fails for a name too long)


def refuse_own_members(folder: str | Path, content: Mapping[str, Any]) -> None:
    """Refuse to replace a folder that is, or holds, a member of the retriever to be written."""
    for text in _texts(content):
        below = text != "" and not Path(text).is_absolute() and ".." not in Path(text).parts
        if below and is_retriever(Path(folder) / text):
            raise ConfigError(
                f"{folder} is written as a whole, and its member {Path(folder) / text} would be lost: choose "
                "another folder, or move the member out of it."
            )


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for value in content.values() if isinstance(content, Mapping) else content:
            yield from _texts(value)


def update_spec(folder: str | Path, changes: Mapping[str, Any]) -> None:
    """Change some fields of a folder's ``grls.json``, atomically; None takes a field out."""
    refuse_broken_seal(folder)
    spec = read_spec(folder, checksums=True)
    removed = {name for name, value in changes.items() if value is None}
    spec = {name: value for name, value in {**spec, **changes}.items() if name not in removed}
    write_json(Path(folder) / MANIFEST, sealed(spec) if SEAL in spec else spec)


def check_fields(
    spec: Mapping[str, Any], needed: tuple[str, ...], known: tuple[str, ...], file: Path
) -> None:
    """Refuse a composite's specification of another format, with an unknown field or without a needed one."""
    if spec.get("format", FORMAT) != FORMAT:
        raise DataError(
            f"format {spec['format']!r} of a retriever of kind {spec.get('kind')!r}; this version reads "
            f"{FORMAT}: install a newer grls, or make the folder again.",
            file,
        )
    if lacking := [name for name in needed if name not in spec]:
        raise DataError(f"the field {lacking[0]!r} is missing; make the folder again, or write it in.", file)
    if unknown := [name for name in spec if name not in {"format", "kind", *OPTIONS, *needed, *known}]:
        raise DataError(
            f"unknown field {unknown[0]!r} of kind {spec.get('kind')!r}; known are "
            f"{', '.join((*needed, *known, *OPTIONS))}. Take it out, or make the folder again.",
            file,
        )


def from_record(cls: type[Options], record: Any, file: Path, field: str) -> Options:
    """A dataclass of options, with those nested in it, from JSON; fields left out have their defaults.

    Errors name ``file``, and ``field``, the name of the record in it; empty: it is the file.
    """
    within = f"{field}." if field else ""
    if not isinstance(record, dict):
        raise DataError(f"{field}: expected an object, got {record!r}.", file)
    hints = get_type_hints(cls)
    known = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name not in known:
            raise DataError(f"{within}{name} is no option; known are {', '.join(sorted(known))}.", file)
        kind = hints[name]
        nested = is_dataclass(kind) and isinstance(kind, type)
        values[name] = from_record(kind, value, file, f"{within}{name}") if nested else value
    required = [name for name, one in known.items() if one.default is one.default_factory is MISSING]
    if lacking := [name for name in required if name not in values]:
        raise DataError(f"{field}: the field {lacking[0]!r} is missing; write it in.", file)
    try:
        return cls(**values)
    except ConfigError as error:
        raise DataError(f"{field}: {worded(error.text, in_python)}", file) from None


def from_fields(cls: type[Options], spec: Mapping[str, Any], file: Path, field: str) -> Options:
    """A dataclass of options from its fields in a specification; see :func:`from_record`."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    return from_record(cls, {name: spec[name] for name in names if name in spec}, file, field)


def recorded(options: Any) -> dict[str, Any]:
    """A dataclass of options as JSON, without fields that have their defaults."""
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
    member = Path(path).resolve()
    with suppress(ValueError):  # it is on another drive of Windows
        member = Path(os.path.relpath(member, Path(folder).resolve()))
    return member.as_posix()


def member_path(name: str, folder: Path) -> Path:
    """The folder need not exist yet."""
    return folder / name if folder.is_dir() else Path(os.path.normpath(folder / name))


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


def remedy_of_other_corpus(retrieved: Corpus, wanted: Corpus) -> str:
    """The remedy where the corpus of a retriever is not that of a data set: either may be the newer one."""
    remedy = f"if {wanted.source} is right, make the retriever again with `grls index` over it"
    if not Path(retrieved.source).is_file() or is_temporary(retrieved.source):
        return remedy
    return (
        f"{remedy}; if the retriever is (after `grls index update`), copy its corpus {retrieved.source} to "
        f"{wanted.source}, and take removed passages out of qrels and evidence"
    )
