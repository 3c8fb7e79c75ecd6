"""The default temperature of ranked hops."""

from __future__ import annotations

from grls.errors import ConfigError
from grls.retrieve.base import DecodesPassages, Retriever, ScoresAll, TakesEvidence


def usual_temperature(retriever: Retriever) -> float:
    """The temperature that makes the scores of a retriever log-probabilities.

    Raises:
        ConfigError: The retriever has none.
    """
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
