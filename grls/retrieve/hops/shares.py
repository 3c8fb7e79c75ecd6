"""The probability of the hits of a hop: a softmax, and what DONE or the onward model leaves to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.types import Hit
from grls.models.base import Floats
from grls.retrieve.hops.onward import SeenHop, hop_features, onward_probability
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.ranked_chains import RankedChain


@dataclass
class HopShares:
    """Shares out the probability of a chain among the hits of its next hop.

    Args:
        hops: The options ``done_bias`` and ``onward``.
        temperature: Temperature T of the softmax over the scores.
        ends: Whether DONE ends chains; without effect where there is an onward model.
        has_done: Whether the retriever scores DONE; a hop has no score where DONE is not among its best.
        knows_done: Whether the score of DONE is its log-probability; else it is a score as those of the hits.
        seen: Filled with what the hops of chains show, and DONE ends none then; None: not kept.
    """

    hops: HopOptions
    temperature: float
    ends: bool
    has_done: bool
    knows_done: bool
    seen: list[SeenHop] | None = None

    def of(self, chain: RankedChain, hits: Sequence[Hit], done: float | None) -> tuple[Floats, Floats]:
        """``[n]`` probabilities of the hits, and the logs of their shares among the hits.

        With the probability of DONE, or of a hop that finds nothing, the probabilities sum to one.

        Args:
            chain: The chain.
            hits: The hits of its next hop, best first; at least one.
            done: The score of DONE; None: it has none.
        """
        logits = np.array([hit.score for hit in hits], dtype=np.float64) / self.temperature
        every = np.logaddexp.reduce(logits)
        among: Floats = logits - every
        left = 1.0
        if chain.ids and (self.hops.onward is not None or self.seen is not None):
            left = self._onward(chain, hits, logits, done)
        elif chain.ids and self.ends and done is not None:
            if self.knows_done:
                left = _left(done, self.hops.done_bias)
            else:
                every = np.logaddexp(every, (done + self.hops.done_bias) / self.temperature)
        return left * np.exp(logits - every), among

    def _onward(self, chain: RankedChain, hits: Sequence[Hit], logits: Floats, done: float | None) -> float:
        """The probability that the hop finds a gold passage; 1 where that is yet to be learned."""
        unreached = float(logits.min()) if self.has_done else None
        scaled = unreached if done is None else done / self.temperature
        features = hop_features(logits, scaled, chain.first / self.temperature, chain.among)
        if self.seen is not None:
            shares = np.exp(logits - np.logaddexp.reduce(logits)).tolist()
            ids = [hit.id for hit in hits]
            self.seen.append(SeenHop(chain.query, features, dict(zip(ids, shares, strict=True))))
        return 1.0 if self.hops.onward is None else onward_probability(self.hops.onward, features)


def _left(done: float, bias: float) -> float:
    """The probability that DONE leaves to the passages, with a bias on its log-odds.

    Args:
        done: Its log-probability (nats).
        bias: The bias (nats).
    """
    ends, goes_on = math.exp(min(done, 0.0) + bias), -math.expm1(min(done, 0.0))
    return goes_on / (goes_on + ends)
