"""Building a retriever folder of any kind from a model and a corpus.

A kind that can be built has a classmethod ``build(model, corpus, building)``, which writes the folder and
returns a line about it, and ``built_with``, the options of :data:`_OF_KINDS` that it uses. It may also have
``recognises(model)``, by which ``auto`` chooses; a model that no kind recognises is generative.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.cluster.options import Workers
from grls.errors import ConfigError, DataError, Option
from grls.index.backends import check_backend
from grls.index.options import IndexOptions, LimitOptions
from grls.io.files import write_json
from grls.io.recipes import load_plugins
from grls.models.load.opening import UnopenedError
from grls.models.option_names import Similarity
from grls.retrieve.registry import KINDS, class_of
from grls.retrieve.spec import MANIFEST, TIME

AUTO = "auto"
"""Chooses the kind that recognises the model."""

FALLBACK = "generative"

VARIANTS = {"st5": "dense"}
"""Other names of a kind, with a variant of its model; :attr:`Building.kind` holds the name."""


@dataclass(frozen=True)
class Building:
    """Options of building a folder.

    Args:
        output: An earlier folder there is replaced.
        kind: The kind, or one of :data:`VARIANTS`.
        batch_size: Passages encoded together.
        device: Where passages are encoded.
        similarity: That of a bi-encoder; None: as its model says.
    """

    output: str
    kind: str
    index: IndexOptions = field(default_factory=IndexOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    batch_size: int = 32
    device: str = "auto"
    similarity: Similarity | None = None
    workers: Workers | None = None


_OF_KINDS = (
    "index.backend", "index.form", "limits.passage", "limits.query", "limits.input", "similarity", "workers",
)  # fmt: skip
"""Options of building that some kinds alone use."""


def build(model: str, corpus: str, building: Building) -> str:
    """Build a retriever folder with the seconds that it took, and return a line about it.

    ``model`` is a folder that a training wrote, or a hub name; ``corpus`` a ``corpus.jsonl``, or its folder.
    """
    begun = perf_counter()
    load_plugins()
    check_backend(building.index.backend)
    classes: dict[str, Any] = {}
    for name in KINDS:
        with suppress(DataError):  # a kind that cannot be imported does not hinder the others
            classes[name] = class_of(name)
    variant = building.kind
    if variant == AUTO:
        recognising = (n for n, c in classes.items() if hasattr(c, "recognises") and c.recognises(model))
        variant = next(recognising, FALLBACK)
    kind = VARIANTS.get(variant, variant)
    if kind in KINDS:
        class_of(kind)  # its error comes first
    buildable = {name for name, class_ in classes.items() if hasattr(class_, "build")}
    if kind not in buildable:
        known = ", ".join(sorted({AUTO, *buildable, *VARIANTS}))
        fault = "is not built from a model" if kind in KINDS else "is no kind of retriever"
        raise ConfigError(f"{Option('kind', variant)} {fault}; choose one of {known}.")
    built_with, usual = getattr(classes[kind], "built_with", ()), Building(building.output, variant)
    for name in _OF_KINDS:
        if name not in built_with and attrgetter(name)(building) != attrgetter(name)(usual):
            option = Option("ray" if name == "workers" else name)
            instead = name.startswith("limits.") and "limits.input" in built_with
            remedy = f"set {Option('limits.input')} instead" if instead else "leave it out"
            raise ConfigError(f"a retriever of kind {kind!r} has no {option}; {remedy}.")
    try:
        line = classes[kind].build(model, corpus, replace(building, kind=variant))
    except UnopenedError as error:
        if building.kind != AUTO or kind != FALLBACK:
            raise
        encoders = sorted({*buildable, *VARIANTS} - {FALLBACK})
        raise UnopenedError(
            f"{error} If it is an encoder, say of what kind: {Option('kind', *encoders)}."
        ) from None
    if not isinstance(line, str) or not (Path(building.output) / MANIFEST).is_file():
        raise ConfigError(
            f"the kind {kind!r} ({KINDS[kind]}) built no folder: its `build` writes {building.output}, with "
            f"a {MANIFEST} in it, and returns a line about it; it returned {type(line).__name__}."
        )
    write_json(Path(building.output) / TIME, {"seconds": perf_counter() - begun})
    return line
