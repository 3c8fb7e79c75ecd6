"""Checks every invariant of a retriever or index folder, its members included, and reports each.

A kind may know more of its folder than that it opens: its class then has ``invariants(folder)``, which yields
(what is checked, the file, the check) for an open retriever (:class:`ChecksFolder`). Everything else is the
same for all kinds: the checksums of ``checksums.json``, the manifest, the passages, the members, that the
folder opens with all checksums compared, and that it answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus, corpus_file
from grls.data.inputs.arguments import checked
from grls.errors import DataError, MismatchError
from grls.index.corpus_check import PartCheck, attempt, check_index
from grls.index.storage import MANIFEST as INDEX
from grls.io.option_errors import visible
from grls.io.progress import counted
from grls.models.precision_names import Device
from grls.retrieve.base import ChecksFolder, Retriever, single_steps
from grls.retrieve.registry import BM25, Opening, class_of, load_retriever
from grls.retrieve.spec import (
    CHECKSUMS,
    MANIFEST,
    compare_checksums,
    followed,
    is_retriever,
    linked,
    member_path,
    member_slots,
    read_spec,
)

_ASKED, _DEPTH = 3, 5
"""Passages whose texts are asked as queries, and hits asked for."""


class FolderCheck(NamedTuple):
    """The report on a folder.

    Attributes:
        folder: The folder.
        parts: All checks, those of members after those of the folder that names them.
    """

    folder: Path
    parts: list[PartCheck]

    @property
    def faults(self) -> list[str]:
        """What is wrong, one text a broken check."""
        return [part.fault for part in self.parts if part.fault]


@checked
def check_folder(folder: str | Path, device: Device = "cpu") -> FolderCheck:
    """Check all invariants of a retriever folder of any kind, or of the folder of an index.

    Every byte is read, every model is loaded, and what can be computed anew is compared with what is stored.

    Args:
        folder: The folder.
        device: Where models are loaded.

    Raises:
        DataError: It is neither.
    """
    place = Path(folder)
    if is_retriever(place):
        return FolderCheck(place, list(_Walk(device).retriever(place)))
    if (place / INDEX).is_file():
        return FolderCheck(place, check_index(place))
    raise DataError(
        f"there is neither a retriever ({MANIFEST}) nor an index ({INDEX}) here: give the folder that `grls "
        "index` or `grls fit` wrote.",
        place,
    )


def format_folder_check(report: FolderCheck) -> str:
    """The report as text: a line for each check, and below a broken one what is wrong."""
    lines = []
    for part in report.parts:
        lines.append(f"{'BROKEN' if part.fault else 'ok':<7} {part.what:<52} {part.file}")
        if part.fault:
            lines.append(f"        {part.fault}")
    count = len(report.faults)
    lines.append(f"{report.folder}: {len(report.parts)} checks, {count or 'none'} broken")
    return visible("\n".join(lines))


class _Walk:
    """The folders that are checked so far; each is checked once."""

    def __init__(self, device: str):
        self.how = Opening(device, verify=True)
        self.seen: set[Path] = set()

    def retriever(self, folder: Path) -> Iterator[PartCheck]:
        """All checks of a folder and of its members."""
        if folder.resolve() in self.seen:
            return
        self.seen.add(folder.resolve())
        file = folder / MANIFEST
        spec: dict[str, Any] = {}

        def read_manifest() -> None:
            content = read_spec(folder)
            class_of(content["kind"], file)
            if content["kind"] == "link":
                linked(content, file)
                followed(folder)
            spec.update(content)

        yield attempt("manifest", file, read_manifest)
        if (folder / CHECKSUMS).is_file():
            yield attempt("checksums of all files", folder / CHECKSUMS, lambda: compare_checksums(folder))
        if corpus_file(folder).is_file():
            yield attempt("passages", corpus_file(folder), lambda: Corpus.read(folder))
        if (folder / "index" / INDEX).is_file():
            for name in ("index", "added") if (folder / "added").is_dir() else ("index",):
                yield from check_index(folder / name)
        for member in _members(spec, folder):
            yield from self.retriever(member)
        opened: list[Retriever] = []
        yield attempt("opens", file, lambda: opened.append(load_retriever(folder, self.how)))
        for retriever in opened:
            inner = single_steps(retriever)  # of a composite it is a member, checked with its own folder
            kind: Any = class_of(spec["kind"])
            if isinstance(inner, ChecksFolder) and isinstance(inner, kind):
                for what, checked_file, check in inner.invariants(folder):
                    yield attempt(what, checked_file, check)
            yield attempt("answers", folder, partial(_check_answers, retriever, folder))


def _members(spec: dict[str, Any], folder: Path) -> Iterator[Path]:
    """The retriever folders that a specification names, and those of the specifications embedded in it."""
    try:
        fields = (
            ("retriever",)
            if spec.get("kind") == "link"
            else getattr(class_of(spec.get("kind")), "folders", ())
        )
    except DataError:  # the check of the manifest has said so
        return
    for field in fields:
        for holder, key in member_slots(spec, field.split(".")):
            named = holder[key]
            if isinstance(named, dict):
                yield from _members(named, folder)
            elif isinstance(named, str) and named != BM25 and is_retriever(member_path(named, folder)):
                yield member_path(named, folder)


def _check_answers(retriever: Retriever, folder: Path) -> None:
    """Ask for a few of the passages by their texts, and check the form of what comes."""
    corpus = retriever.corpus
    numbers = sorted({0, len(corpus) // 2, len(corpus) - 1})[:_ASKED]
    texts = [_short(passage.text) or _short(passage.title) for passage in corpus.passages(numbers)]
    asked = [text for text in texts if text]
    if asked:
        for hits in retriever.retrieve(asked, _DEPTH):
            ids, scores = [hit.id for hit in hits], [hit.score for hit in hits]
            wrong = ""
            if len(hits) > _DEPTH or len(set(ids)) != len(ids):
                wrong = f"{counted(len(hits), 'hit')} for {_DEPTH}, {len(set(ids))} of them distinct"
            elif None in corpus.numbers(ids):
                wrong = "a hit is no passage of the corpus"
            elif not all(map(math.isfinite, scores)) or any(b > a for a, b in pairwise(scores)):
                wrong = f"the scores {scores} are not falling numbers"
            if wrong:
                raise MismatchError(f"{folder}: {wrong}; make the retriever again with `grls index`.")


def _short(text: str) -> str:
    return " ".join(text.split()[:8])
