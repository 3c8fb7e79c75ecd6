"""What the command line says of hybrid decoding, and the retriever that it makes.

``grls retrieve`` retrieves with priors, and ``grls tune-dynamic`` with them tunes where chains end.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, TypeVar

from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.models.load.build import BESIDE
from grls.retrieve.base import Retriever, WritesChains
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hybrid.priors import EmptyPromptPrior, open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever, WeightedSource
from grls.retrieve.registry import as_generator

log = logging.getLogger(__name__)
Value = TypeVar("Value", str, float)


class GivenPriors(NamedTuple):
    """The priors of one run.

    Attributes:
        prior: Folders of bi-encoders, or ``bm25``.
        prior_weight: One each.
        prior_temperature: One each; None: the source's own.
        empty_weight: How much of the score under an empty prompt is taken back.
        done_share: Log of DONE's share of a prior that does not know it.
        prior_normalized: The sums of scores are normalized at every token.
    """

    prior: tuple[str, ...]
    prior_weight: tuple[float, ...]
    prior_temperature: tuple[float | None, ...]
    empty_weight: float
    done_share: float
    prior_normalized: bool

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return bool(self.prior) or self.empty_weight != 0

    @property
    def record(self) -> dict[str, Any]:
        """For the manifest of a run; nothing where there is none."""
        return self._asdict() if self.given else {}

    @property
    def told(self) -> dict[str, Any]:
        """As options of ``grls retrieve``; nothing where there is none."""
        told = {
            name: list(value) if isinstance(value, tuple) else value for name, value in self.record.items()
        }
        if told and None in self.prior_temperature:
            told["prior_temperature"] = None
        return told


def prior_options(
    prior: list[str] | str | None,
    weight: list[float] | float | None,
    temperature: list[float] | float | None,
    empty_weight: float,
    done_share: float,
    normalized: bool,
) -> GivenPriors:
    """Options as they are given, one value standing for a list of one.

    Raises:
        ConfigError: There are not as many weights or temperatures as priors, or none is named to normalize.
    """
    names = _listed(prior)
    if normalized and not names:
        raise ConfigError(
            "--prior_normalized true is for a generator that was trained beside priors: name them by --prior."
        )
    weights, temperatures = _listed(weight), _listed(temperature)
    for option, values in (("prior_weight", weights), ("prior_temperature", temperatures)):
        if values and len(values) != len(names):
            raise ConfigError(
                f"--{option} has {len(values)} values for {len(names)} priors; give one for each."
            )
    return GivenPriors(
        names,
        weights or (1.0,) * len(names),
        temperatures or (None,) * len(names),
        empty_weight,
        done_share,
        normalized,
    )


def _listed(given: list[Value] | Value | None) -> tuple[Value, ...]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list) else (given,)


def open_hybrid(
    opened: Retriever,
    priors: GivenPriors,
    device: str,
    options: SearchOptions,
    analyzer: Analyzer = USUAL,
) -> HybridRetriever:
    """A generative retriever with its priors.

    Raises:
        ConfigError: It is none, or a prior cannot be used.
    """
    generator = as_generator(opened, "priors look ahead for a generator")
    sources = open_sources(generator.corpus, priors.prior, device, options, analyzer)
    weighed = [
        WeightedSource(*some)
        for some in zip(sources, priors.prior_weight, priors.prior_temperature, strict=True)
    ]
    if priors.empty_weight:
        weighed.append(WeightedSource(EmptyPromptPrior(generator), -priors.empty_weight))
    return HybridRetriever(generator, weighed, priors.done_share, priors.prior_normalized)


def tell_unlike_training(opened: Retriever, normalized: bool | None = None) -> None:
    """Warn where a generator that learned beside priors is decoded in another way, or the other way round.

    Args:
        opened: What was opened, with or without priors.
        normalized: Whether sums with priors are to be normalized; None: as it does.
    """
    told = opened.describe()
    if not isinstance(opened, WritesChains) or not told.stages:
        return
    if normalized is None:
        normalized = bool(told.options.get("prior_normalized"))
    learned = told.stages[-1] == BESIDE
    if learned and not normalized:
        log.warning(
            "the generator learned beside priors; decoded otherwise, it knows only where they are wrong: "
            "give --prior, with the weights of its training, and --prior_normalized true."
        )
    if normalized and not learned:
        log.warning(
            "the generator does not say that it was trained beside priors (--data.prior); if it was not, "
            "leave --prior_normalized out."
        )
