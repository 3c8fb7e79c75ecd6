"""Links as a prior of hops: one passage names another.

With p(d | S) the probability that passage d comes after the passages S (a softmax over the hits of the hop),
and the names m of weight w(m) in the question and in the passages of S,

    p'(d | S) = (1 - λ) p(d | S) + λ sum over m of w(m) / W p(d | S, d bears m),    W = sum over m of w(m),

where λ is a share (``named`` in the first hop, ``linked`` after it) times the largest w(m). So without a name
nothing changes. Passages that bear a name and are no hits are proposed, too; they share what it gives if no
hit bears it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grls.data.filters import Filter
from grls.data.links import Naming
from grls.data.types import FullHit, Hit, NameLink
from grls.retrieve.base import Retriever

_MOST_NAMES = 100
"""Names of a hop that are looked at, at most: the rarest."""
_MOST_PASSAGES = 20
"""Passages that are proposed for a name that no hit bears, at most."""


@dataclass(frozen=True)
class LinkPrior:
    """Shares out a part of the probability of hops among the passages that are named.

    ``named`` is λ of the first hop, ``linked`` that of later ones. Titles are names, and so are the texts of
    the metadata ``fields``. ``temperature`` is that of the softmax over the scores of a hop.
    """

    retriever: Retriever
    temperature: float
    named: float
    linked: float
    fields: tuple[str, ...] = ()

    def weighed(
        self, query: str, passages: Sequence[int], hits: Sequence[Hit], allow: Filter | None
    ) -> list[Hit]:
        """The hits that may come after passages, with named passages and their links; best first.

        Scores divided by the temperature have the same log-sum-exp as before.
        """
        corpus = self.retriever.corpus
        names = self.names(query, passages)
        known = corpus.numbers([hit.id for hit in hits])
        if not names or None in known:  # the search says which passage is not in the corpus
            return list(hits)
        numbers = np.array(known, dtype=np.int64)
        logits = np.array([hit.score for hit in hits], dtype=np.float64) / self.temperature
        borne = []  # weight of a name, its bearers, the logarithms of their parts
        led: dict[int, list[tuple[str, int | None]]] = {}
        for name, holders in names:
            among = np.isin(numbers, name.passages)
            bearers = numbers[among] if among.any() else self._proposed(name, passages, allow)
            own = logits[among] if among.any() else np.zeros(len(bearers))
            if len(bearers):
                borne.append((name.weight, bearers.tolist(), (own - np.logaddexp.reduce(own)).tolist()))
            for bearer in bearers.tolist():
                led.setdefault(bearer, []).extend((name.words, holder) for holder in holders)
        share = (self.linked if passages else self.named) * borne[0][0] if borne else 0.0
        if not share:
            return list(hits)
        total, of_others = 0.0, -math.inf
        if hits:
            total = float(np.logaddexp.reduce(logits))
            of_others = math.log1p(-share) if share < 1 else -math.inf
        else:
            share = 1.0
        mixed = dict(zip(numbers.tolist(), (of_others + logits - total).tolist(), strict=True))
        whole = sum(weight for weight, *_ in borne)
        for weight, bearers, parts in borne:
            for number, part in zip(bearers, parts, strict=True):
                named = math.log(share * weight / whole) + part
                mixed[number] = float(np.logaddexp(mixed.get(number, -math.inf), named))
        ids = dict(zip([*mixed, *passages], corpus.ids([*mixed, *passages]), strict=True))
        weighed = []
        for number, log in mixed.items():
            if log > -math.inf:
                hit = Hit(ids[number], self.temperature * (log + total))
                links = [
                    NameLink(words, None if n is None else ids[n])
                    for words, n in dict.fromkeys(led.get(number, ()))
                ]
                weighed.append(FullHit.of(hit, links=links) if links else hit)
        return sorted(weighed, key=lambda hit: -hit.score)

    def names(self, query: str, passages: Sequence[int]) -> list[tuple[Naming, list[int | None]]]:
        """The rarest names in the question and in passages, each with where it is (None: the question)."""
        links = self.retriever.corpus.links(self.fields)
        named: dict[tuple[str, bytes], tuple[Naming, list[int | None]]] = {}
        for holder in (None, *passages):
            for name in links.in_text(query) if holder is None else links.of(holder):
                named.setdefault((name.words, name.passages.tobytes()), (name, []))[1].append(holder)
        return sorted(named.values(), key=lambda one: -one[0].weight)[:_MOST_NAMES]

    def _proposed(self, name: Naming, passages: Sequence[int], allow: Filter | None) -> npt.NDArray[Any]:
        """The passages of a name that no hit bears, if they may be found."""
        bearers = np.setdiff1d(name.passages, passages)
        if allow is not None:
            allowed = allow.numbers(self.retriever.corpus)  # ascending, and perhaps very many
            before = np.searchsorted(allowed, bearers)
            bearers = bearers[np.searchsorted(allowed, bearers, side="right") > before]
        return bearers[:_MOST_PASSAGES]
