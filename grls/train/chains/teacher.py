"""A retriever as the teacher of a generator: its scores are distilled into the targets of hops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from grls.data.corpus import Corpus
from grls.data.types import Hit, Query
from grls.errors import MismatchError, at_least, bounded
from grls.retrieve.base import ranking_fingerprint
from grls.retrieve.corpora import remedy_of_other_corpus
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.finders import found_after
from grls.retrieve.hybrid.priors import RetrieverPrior
from grls.retrieve.registry import Opening, load_named
from grls.train.chains.examples import HopExample

_REMEMBERED = 20_000
"""Hops whose opinions are cached, about 10 KB each; a chain in the order of its file is scored once."""


def _key(hop: HopExample) -> tuple[str, tuple[int, ...]]:
    return hop.query, hop.evidence


class RetrieverTeacher:
    """The softmax over the best passages of a retriever that scores the whole corpus.

    Args:
        folder: A retriever folder (of a bi-encoder, a sparse or a multi-vector encoder), or ``bm25``.
        corpus: The corpus of the generator; the retriever must have the same.
        temperature: Temperature of the softmax, by which scores are divided; None: 0.05 for a bi-encoder, and
            for other kinds their default temperature as priors (2 for BM25).
        passages: Number of passages in an opinion.
        device: Device of the teacher's encoder.

    Raises:
        ConfigError: A number is not positive, or the retriever cannot score the whole corpus.
        MismatchError: The retriever is over another corpus.
    """

    def __init__(
        self,
        folder: str,
        corpus: Corpus,
        temperature: float | None = None,
        passages: int = 100,
        device: str = "auto",
    ):
        bounded("(0, inf)", "data.", teacher_temperature=temperature)
        at_least(1, "data.", teacher_passages=passages)
        how = Opening(device, search=SearchOptions(truncate_queries=True))
        self.retriever = load_named(folder, corpus, how)
        scoring = RetrieverPrior(self.retriever, folder)
        if self.retriever.corpus.fingerprint != corpus.fingerprint:
            raise MismatchError(
                f"{folder} is over another corpus than the training data: "
                f"{remedy_of_other_corpus(self.retriever.corpus, corpus)}."
            )
        self.corpus = corpus
        usual = getattr(self.retriever, "teaching_temperature", scoring.temperature)
        self.temperature = usual if temperature is None else temperature
        self.passages = passages
        self._known: dict[tuple[str, tuple[int, ...]], Mapping[int, float]] = {}

    def fingerprint(self) -> str:
        """What its rankings depend on; a resumed run must have the same."""
        return ranking_fingerprint(self.retriever)

    def opinions(self, hops: Sequence[HopExample]) -> list[Mapping[int, float]]:
        """Probabilities of passages by number, for each hop; opinions are cached."""
        if len(self._known) > _REMEMBERED:
            self._known = {}
        new = list({_key(hop): hop for hop in hops if _key(hop) not in self._known}.values())
        self._known |= dict(zip(map(_key, new), self._ask(new), strict=True))
        return [self._known[_key(hop)] for hop in hops]

    def _ask(self, hops: Sequence[HopExample]) -> list[Mapping[int, float]]:
        if not hops:
            return []
        wanted = sorted({number for hop in hops for number in hop.evidence})
        known = dict(zip(wanted, self.corpus.passages(wanted), strict=True))
        rankings = found_after(
            self.retriever,
            [Query(str(n), hop.query) for n, hop in enumerate(hops)],
            [[known[number] for number in hop.evidence] for hop in hops],
            min(self.passages + max(len(hop.evidence) for hop in hops), len(self.corpus)),
        )
        return [self._softmax(ranking.hits, hop) for ranking, hop in zip(rankings, hops, strict=True)]

    def _softmax(self, hits: Sequence[Hit], hop: HopExample) -> Mapping[int, float]:
        numbers = self.corpus.numbers([hit.id for hit in hits])
        kept = [
            (number, hit.score)
            for number, hit in zip(numbers, hits, strict=True)
            if number is not None and number not in hop.evidence
        ][: self.passages]
        if not kept:
            return {}
        logits = np.array([score for _, score in kept]) / self.temperature
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        return {number: float(value) for (number, _), value in zip(kept, weights, strict=True)}
