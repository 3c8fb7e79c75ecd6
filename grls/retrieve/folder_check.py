"""Checks every invariant of a retriever or index folder and of its members, and reports each.

For all kinds: checksums, manifest, passages, members, and whether the folder opens and answers. A kind may
add its own (:class:`ChecksFolder`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus, corpus_file
from grls.errors import DataError, MismatchError
from grls.index.index_check import PartCheck, attempt, check_index
from grls.index.storage import INDEX_MANIFEST as INDEX
from grls.io.arguments import checked
from grls.io.progress import counted, visible
from grls.models.option_names import Device
from grls.retrieve.base import ChecksFolder, Retriever, single_steps
from grls.retrieve.registry import BM25, Opening, class_of, load_retriever, member_keys
from grls.retrieve.spec import (
    LINK,
    MANIFEST,
    followed,
    is_retriever,
    linked,
    member_path,
    member_slots,
    read_spec,
    refuse_changed,
)

_QUERIES, _DEPTH = 3, 5
"""Passages whose texts become queries, and hits of each query."""


class FolderCheck(NamedTuple):
    """The checks of a folder, then those of its members."""

    folder: Path
    parts: list[PartCheck]

    @property
    def faults(self) -> list[str]:
        return [part.fault for part in self.parts if part.fault]


@checked
def check_folder(folder: str | Path, device: Device = "cpu") -> FolderCheck:
    """Check all invariants of a retriever folder of any kind, or of the folder of an index.

    Every byte is read, every model is loaded, and what can be computed again is compared with the files.
    """
    path = Path(folder)
    if is_retriever(path):
        return FolderCheck(path, list(_checks(path, Opening(device, verify=True), set())))
    if (path / INDEX).is_file():
        return FolderCheck(path, check_index(path))
    raise DataError(
        f"there is neither a retriever ({MANIFEST}) nor an index ({INDEX}) here: give the folder that `grls "
        "index` or `grls fit` wrote.",
        path,
    )


def format_folder_check(report: FolderCheck) -> str:
    """A line for each check, and the fault below a broken one."""
    lines = []
    for part in report.parts:
        lines.append(f"{'BROKEN' if part.fault else 'ok':<7} {part.what:<52} {part.file}")
        if part.fault:
            lines.append(f"        {part.fault}")
    count = len(report.faults)
    lines.append(f"{report.folder}: {len(report.parts)} checks, {count or 'none'} broken")
    return visible("\n".join(lines))


def _checks(folder: Path, opening: Opening, seen: set[Path]) -> Iterator[PartCheck]:
    """Of a folder and its members; those in ``seen`` are skipped."""
    if folder.resolve() in seen:
        return
    seen.add(folder.resolve())
    file = folder / MANIFEST
    spec: dict[str, Any] = {}

    def read_manifest() -> None:
        content = read_spec(folder)
        class_of(content["kind"], file)
        if content["kind"] == LINK:
            linked(content, file)
            followed(folder)
        spec.update(content)

    yield attempt("manifest", file, read_manifest)
    yield attempt("size and checksum of every file", file, lambda: refuse_changed(folder))
    if corpus_file(folder).is_file():
        yield attempt("passages", corpus_file(folder), lambda: Corpus.read(folder))
    if (folder / "index" / INDEX).is_file():
        yield from check_index(folder / "index")
    for member in _members(spec, folder):
        yield from _checks(member, opening, seen)
    opened: list[Retriever] = []
    yield attempt("opens", file, lambda: opened.append(load_retriever(folder, opening)))
    for retriever in opened:
        inner = single_steps(retriever)  # of a composite it is a member, checked with its own folder
        kind: Any = class_of(spec["kind"])
        if isinstance(inner, ChecksFolder) and isinstance(inner, kind):
            for name, checked_file, check in inner.invariants(folder):
                yield attempt(name, checked_file, check)
        yield attempt("answers", folder, partial(_check_answers, retriever, folder))


def _members(spec: dict[str, Any], folder: Path) -> Iterator[Path]:
    """The retriever folders that a specification names, also within specifications embedded in it."""
    try:
        slots = list(member_slots(spec, ["retriever"]) if spec.get("kind") == LINK else member_keys(spec))
    except DataError:  # the check of the manifest names the fault
        return
    for holder, key in slots:
        member = holder[key]
        if isinstance(member, dict):
            yield from _members(member, folder)
        elif isinstance(member, str) and member != BM25 and is_retriever(member_path(member, folder)):
            yield member_path(member, folder)


def _check_answers(retriever: Retriever, folder: Path) -> None:
    corpus = retriever.corpus
    numbers = sorted({0, len(corpus) // 2, len(corpus) - 1})[:_QUERIES]
    queries = []
    for passage in corpus.passages(numbers):
        words = passage.text.split() or passage.title.split()
        queries += [" ".join(words[:8])] if words else []
    for hits in retriever.retrieve(queries, _DEPTH) if queries else ():
        ids, scores = [hit.id for hit in hits], [hit.score for hit in hits]
        fault = ""
        if len(hits) > _DEPTH or len(set(ids)) != len(ids):
            fault = f"{counted(len(hits), 'hit')} for {_DEPTH}, {len(set(ids))} of them distinct"
        elif None in corpus.numbers(ids):
            fault = "a hit is no passage of the corpus"
        elif not all(map(math.isfinite, scores)) or any(b > a for a, b in pairwise(scores)):
            fault = f"the scores {scores} are not falling numbers"
        if fault:
            raise MismatchError(f"{folder}: {fault}; make the retriever again with `grls index`.")
