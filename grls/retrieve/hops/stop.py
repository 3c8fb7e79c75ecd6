"""Where a chain ends: the stop rule of a search by hops.

Before a chain goes on, the search asks its rule (:meth:`StopRule.weigh`) with the chain, the hits that may
come next and the score of DONE. The rule says what the hits are worth then, and what the end is worth. The
end competes with the hits like a passage. A chain also ends after ``hops.max`` hops, or where nothing more is
found. :func:`stop_rule` chooses the rule from the options; ``hops.stop`` names another one, which
:func:`register_stop` has added.

- ``never`` (:class:`Never`): for fixed hops; for ranked ones without ``hops.done`` or a learned DONE;
- ``log-odds`` (:class:`DoneByLogOdds`): where the score of DONE is its log-probability (generators);
- ``score`` (:class:`DoneByScore`): where DONE has a score like a passage (bi-encoders, sums with priors);
- ``onward`` (:class:`Onward`): where ``hops.onward`` holds a model (ranked); with a constant one where there
  is neither a model nor DONE nor a number of hops (:data:`~grls.retrieve.hops.options.UNLABELLED`).

DONE is one token or embedding that competes with whole passages, and a model may choose it too early or too
late. ``hops.done_bias`` b corrects it at every hop; ``grls tune`` finds it, and a negative one makes chains
longer. By score, b is added to the score of DONE. By log-odds, b shifts these. Let p be the probability of
DONE and Z = 1 - p + p exp(b). Then DONE gets the probability p exp(b) / Z, and the probability of every other
passage is divided by Z. So the probabilities of all chains still sum to one, if passages with equal tokens
are counted once. (A bonus for finished chains would not work: each has one DONE, and their order would not
change.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from grls.data.types import Hit
from grls.errors import ConfigError, Option
from grls.io.arguments import checked
from grls.io.recipes import load_plugins
from grls.models.base import Floats
from grls.retrieve.base import DecodesHops, DecodesPassages, Retriever, ScoresDoneAfter, has_log_probabilities
from grls.retrieve.hops.finders import OF_RANKS, LiveChain, RescoresHops, usual_temperature
from grls.retrieve.hops.options import BIAS, HopOptions

log = logging.getLogger(__name__)

_NATS = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0)
_SIMILARITIES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""The biases that are tried by default, in the unit of the scores."""

ENDS_BELOW = 0.1
"""With an onward model, a query whose chains have less probability than this takes no further hop."""

_LEAST, _MOST = math.log(1e-12), 50.0
"""No log-probability is lower, and no difference of scores (divided by T) greater."""


class Weighed(NamedTuple):
    """The worth of the next hop of a chain, and of the end, which compete.

    Chains take the best of the hits and the end. Ranked hops share out the probability of the chain among
    them, by a softmax over their scores; or the hits share ``continue_probability``, and the end has the
    rest.

    Attributes:
        scores: The score of each hit, in their order; empty: the chain goes on with none of them. None: the
            hits keep their scores.
        end_score: The score of the end; None: the chain does not end here.
        continue_probability: Of ranked hops, the probability that the chain goes on; None: scores decide it.
    """

    scores: Sequence[float] | None = None
    end_score: float | None = None
    continue_probability: float | None = None

    def shares(self, hits: Sequence[Hit], temperature: float) -> tuple[Floats, Floats]:
        """The probability that each hit comes next, and its log-probability among the hits alone.

        What the probabilities lack of 1 is the share of the end, which goes to no passage.
        """
        logits = np.array([hit.score for hit in hits], dtype=np.float64) / temperature
        among: Floats = logits - np.logaddexp.reduce(logits)
        if self.continue_probability is not None:
            return self.continue_probability * np.exp(among), among
        if self.scores is not None:
            logits = np.array(self.scores, dtype=np.float64) / temperature
        end = [] if self.end_score is None else [self.end_score / temperature]
        return np.exp(logits - np.logaddexp.reduce([*logits, *end])), among


class StopRule:
    """Says where chains end. A rule of yours derives from it; see ``docs/extend/stop-rule.md``.

    Attributes:
        bias: Its bias on DONE.
        biases: The biases that ``grls tune`` tries.
        least_bias: A bias with which DONE ends no chain.
        deep: Whether it needs the score of DONE where DONE is not among the best hits.
        least: A query whose chains have less probability than this takes no further hop (ranked).
    """

    bias: float = 0.0
    biases: Sequence[float] = (0.0,)
    least_bias: float = 0.0
    deep: bool = True
    least: float = 0.0

    @property
    def options(self) -> dict[str, Any]:
        """Its options of ``hops``, with their values."""
        return {BIAS: self.bias}

    def __str__(self) -> str:
        return f"bias on DONE {self.bias:+.2f}" if self.bias else ""

    @classmethod
    def of(cls, retriever: Retriever, hops: HopOptions) -> Self:
        """The rule for a retriever with these options.

        Raises:
            ConfigError: The rule does not work with them.
        """
        return cls()

    def may_end(self, hop: int) -> bool:
        """Whether DONE may come in this hop (from 0); if not, it is hidden, and the rule is not applied."""
        return hop > 0

    def weigh(self, chain: LiveChain, hits: Sequence[Hit], done: float | None) -> Weighed:
        """The worth of the next hop of a chain.

        Args:
            chain: The chain so far.
            hits: The passages that may come next, best first, with the scores of the retriever; may be empty.
            done: The score of DONE; None: the retriever has none, or DONE is not among the best.
        """
        raise NotImplementedError

    def biased(self, bias: float) -> StopRule:
        """The same rule with another bias on DONE, if it has one."""
        return self


def scores_done(retriever: Retriever) -> bool:
    """Whether a retriever scores DONE; true also where its training is not known."""
    if isinstance(retriever, DecodesPassages):
        return True
    return isinstance(retriever, ScoresDoneAfter) and retriever.learned_done is not False


def _knows_probability(retriever: Retriever, hops: HopOptions) -> bool:
    """Whether the score of DONE is its log-probability.

    It always is for a generator, and for a hybrid whose scores are normalized. For other hybrids it is in
    ranked hops of spans alone, whose scores are probabilities among the candidates.
    """
    ranks_spans = (
        hops.steps == "ranked"
        and isinstance(retriever, DecodesPassages)
        and retriever.generator.spans is not None
    )
    return has_log_probabilities(retriever) or ranks_spans


@dataclass(frozen=True)
class Never(StopRule):
    """Chains end after the number of hops, or where nothing more is found.

    Args:
        hides: A generator writes no DONE. Ranked hops find it and leave it out, so that their hits are those
            of hops that end with DONE.
    """

    hides: bool = True
    deep = False

    @classmethod
    def of(cls, retriever: Retriever, hops: HopOptions) -> Never:  # noqa: D102
        return cls(hops.steps != "ranked")

    def may_end(self, hop: int) -> bool:  # noqa: D102
        return hop > 0 and not self.hides

    def weigh(self, chain: LiveChain, hits: Sequence[Hit], done: float | None) -> Weighed:  # noqa: D102
        return Weighed()


@dataclass(frozen=True)
class DoneByLogOdds(StopRule):
    """DONE ends a chain by its probability; the bias shifts its log-odds (nats).

    A DONE that is not among the ``beams`` best of a hop is impossible there.
    """

    bias: float = 0.0
    biases = _NATS
    least_bias = -30.0

    @classmethod
    def of(cls, retriever: Retriever, hops: HopOptions) -> DoneByLogOdds:  # noqa: D102
        if not _knows_probability(retriever, hops):
            raise ConfigError(
                f"{Option('hops.stop', 'log-odds')}: the scores of a retriever of kind {retriever.kind!r} "
                f"are no log-probabilities of DONE: leave {Option('hops.stop')} out."
            )
        return cls(hops.done_bias)

    @property
    def deep(self) -> bool:  # type: ignore[override]  # noqa: D102
        return self.bias != 0

    def weigh(self, chain: LiveChain, hits: Sequence[Hit], done: float | None) -> Weighed:  # noqa: D102
        score = -math.inf if done is None else min(done, 0.0)
        rest_mass = -math.expm1(score)
        rest = math.log(rest_mass) if score < 0 else -math.inf
        normalizer = float(np.logaddexp(rest, score + self.bias)) if self.bias else 0.0
        end_mass = math.exp(min(max(score + self.bias, -700.0), 700.0))
        return Weighed(
            [hit.score - normalizer for hit in hits],
            None if done is None else done + self.bias - normalizer,
            rest_mass / (rest_mass + end_mass),
        )

    def biased(self, bias: float) -> StopRule:  # noqa: D102
        return replace(self, bias=bias)


@dataclass(frozen=True)
class DoneByScore(StopRule):
    """DONE ends a chain where it scores best; the bias is added to its score."""

    bias: float = 0.0
    biases: Sequence[float] = _SIMILARITIES
    least_bias = -1e9

    @classmethod
    def of(cls, retriever: Retriever, hops: HopOptions) -> DoneByScore:  # noqa: D102
        if not isinstance(retriever, ScoresDoneAfter):
            raise ConfigError(
                f"{retriever.kind} never writes DONE: choose {Option('hops.steps', 'fixed')}, or a single "
                "step."
            )
        if hops.steps == "dynamic" and retriever.learned_done is False:
            log.warning(
                "the model was not trained with DONE (an encoder as it is, or fit.done or fit.multistep "
                "false in training), so where a chain ends is chance: train it with both true and index it "
                "again, or choose %s.",
                Option("hops.steps", "fixed"),
            )
        first: Retriever = retriever
        while isinstance(first, RescoresHops):
            first = first.retriever
        return cls(hops.done_bias, _NATS if isinstance(first, DecodesHops) else _SIMILARITIES)

    def weigh(self, chain: LiveChain, hits: Sequence[Hit], done: float | None) -> Weighed:  # noqa: D102
        return Weighed(end_score=None if done is None else done + self.bias)

    def biased(self, bias: float) -> StopRule:  # noqa: D102
        return replace(self, bias=bias)


class SeenHop(NamedTuple):
    """A hop of one chain, for learning the onward model.

    Attributes:
        query: Index of its query.
        features: Its features (:data:`~grls.retrieve.hops.options.FEATURES`).
        shares: Passage id -> share among the hits, without DONE.
    """

    query: int
    features: tuple[float, ...]
    shares: dict[str, float]


@dataclass(frozen=True)
class Onward(StopRule):
    """The probability that one more hop finds a gold passage, from the scores of that hop.

    Ranked hops share out the probability of a chain among the hits of its next hop. If that hop finds no gold
    passage, the shares push passages of earlier hops down. Retrievers that learned DONE tell by it whether a
    chain is complete, and no more. The onward model works with any retriever: a logistic regression on
    features of a hop (:func:`hop_features`) gives the probability p that the hop finds a gold passage, and
    the hits share out p in the place of 1. Once the chains hold less than a tenth of the probability, no
    further hop follows. ``grls tune`` learns the model from development queries (:mod:`grls.tune.hops`).

    Args:
        model: A weight for each feature, then the bias; None: it is not learned yet, and every chain goes on.
        temperature: The temperature T of the softmax of a hop.
        scores_done: Whether the retriever scores DONE; a hop has no score where DONE is not among its best.
        seen: Filled with the hops, for learning the model; None: not filled.
    """

    model: Sequence[float] | None
    temperature: float
    scores_done: bool
    seen: list[SeenHop] | None = None

    @classmethod
    def of(cls, retriever: Retriever, hops: HopOptions, seen: list[SeenHop] | None = None) -> Onward:  # noqa: D102
        if hops.onward is None and seen is None:
            raise ConfigError(f"{Option('hops.stop', 'onward')}: there is no model; `grls tune` learns it.")
        temperature = hops.temperature or usual_temperature(retriever) or OF_RANKS
        return cls(hops.onward, temperature, scores_done(retriever), seen)

    @property
    def least(self) -> float:  # type: ignore[override]  # noqa: D102
        return 0.0 if self.model is None else ENDS_BELOW

    def weigh(self, chain: LiveChain, hits: Sequence[Hit], done: float | None) -> Weighed:  # noqa: D102
        if not hits:
            return Weighed()
        logits = np.array([hit.score for hit in hits], dtype=np.float64) / self.temperature
        unreached = float(logits.min()) if self.scores_done else None
        scaled = unreached if done is None else done / self.temperature
        features = hop_features(logits, scaled, chain.first / self.temperature, chain.among)
        if self.seen is not None:
            shares = np.exp(logits - np.logaddexp.reduce(logits)).tolist()
            ids = [hit.id for hit in hits]
            self.seen.append(SeenHop(chain.query, features, dict(zip(ids, shares, strict=True))))
        return Weighed(
            continue_probability=1.0 if self.model is None else onward_probability(self.model, features)
        )


def hop_features(
    logits: Floats, done: float | None, first: float, among: Sequence[float]
) -> tuple[float, ...]:
    """The features of a hop (:data:`~grls.retrieve.hops.options.FEATURES`).

    Args:
        logits: ``[n]`` scores of the hits divided by T; at least one.
        done: The score of DONE divided by T; None: the retriever has no DONE.
        first: The best score of the query's first hop, divided by T.
        among: For each passage of the chain its log-probability among the hits of its hop; at least one.
    """
    log_shares = logits - np.logaddexp.reduce(logits)
    best = float(logits.max())
    return (
        math.log(len(among)),
        0.0 if done is None else _within(done - best),
        float(-(np.exp(log_shares) * log_shares).sum()),
        _within(best - first),
        max(among[-1], _LEAST),
        max(math.fsum(among), _LEAST),
    )


def onward_probability(model: Sequence[float], features: Sequence[float]) -> float:
    """The probability that a hop finds a gold passage, in (0, 1); ``model`` ends with the bias."""
    *weights, bias = model
    logit = math.fsum([bias, *(w * x for w, x in zip(weights, features, strict=True))])
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def _within(difference: float) -> float:
    return min(max(difference, -_MOST), _MOST)


RULES: dict[str, type[StopRule]] = {
    "never": Never,
    "log-odds": DoneByLogOdds,
    "score": DoneByScore,
    "onward": Onward,
}
"""Name -> rule."""


@checked
def register_stop(name: str, rule: type[StopRule]) -> None:
    """Add a stop rule; ``hops.stop`` then knows its name, which no other rule may have."""
    if RULES.get(name, rule).__qualname__ != rule.__qualname__:  # a notebook's cell may run twice
        raise ConfigError(f"the stop rule {name!r} is there already; choose another name.")
    RULES[name] = rule


def stop_of_hop(retriever: Retriever, hops: HopOptions) -> StopRule:
    """The rule for a hop alone, of a retriever of single steps: DONE comes only where chains end with it."""
    return stop_rule(retriever, hops) if hops.steps == "dynamic" else Never()


def stop_rule(retriever: Retriever, hops: HopOptions) -> StopRule:
    """The rule of ``hops.stop``, or that of the other options; ``steps`` is not ``single``."""
    name = hops.stop
    if name is None:
        ends = hops.steps == "dynamic" or (hops.done and scores_done(retriever))
        if hops.onward is not None:
            name = "onward"
        elif hops.steps == "fixed" or not ends:
            name = "never"
        else:
            name = "log-odds" if _knows_probability(retriever, hops) else "score"
    if name not in RULES:
        load_plugins()
    if name not in RULES:
        raise ConfigError(
            f"{Option('hops.stop')}: no stop rule is called {name!r}; known are {', '.join(sorted(RULES))}. "
            "Name the module that registers it in GRLS_PLUGINS."
        )
    return RULES[name].of(retriever, hops)
