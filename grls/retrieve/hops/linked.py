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

from grls.data.corpus import Corpus
from grls.data.filters import Filter
from grls.data.types import Hit

_MOST = 20
"""Passages that are proposed for a name that no hit bears, at most."""


@dataclass(frozen=True)
class LinkPrior:
    """Shares out a part of the probability of hops among the passages that are named.

    Args:
        corpus: The passages.
        temperature: Temperature of the softmax over the scores of a hop.
        named: λ of the first hop, from 0 to 1.
        linked: λ of later hops.
    """

    corpus: Corpus
    temperature: float
    named: float
    linked: float

    def weighed(
        self, query: str, passages: Sequence[int], hits: Sequence[Hit], allow: Filter | None
    ) -> list[Hit]:
        """The hits that may come after passages, with those that are named; best first.

        Scores divided by the temperature have the same log-sum-exp as before.
        """
        links = self.corpus.links
        names = links.in_text(query)
        names += [naming for number in passages for naming in links.of(number)]
        allowed = None if allow is None else allow.numbers(self.corpus)
        bearers = []
        for naming in names:
            numbers = np.setdiff1d(naming.passages, passages)
            if allowed is not None:
                numbers = np.intersect1d(numbers, allowed)
            if len(numbers):
                bearers.append((naming.weight, self.corpus.ids(numbers)))
        if not bearers:
            return list(hits)
        logits = {hit.id: hit.score / self.temperature for hit in hits}
        total = float(np.logaddexp.reduce([*logits.values()])) if logits else 0.0
        every = sum(weight for weight, _ in bearers)
        share = (self.linked if passages else self.named) * max(weight for weight, _ in bearers)
        if not logits:
            share = 1.0
        mixed = {name: (1 - share) * float(np.exp(logit - total)) for name, logit in logits.items()}
        for weight, ids in bearers:
            found = [name for name in ids if name in logits]
            if found:
                own = np.array([logits[name] for name in found])
                parts = np.exp(own - np.logaddexp.reduce(own)).tolist()
            else:
                found = ids[:_MOST]
                parts = [1 / len(found)] * len(found)
            for name, part in zip(found, parts, strict=True):
                mixed[name] = mixed.get(name, 0.0) + share * weight / every * part
        weighed = [
            Hit(name, self.temperature * (float(np.log(value)) + total))
            for name, value in mixed.items()
            if value > 0
        ]
        return sorted(weighed, key=lambda hit: -hit.score)
