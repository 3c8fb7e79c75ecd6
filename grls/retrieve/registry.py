"""The kinds of retrievers, and the function that opens a folder of any kind.

A kind is a class with ``open(folder, spec, opening)``. To add a kind, write one file and call
:func:`register`. The module of a kind is imported when a folder of that kind is opened.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping
from copy import deepcopy
from dataclasses import field, replace
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, MismatchError, Option, in_python, worded
from grls.io.arguments import checked, options
from grls.io.ending import missing
from grls.io.files import read_json
from grls.io.recipes import VARIABLE, load_plugins
from grls.io.seal import FILES
from grls.models.option_names import Device, PrecisionName
from grls.retrieve.base import Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.options import merged, stored_hops, stored_search
from grls.retrieve.spec import (
    LINK,
    MANIFEST,
    TIME,
    Component,
    Member,
    followed,
    from_record,
    is_retriever,
    linked,
    member_path,
    member_slots,
    read_spec,
    recorded,
    refuse_changed,
    remedy_of_other_corpus,
)

if TYPE_CHECKING:
    from grls.data.words import Analyzer


KINDS: dict[str, str] = {
    "bm25": "grls.retrieve.bm25:BM25Retriever",
    "dense": "grls.retrieve.dense:DenseRetriever",
    "sparse": "grls.retrieve.sparse:SparseRetriever",
    "multi-vector": "grls.retrieve.multi_vector:MultiVectorRetriever",
    "generative": "grls.retrieve.generative.retriever:GenerativeRetriever",
    "hybrid": "grls.retrieve.hybrid.retriever:HybridRetriever",
    "hops": "grls.retrieve.hops.retriever:HopsRetriever",
    "fusion": "grls.retrieve.fusion.retriever:FusionRetriever",
    "rescored": "grls.retrieve.rescored.retriever:RescoredRetriever",
    LINK: "grls.retrieve.registry:Link",
}
"""Kind -> ``module:class``."""

_REQUIRED = ("kind", "corpus", "describe", "fingerprint", "retrieve")

_MOST = 1_000
"""The most members of a composite, those of its members included: a stranger may name one very often."""

BM25 = "bm25"
"""In place of a retriever folder: BM25 over the corpus at hand."""


@options()
class Opening:
    """Options of opening a folder.

    Args:
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
        precision: ``float32`` or ``bfloat16``; a generator also takes the others of
            :mod:`grls.models.precision`.
        search: Options of search, which override those of the folder; None: those of the folder, or defaults.
        verify: Whether checksums are compared; None: see :func:`grls.index.load_index`.
        corpus: The corpus of an embedded BM25; None: its specification must name one.
        truncate_queries: Cut queries that are too long; it overrides ``search`` and the folder.
        hop_by_hop: Apply the section ``hops`` of the folder. Those of its members are always applied.
        within: The folders that are being opened, the outermost first; none of them may be a member.
        opened: What the members so far have opened, to be shared.
        numbers: The numbers of the members that are still to be opened.
    """

    device: Device = "auto"
    precision: PrecisionName = "float32"
    search: SearchOptions | None = None
    verify: bool | None = None
    corpus: Corpus | None = None
    truncate_queries: bool = False
    hop_by_hop: bool = True
    within: tuple[Path, ...] = ()
    opened: Any = field(default=None, compare=False, repr=False)
    numbers: Any = field(default_factory=count, compare=False, repr=False)

    @property
    def searching(self) -> SearchOptions | None:
        if not self.truncate_queries:
            return self.search
        return replace(self.search or SearchOptions(), truncate_queries=True)

    def inside(self, folder: Path) -> Opening:
        opened, numbers = ({}, count()) if self.opened is None else (self.opened, self.numbers)
        return replace(self, within=(*self.within, folder.resolve()), opened=opened, numbers=numbers)


Opened = TypeVar("Opened")


class Openable(Protocol):
    """The class of a kind.

    Optional attributes:

    - ``heeds``: the options of search that it can use, if not all;
    - ``embeddable = False``: its folder holds data. It may have a classmethod ``update``
      (:mod:`grls.retrieve.update`);
    - ``folders``: fields of its specification that name folders, such as ``priors.*.retriever`` (``*``: every
      element of a list);
    - ``tuned_by``: the steps of ``grls tune``, each as ``module:name`` of a ``grls.tune.step.Step``;
    - ``sums()``: further fields of the ``grls.json`` of a composite, by which what it names is known.

    Folders that several members of a composite name are opened once (:attr:`Opening.opened`) where the class
    has two methods:

    - ``shared_by(folder, spec, opening)``: what its model and passages depend on, beside the class; None: it
      cannot be shared;
    - ``reopened(folder, opening)``: the same retriever with the options of search of another opening; models
      and passages are shared.
    """

    def open(self, folder: Path, spec: dict[str, Any], opening: Opening) -> Retriever:
        """Open a folder; for an embedded specification, the folder around it."""
        ...


def register(kind: str, target: str) -> None:
    """Add a kind.

    Args:
        kind: Its name in ``grls.json``.
        target: ``module:class``; the class has ``open``, see :class:`Openable`.

    Raises:
        ConfigError: The name is taken by another class.
    """
    if KINDS.get(kind, target) != target:
        raise ConfigError(f"the kind {kind!r} is {KINDS[kind]} already; choose another name.")
    KINDS[kind] = target


def class_of(kind: Any, file: Path | None = None) -> Openable:
    if isinstance(kind, str) and kind not in KINDS:
        load_plugins()
    if not isinstance(kind, str) or kind not in KINDS:
        raise DataError(
            f"unknown kind of retriever {kind!r}; known are {', '.join(sorted(KINDS))}. Make the folder "
            f"again with `grls index`, or install the package of the kind, or name its module in {VARIABLE}.",
            file,
        )
    module, _, name = KINDS[kind].partition(":")
    try:
        return cast(Openable, getattr(import_module(module), name))
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and (lacks := missing(error, f"a retriever of the kind {kind}")):
            raise ConfigError(lacks) from None
        raise DataError(
            f"the kind {kind!r} is {KINDS[kind]}, which cannot be imported ({error}): install the packages "
            "that it needs, or register it by its module and class.",
            file,
        ) from error


def member_keys(spec: Mapping[str, Any], file: Path | None = None) -> Iterator[tuple[Any, Any]]:
    """(object or list, key) of every member that a specification names or embeds."""
    for path in getattr(class_of(spec.get("kind"), file), "folders", ()):
        yield from member_slots(spec, path.split("."))


def index_seconds(folder: str | Path) -> float | None:
    """Seconds that `grls index` took for a retriever folder (:data:`~grls.retrieve.spec.TIME`).

    Those of a composite are a sum; an embedded BM25, indexed at each opening, adds nothing. None: unknown for
    one of them.
    """
    folders, seconds = [followed(folder)], 0.0
    for root in folders:
        members = member_folders(root)
        if (root / TIME).is_file():
            seconds += float(read_json(root / TIME)["seconds"])
        elif not members:
            return None
        known = {path.resolve() for path in folders}
        folders += [path for path in members if path.resolve() not in known]
    return seconds


def member_folders(folder: Path) -> list[Path]:
    spec = read_spec(folder)
    named = [holder[key] for holder, key in member_keys(spec)]
    paths = [followed(member_path(name, folder)) for name in named if isinstance(name, str)]
    return [path for path in dict.fromkeys(paths) if is_retriever(path)]


@checked
def load_retriever(folder: str | Path, opening: Opening | None = None) -> Retriever:
    """Open a retriever folder of any kind, named by ``kind`` in its ``grls.json``.

    Where the file has ``hops``, the retriever works hop by hop. A link opens as the folder that it names.

    Args:
        folder: A folder that ``grls index`` or a retriever's ``save_pretrained`` wrote.
        opening: The options of opening.

    Raises:
        ConfigError: The kind cannot use an option.
        DataError: The folder is not a retriever, or of an unknown kind, or a member is missing.
        MismatchError: Its parts do not belong together.
    """
    return _open_folder(followed(folder), opening or Opening())


def open_kind(kind: type[Opened], folder: str | Path, opening: Opening) -> Opened:
    """Open a retriever folder of one kind, without stored hops."""
    root = followed(folder)
    name = read_spec(root)["kind"]
    if cast(Any, class_of(name, root / MANIFEST)) is not kind:
        wanted = cast(Any, kind).kind
        raise DataError(
            f"this is a retriever of the kind {name!r}, and one of the kind {wanted!r} is wanted here: give "
            f"the folder of one, or make one with `grls index MODEL {Option('corpus', 'CORPUS')} "
            f"{Option('output', 'NEW')} {Option('kind', wanted)}`.",
            root / MANIFEST,
        )
    return cast(Opened, _open_folder(root, replace(opening, hop_by_hop=False)))


def _open_folder(folder: Path, opening: Opening, member: bool = False) -> Retriever:
    """The folder is no link."""
    before = read_spec(folder, checksums=True)
    refuse_changed(folder, opening.verify)
    retriever = open_spec(folder, read_spec(folder), opening.inside(folder), member)
    if read_spec(folder, checksums=True).get(FILES) != before.get(FILES):
        raise MismatchError(f"{folder} was replaced while it was opened; open it again.")
    return retriever


def open_spec(folder: Path, spec: dict[str, Any], opening: Opening, member: bool = False) -> Retriever:
    """Open a specification (the content of a ``grls.json``), with the options that it stores.

    Its paths are relative to ``folder``. In a member, stored options replace defaults of the call.
    """
    file, name = folder / MANIFEST, spec["kind"]
    kind: Any = class_of(name, file)
    stored = stored_search(spec, file, getattr(kind, "heeds", None))
    search = merged(stored, opening.search) if member else (opening.search or stored)
    hops = None if name == "hops" or not opening.hop_by_hop else stored_hops(spec, file)
    opening, shared = replace(opening, search=search, hop_by_hop=True), opening.opened
    retriever: Any
    try:
        shareable = shared is not None and hasattr(kind, "shared_by")
        key = kind.shared_by(folder, spec, opening) if shareable else None
        if shared is None or key is None:
            retriever = kind.open(folder, spec, opening)
        elif (kind, key) in shared:
            retriever = cast(Any, shared[kind, key]).reopened(folder, opening)
        else:
            retriever = shared[kind, key] = kind.open(folder, spec, opening)
        if lacking := [field for field in _REQUIRED if not hasattr(retriever, field)]:
            raise ConfigError(
                f"the kind {name!r} ({KINDS[name]}) opened a {type(retriever).__name__} without "
                f"{', '.join(lacking)}: a retriever has {', '.join(_REQUIRED)} "
                "(grls.retrieve.base.Retriever)."
            )
    except (ConfigError, MismatchError) as error:  # errors that do not name the file get it
        text = error.text
        names_folder = text.startswith((f"{folder}:", f"{folder}{os.sep}"))
        if str(file) in text or (names_folder and not text.startswith(str(folder / ".."))):
            raise
        error_class = MismatchError if isinstance(error, MismatchError) else ConfigError
        raise error_class(f"{file}: {text}") from error
    if hops is None:
        return cast(Retriever, retriever)
    hops_class: Any = class_of("hops")
    try:
        return cast(Retriever, hops_class.over(retriever, hops))
    except ConfigError as error:
        raise DataError(f"hops: {worded(error.text, in_python)}", file) from error


def with_languages(spec: dict[str, Any], folder: Path, corpus: Corpus | None = None) -> dict[str, Any]:
    """A specification in which every embedded BM25 stores its analyzer, so that opening guesses nothing.

    An analyzer without a language gets that of ``corpus``, or English.
    """
    from grls.data.words import Analyzer

    complete, file = deepcopy(spec), folder / MANIFEST
    for holder, key in member_keys(complete, file):
        if holder[key] == BM25 and not (folder / BM25).is_dir():
            holder[key] = {"kind": BM25}
        if isinstance(holder[key], dict):
            holder[key] = with_languages(holder[key], folder, corpus)
    if complete.get("kind") == BM25:
        analyzer = from_record(Analyzer, complete.get("analyzer", {}), file, "analyzer")
        complete["analyzer"] = recorded(analyzer.in_english() if corpus is None else analyzer.of(corpus))
    return complete


def open_member(member: Member, folder: Path, field: str, opening: Opening) -> Retriever:
    """Open a member of the composite retriever in ``folder``; errors name the field of its ``grls.json``.

    The options of search of the call apply to the member; its stored ``search`` replaces their defaults.
    """
    if isinstance(member, Component):
        return member.retriever if opening.hop_by_hop else member.single_step
    file = folder / MANIFEST
    if next(opening.numbers) >= _MOST:
        raise DataError(
            f"{field}: the retriever has more than {_MOST:,} members, those of members included: take "
            "some out.",
            file,
        )
    if isinstance(member, Mapping):
        if "kind" not in member:
            raise DataError(
                f"{field}: the field 'kind' is missing; write in which of {', '.join(sorted(KINDS))} it is, "
                "or name the member's folder.",
                file,
            )
        if not getattr(class_of(member["kind"], file), "embeddable", True):
            raise DataError(
                f"{field}: a {member['kind']} retriever has data in its folder, so it cannot be embedded: "
                "name its folder.",
                file,
            )
        return open_spec(folder, dict(member), opening, True)
    if not isinstance(member, str):
        raise DataError(f"{field}: expected the path of a retriever folder, or its specification.", file)
    if member == BM25 and not (folder / member).is_dir():
        return open_spec(folder, {"kind": BM25}, opening, True)
    path = member_path(member, folder)
    if not is_retriever(path):
        raise DataError(
            f"{field} names {member}, but there is no retriever at {path}: move it back, or write its new "
            "path.",
            file,
        )
    path = followed(path)
    plain = Path(os.path.normpath(path))  # in errors; behind a link it is another folder
    path = plain if plain.exists() and plain.samefile(path) else path
    if path.resolve() in opening.within:
        raise DataError(
            f"{field} names {member}, which is this retriever itself, or one that it is a member of: name "
            "another folder.",
            file,
        )
    return _open_folder(path, opening, True)


def names_bm25(name: str) -> bool:
    """Whether a name means BM25 over the corpus at hand: ``bm25``, unless a folder has that name."""
    return name == BM25 and not is_retriever(Path(name))


def load_named(
    name: str, corpus: Corpus, opening: Opening | None = None, analyzer: Analyzer | None = None
) -> Retriever:
    """Open a retriever by its name in options: a folder, or ``bm25`` over ``corpus`` with ``analyzer`` (None:
    by the language guessed from the passages). A folder over another corpus is refused.
    """
    opening = replace(opening or Opening(), corpus=corpus)
    if not names_bm25(name):
        opened = load_retriever(name, opening)
        if opened.corpus.fingerprint != corpus.fingerprint:
            raise MismatchError(
                f"the retriever {name} is over another corpus ({opened.corpus.source}) than {corpus.source}: "
                f"{remedy_of_other_corpus(opened.corpus, corpus)}."
            )
        return opened
    fields = {} if analyzer is None else {"analyzer": recorded(analyzer)}
    return open_member(with_languages({"kind": BM25, **fields}, Path(), corpus), Path(), name, opening)


def folder_key(folder: Path, spec: dict[str, Any], opening: Opening) -> Hashable | None:
    """What the model and the passages of a folder depend on; None: it has members."""
    if "retriever" in spec:
        return None
    return folder.resolve(), opening.device, opening.precision, opening.verify


class Link:
    """The kind ``link``: a folder that only names another retriever, and opens as it.

    So a folder of many parts (members, data, runs) can be a retriever. :func:`grls.retrieve.spec.followed`
    follows links before opening, so no code meets one as a retriever.
    """

    kind = LINK

    @staticmethod
    def open(folder: Path, spec: dict[str, Any], opening: Opening) -> Retriever:
        return open_member(linked(spec, folder / MANIFEST), folder, "retriever", opening)
