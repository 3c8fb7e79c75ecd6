"""Building a retriever folder of any kind from a model and a corpus.

A kind that can be built has a classmethod ``build(model, corpus, how)``, which writes the folder and returns
a line about it; ``built_by_workers`` says that it uses :attr:`Building.workers`. A kind may also have
``recognises(model)``: whether a model is of this kind, for ``auto``. A model that no kind recognises is
generative.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from grls.cluster.options import Workers
from grls.errors import ConfigError, DataError, Option
from grls.index.backends import check_backend
from grls.index.options import IndexOptions, LimitOptions
from grls.io.recipes import load_plugins
from grls.models.biencoder_kinds import Similarity
from grls.models.load.opening import UnopenedError
from grls.retrieve.registry import KINDS, class_of
from grls.retrieve.spec import MANIFEST

AUTO = "auto"
"""Chooses the kind that recognises the model."""

FALLBACK = "generative"

VARIANTS = {"st5": "dense"}
"""Other names of a kind, with a variant of its model; :attr:`Building.asked` holds the name."""


@dataclass(frozen=True)
class Building:
    """Options of building a folder.

    Args:
        output: The folder; an earlier one there is replaced.
        asked: The kind, or one of :data:`VARIANTS`.
        index: Options of the index of a generator.
        limits: Length limits of texts.
        batch_size: Passages encoded together.
        device: Device of the encoder.
        similarity: How a bi-encoder compares, in place of its own similarity; None: as it does.
        workers: Workers that share the work; None: this process does it.
    """

    output: str
    asked: str
    index: IndexOptions = field(default_factory=IndexOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    batch_size: int = 32
    device: str = "auto"
    similarity: Similarity | None = None
    workers: Workers | None = None

    def refuse_unused(self, called: str, unused: Collection[str], remedy: str = "") -> None:
        """Refuse options that have no effect on a kind.

        Args:
            called: The name of the kind in the error: "a bi-encoder".
            unused: Names of the options, such as ``limits.query``.
            remedy: A remedy in place of leaving the option out.

        Raises:
            ConfigError: An option differs from its default.
        """
        usual = Building(self.output, self.asked)
        for name in unused:
            value = attrgetter(name)
            if value(self) != value(usual):
                raise ConfigError(f"{called} has no {Option(name)}; {remedy or 'leave it out'}.")


Build = Callable[[str, str, Building], str]


def kind_of_model(model: str) -> str:
    """The kind that recognises a model: a folder, or a hub name."""
    for kind in _importable():
        recognises = getattr(class_of(kind), "recognises", None)
        if recognises is not None and recognises(model):
            return kind
    return FALLBACK


def build(model: str, corpus: str, how: Building) -> str:
    """Build a retriever folder, and return a line about it.

    Args:
        model: A folder that a training wrote, or a hub name.
        corpus: ``corpus.jsonl``, or the folder that holds it.
        how: The options; ``asked`` may be :data:`AUTO`.

    Raises:
        ConfigError: The kind is unknown or not built from a model, the model is of another kind, an option
            has no effect on it, or its ``build`` wrote no folder.
    """
    load_plugins()
    check_backend(how.index.backend)
    asked = kind_of_model(model) if how.asked == AUTO else how.asked
    kind = VARIANTS.get(asked, asked)
    if kind in KINDS:
        class_of(kind)  # what is wrong with it is said first
    buildable: dict[str, Build] = {}
    for name in _importable():
        if (maker := getattr(class_of(name), "build", None)) is not None:
            buildable[name] = maker
    if kind not in buildable:
        known = ", ".join(sorted([AUTO, *buildable, *VARIANTS]))
        what = "is not built from a model" if kind in KINDS else "is no kind of retriever"
        raise ConfigError(f"{Option('kind', asked)} {what}; choose one of {known}.")
    if how.workers is not None and not getattr(class_of(kind), "built_by_workers", False):
        raise ConfigError(f"{Option('ray')} builds no retriever of the kind {kind!r}: leave it out.")
    try:
        line = buildable[kind](model, corpus, replace(how, asked=asked))
    except UnopenedError as error:
        if how.asked != AUTO or kind != FALLBACK:
            raise
        others = ", ".join(sorted({*buildable, *VARIANTS} - {FALLBACK}))
        raise UnopenedError(
            f"{error} If it is an encoder, say of what kind: {Option('kind', others)}."
        ) from None
    if not isinstance(line, str) or not (Path(how.output) / MANIFEST).is_file():
        raise ConfigError(
            f"the kind {kind!r} ({KINDS[kind]}) built no folder: its `build` writes {how.output}, with a "
            f"{MANIFEST} in it, and returns a line about it; it returned {type(line).__name__}."
        )
    return line


def _importable() -> list[str]:
    """The kinds whose classes can be imported: one that cannot be is in the way of no other."""
    kinds = []
    for kind in KINDS:
        with suppress(DataError):
            class_of(kind)
            kinds.append(kind)
    return kinds
