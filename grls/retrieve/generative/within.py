"""The generator in a retriever."""

from __future__ import annotations

from grls.errors import ConfigError
from grls.retrieve.base import DecodesPassages, Retriever, single_steps
from grls.retrieve.generative.retriever import GenerativeRetriever


def as_generator(retriever: Retriever, why: str) -> GenerativeRetriever:
    """The retriever, or the one of its single steps, as a generator.

    Args:
        retriever: Any retriever.
        why: Why a generator is needed, for the error.

    Raises:
        ConfigError: The retriever is of another kind.
    """
    one, generator = single_steps(retriever), generator_within(retriever)
    if generator is None or generator is not one:
        raise ConfigError(f"{why}: give the folder of a generative retriever; this one is {retriever.kind}.")
    return generator


def generator_within(retriever: Retriever) -> GenerativeRetriever | None:
    """The generator in a retriever; None: it has none."""
    one = single_steps(retriever)
    if not isinstance(one, DecodesPassages):
        return None
    generator: GenerativeRetriever = one.generator
    return generator
