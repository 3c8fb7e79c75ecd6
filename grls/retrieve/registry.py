"""The kinds of retrievers, and the one way to open a folder of any.

A kind is a class with ``open(folder, spec, how)``; a kind of your own is one file and :func:`register`.
Modules are imported when their kind is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.retrieve.base import Retriever
from grls.retrieve.spec import MANIFEST, Member, read_spec

if TYPE_CHECKING:
    from grls.retrieve.generative.options import SearchOptions
    from grls.retrieve.generative.retriever import GenerativeRetriever

KINDS: dict[str, str] = {
    "bm25": "grls.retrieve.bm25:BM25Retriever",
    "dense": "grls.retrieve.dense.retriever:DenseRetriever",
    "sparse": "grls.retrieve.sparse:SparseRetriever",
    "multi-vector": "grls.retrieve.multi_vector:MultiVectorRetriever",
    "generative": "grls.retrieve.generative.retriever:GenerativeRetriever",
    "hybrid": "grls.retrieve.hybrid.retriever:HybridRetriever",
    "hops": "grls.retrieve.hops.retriever:HopsRetriever",
    "fusion": "grls.retrieve.fusion.retriever:FusionRetriever",
    "rescored": "grls.retrieve.rescored:RescoredRetriever",
    "cut": "grls.retrieve.fusion.cut:CutRetriever",
}
"""Kind -> ``module:class``."""

BM25 = "bm25"
"""Stands for BM25 over the corpus at hand, where a retriever is named."""


@dataclass(frozen=True)
class Opening:
    """How a folder is opened.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
        precision: ``float32`` or ``bfloat16``; a generator also takes the others of
            :mod:`grls.models.precision`.
        search: How to search; None: as the folder says, or as usual.
        verify: Whether checksums are compared; None: see :func:`grls.index.load_index`.
        corpus: What an embedded BM25 retrieves from; None: it must be named.
        truncate_queries: Cut queries that are too long, whatever ``search`` or a folder says.
    """

    device: str = "auto"
    precision: str = "float32"
    search: SearchOptions | None = None
    verify: bool | None = None
    corpus: Corpus | None = None
    truncate_queries: bool = False

    @property
    def searching(self) -> SearchOptions | None:
        """How a retriever that has no members searches; None: as is usual for it."""
        from grls.retrieve.generative.options import SearchOptions

        if not self.truncate_queries:
            return self.search
        return replace(self.search or SearchOptions(), truncate_queries=True)


class Openable(Protocol):
    """The class of a kind."""

    def open(self, folder: Path, spec: dict[str, Any], how: Opening) -> Retriever:
        """Open a folder (of an embedded specification: that which it is embedded in)."""
        ...


def register(kind: str, target: str) -> None:
    """Add a kind.

    Args:
        kind: Its name in ``grls.json``.
        target: ``module:class``; the class has ``open`` as of :class:`Openable`.

    Raises:
        ConfigError: The name is taken by another class.
    """
    if KINDS.get(kind, target) != target:
        raise ConfigError(f"the kind {kind!r} is {KINDS[kind]} already; choose another name.")
    KINDS[kind] = target


def class_of(kind: Any, file: Path | None = None) -> Openable:
    """The class of a kind.

    Raises:
        DataError: It is not known.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise DataError(
            f"unknown kind of retriever {kind!r}; known are {', '.join(sorted(KINDS))}. Make the folder "
            "again with `grls index`, or install what brings the kind.",
            file,
        )
    module, _, name = KINDS[kind].partition(":")
    return cast(Openable, getattr(import_module(module), name))


def load(folder: str | Path, how: Opening | None = None) -> Retriever:
    """Open a retriever folder of any kind; ``kind`` in its ``grls.json`` says which (absent: generative).

    Args:
        folder: What ``grls index`` or a retriever's ``save_pretrained`` wrote.
        how: How to open it.

    Raises:
        ConfigError: An option cannot be heeded by the kind.
        DataError: The folder is no retriever, or of an unknown kind, or a member is gone.
        MismatchError: Its parts do not belong together.
    """
    path = Path(folder)
    return _opened(path, read_spec(path), how or Opening())


def _opened(folder: Path, spec: dict[str, Any], how: Opening) -> Retriever:
    from grls.retrieve.options import stored_search

    if how.search is None:
        how = replace(how, search=stored_search(spec, folder / MANIFEST))
    return class_of(spec.get("kind", "generative"), folder / MANIFEST).open(folder, spec, how)


def open_member(member: Member, folder: Path, field: str, how: Opening) -> Retriever:
    """Open a member of a composite retriever.

    Args:
        member: Its path, relative to the folder, or its specification.
        folder: The composite's.
        field: Where in its ``grls.json`` it is named, for errors.
        how: How to open it.

    Raises:
        DataError: It is gone.
    """
    if isinstance(member, Mapping):
        return _opened(folder, dict(member), how)
    file = folder / MANIFEST
    if not isinstance(member, str):
        raise DataError(f"{field}: expected the path of a retriever folder, or its specification.", file)
    if member == BM25 and not (folder / member).is_dir():
        return _opened(folder, {"kind": BM25}, how)
    path = folder / member
    if not (path / MANIFEST).is_file():
        raise DataError(
            f"{field} names {member}, and there is no retriever at {path}: move it back, or "
            "write where it is.",
            file,
        )
    return load(path, how)


def load_named(name: str, corpus: Corpus, how: Opening | None = None) -> Retriever:
    """Open a retriever as it is named in options: a folder, or ``bm25`` over a corpus.

    Args:
        name: The folder's path, or ``bm25``.
        corpus: What BM25 is over.
        how: How to open it.
    """
    given = replace(how or Opening(), corpus=corpus)
    return open_member(name, Path(), name, given) if name == BM25 else load(name, given)


def open_retriever(
    folder: str | Path,
    device: str = "auto",
    precision: str = "float32",
    options: SearchOptions | None = None,
    verify: bool | None = None,
) -> Retriever:
    """:func:`load`, with what :class:`Opening` says as arguments."""
    return load(folder, Opening(device, precision, options, verify))


def as_generator(retriever: Retriever, why: str) -> GenerativeRetriever:
    """The retriever, as the generator that it must be.

    Args:
        retriever: Any.
        why: What needs one, for the error.

    Raises:
        ConfigError: It is of another kind.
    """
    from grls.retrieve.generative.retriever import GenerativeRetriever

    if not isinstance(retriever, GenerativeRetriever):
        raise ConfigError(f"{why}: give the folder of a generative retriever; this one is {retriever.kind}.")
    return retriever
