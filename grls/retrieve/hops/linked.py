"""Links as a prior of hops: one passage names another.

With p(d | S) the probability that passage d comes after the passages S (a softmax over the hits of the hop),
and the names m of weight w(m) in the question and in the passages of S,

    p'(d | S) = (1 - λ) p(d | S) + λ sum over m of w(m) / W p(d | S, d bears m),    W = sum over m of w(m),

where λ is a share (``named`` in the first hop, ``linked`` after it) times the largest w(m). So without a name
nothing changes. Passages that bear a name and are no hits are proposed, too; they share what it gives if no
hit bears it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.filters import Filter
from grls.data.types import Hit
from grls.retrieve.base import DecodesPassages, Retriever

_MOST_NAMES = 100
"""Names of a hop that are looked at, at most: the rarest."""
_MOST_PASSAGES = 20
"""Passages that are proposed for a name that no hit bears, at most."""


@dataclass(frozen=True)
class LinkPrior:
    """Shares out a part of the probability of hops among the passages that are named.

    Args:
        retriever: The retriever of the hops.
        temperature: Temperature of the softmax over the scores of a hop.
        named: λ of the first hop, from 0 to 1.
        linked: λ of later hops.
    """

    retriever: Retriever
    temperature: float
    named: float
    linked: float

    def weighed(
        self, query: str, passages: Sequence[int], hits: Sequence[Hit], allow: Filter | None
    ) -> list[Hit]:
        """The hits that may come after passages, with those that are named; best first.

        Scores divided by the temperature have the same log-sum-exp as before.
        """
        retriever, corpus = self.retriever, self.retriever.corpus
        names = corpus.links.in_text(query)
        names += [naming for number in passages for naming in corpus.links.of(number)]
        names = sorted(names, key=lambda naming: -naming.weight)[:_MOST_NAMES]
        if not names:
            return list(hits)
        removed = retriever.generator.removed if isinstance(retriever, DecodesPassages) else ()
        known = corpus.numbers([hit.id for hit in hits])
        if None in known:  # the search says which
            return list(hits)
        numbers = np.array(known, dtype=np.int64)
        logits = np.array([hit.score for hit in hits], dtype=np.float64) / self.temperature
        total = float(np.logaddexp.reduce(logits)) if hits else 0.0
        named: dict[int, float] = {}
        every, heaviest = 0.0, 0.0
        for naming in names:
            among = np.isin(numbers, naming.passages)
            if among.any():
                bearers = numbers[among]
                parts = np.exp(logits[among] - np.logaddexp.reduce(logits[among]))
            else:
                bearers = np.setdiff1d(naming.passages, [*passages, *removed])
                if allow is not None:
                    bearers = np.intersect1d(bearers, allow.numbers(corpus))
                bearers = bearers[:_MOST_PASSAGES]
                parts = np.full(len(bearers), 1 / max(len(bearers), 1))
            if len(bearers):
                every, heaviest = every + naming.weight, heaviest or naming.weight
            for number, part in zip(bearers.tolist(), parts.tolist(), strict=True):
                named[number] = named.get(number, 0.0) + naming.weight * part
        if not named:
            return list(hits)
        share = (self.linked if passages else self.named) * heaviest if hits else 1.0
        mixed = dict(zip(numbers.tolist(), ((1 - share) * np.exp(logits - total)).tolist(), strict=True))
        for number, part in named.items():
            mixed[number] = mixed.get(number, 0.0) + share * part / every
        ids = corpus.ids([*mixed])
        weighed = [
            Hit(name, self.temperature * (float(np.log(value)) + total))
            for name, value in zip(ids, mixed.values(), strict=True)
            if value > 0
        ]
        return sorted(weighed, key=lambda hit: -hit.score)
