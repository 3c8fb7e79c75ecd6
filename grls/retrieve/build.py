"""Building a retriever folder of any kind from a model and a corpus.

A kind that can be built so has a classmethod ``build(model, corpus, how)``, which writes the folder and says
what it made in a line. A kind may also have ``recognises(model)``: whether a model is one of its own, where
no kind is asked for; what no kind recognises is generative.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from operator import attrgetter

from grls.errors import ConfigError
from grls.index.options import IndexOptions, LimitOptions
from grls.retrieve.registry import KINDS, class_of

AUTO = "auto"
"""Asks for the kind that recognises the model."""

FALLBACK = "generative"

VARIANTS = {"st5": "dense"}
"""Other ways to make a folder of a kind: :attr:`Building.asked` tells its class which was named."""


@dataclass(frozen=True)
class Building:
    """How a folder is built.

    Args:
        output: The folder; an earlier one there is replaced.
        asked: The kind as it was asked for, or one of :data:`VARIANTS`.
        index: How passages are indexed for a generator.
        limits: The longest texts.
        batch_size: Passages encoded together.
        device: Where passages are encoded.
    """

    output: str
    asked: str
    index: IndexOptions = field(default_factory=IndexOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    batch_size: int = 32
    device: str = "auto"

    def refuse_unused(self, called: str, unused: Collection[str], remedy: str = "") -> None:
        """Refuse options that a kind has no use for.

        Args:
            called: What the error calls the kind: "a bi-encoder".
            unused: Their names, as ``limits.query``.
            remedy: What to do beside leaving the option out.

        Raises:
            ConfigError: One is not as usual.
        """
        usual = Building(self.output, self.asked)
        for name in unused:
            value = attrgetter(name)
            if value(self) != value(usual):
                raise ConfigError(f"{called} has no --{name}; {remedy or 'leave it out'}.")


Build = Callable[[str, str, Building], str]


def kind_of_model(model: str) -> str:
    """The kind that recognises a model: a folder, or a hub name."""
    for kind in KINDS:
        recognises = getattr(class_of(kind), "recognises", None)
        if recognises is not None and recognises(model):
            return kind
    return FALLBACK


def build(model: str, corpus: str, how: Building) -> str:
    """Build a retriever folder, and say what was made.

    Args:
        model: A folder that a training wrote, or a hub name.
        corpus: ``corpus.jsonl``, or the folder that holds it.
        how: How; ``asked`` may be :data:`AUTO`.

    Raises:
        ConfigError: The kind is unknown, is not built from a model, or has no use for an option.
    """
    asked = kind_of_model(model) if how.asked == AUTO else how.asked
    kind = VARIANTS.get(asked, asked)
    buildable = {name: made for name in KINDS if (made := _build_of(name)) is not None}
    if kind not in buildable:
        known = ", ".join(sorted([AUTO, *buildable, *VARIANTS]))
        what = "is not built from a model" if kind in KINDS else "is no kind of retriever"
        raise ConfigError(f"--kind {asked} {what}; choose one of {known}.")
    return buildable[kind](model, corpus, replace(how, asked=asked))


def _build_of(kind: str) -> Build | None:
    found: Build | None = getattr(class_of(kind), "build", None)
    return found
