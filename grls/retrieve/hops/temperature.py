"""The default temperature of ranked hops."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from grls.errors import ConfigError
from grls.retrieve.base import DecodesPassages, Retriever, ScoresAll, TakesEvidence


@runtime_checkable
class RescoresHops(TakesEvidence, Protocol):
    """A retriever that adds to the scores of the hops of another one, in their unit."""

    retriever: Retriever
    rereading: Any


def usual_temperature(retriever: Retriever) -> float:
    """The temperature that makes the scores of a retriever log-probabilities.

    Raises:
        ConfigError: The retriever has none.
    """
    if isinstance(retriever, RescoresHops):
        return usual_temperature(retriever.retriever)
    if isinstance(retriever, ScoresAll):
        return retriever.temperature
    if isinstance(retriever, DecodesPassages):  # its scores are log-probabilities, of spans divided by T
        generator = retriever.generator
        return 1.0 if generator.spans is None else 1 / generator.options.span_temperature
    if isinstance(retriever, TakesEvidence):
        return 1.0
    raise ConfigError(
        f"the scores of a retriever of kind {retriever.kind!r} are no log-probabilities, so ranked hops need "
        "a temperature: set hops.temperature."
    )
