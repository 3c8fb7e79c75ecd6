"""Hybrid decoding: a generator that looks ahead with other retrievers while it writes.

The scores of a bi-encoder or BM25 become priors of the beam search (:mod:`grls.decode.prior`): a prefix gains
by the scores of the passages under it. So passages that the priors favour do not fall out of the beam before
they are unique. There is one pass, and no second list to fuse. The score of a passage is
log p(passage | query) + sum over priors of w_i log P_i(passage | query). It ranks passages but is not a
log-probability, with two exceptions: among the candidates of generators that write spans
(:mod:`grls.retrieve.generative.span_scores`), and if scores are normalized at every token, for a generator
that was trained with its priors (the product of experts of :mod:`grls.decode.prior`).

The search treats DONE as a passage, but retrievers do not score DONE, except bi-encoders trained with it. So
DONE gets a constant share of every prior. Chains of normalized scores:
:class:`grls.retrieve.hops.combine.Sum`; others: :class:`grls.retrieve.hops.combine.Mean`, which end by the
score of DONE (:mod:`grls.retrieve.hops.stop`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter, one_each
from grls.data.types import Hit, Query
from grls.decode.beam import ScoredPassage
from grls.decode.prior import Prior
from grls.errors import ConfigError, Option
from grls.io.arguments import options
from grls.retrieve.base import ChainToContinue, Description, Evidence, HopHits, NextHop, Plan, PlanSource
from grls.retrieve.generative.plans import run_plans
from grls.retrieve.generative.retriever import GenerativeRetriever, as_generator
from grls.retrieve.hops.finders import hits_and_done
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec
from grls.retrieve.hybrid.priors import WeightedSource, check_priors, prior_of, scoring
from grls.retrieve.queries import evidence_numbers, queries_of
from grls.retrieve.registry import Opening, open_member
from grls.retrieve.spec import MANIFEST, check_fields, from_fields, from_record


@options()
class _Priors:
    priors: list[dict[str, Any]]


class HybridRetriever:
    """A generative retriever with priors over the same corpus.

    Args:
        generator: The generator.
        priors: The sources that look ahead; those of weight 0 have no effect.
        normalized: Normalize the sums of scores at every token, for a generator that was trained with these
            priors; false: they are sums of log-probabilities.
    """

    kind = "hybrid"
    tuned_by = ("grls.tune.priors:PRIORS", "grls.tune.weights:RESCORING")
    learned_done: bool | None = None  # not known of a generator
    folders = ("generator", "priors.*.retriever")

    def __init__(
        self,
        generator: GenerativeRetriever,
        priors: Sequence[WeightedSource],
        normalized: bool = False,
    ):
        check_priors(priors, generator.corpus)
        self.generator = generator
        self.priors = tuple(priors)
        self.scores_are_log_probabilities = self.normalized = normalized

    def run_plans(self, source: PlanSource) -> None:
        """For a server: run the retrievals of a source in one search, which others may join."""
        run_plans(self, source)

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Self:
        """Priors of folders are opened in float32; ``bm25`` is over the generator's corpus."""
        file = folder / MANIFEST
        check_fields(spec, ("generator", "priors"), ("normalized",), file)
        options = from_fields(PriorOptions, spec, file, "hybrid")
        member = open_member(spec["generator"], folder, "generator", replace(opening, hop_by_hop=False))
        generator = as_generator(member, f"{file}: priors look ahead for a generator")
        named = from_fields(_Priors, spec, file, "hybrid").priors
        specs = [from_record(PriorSpec, record, file, f"priors[{n}]") for n, record in enumerate(named)]
        return cls.over(generator, specs, options, folder, opening)

    @classmethod
    def over(
        cls,
        generator: GenerativeRetriever,
        priors: Sequence[PriorSpec],
        options: PriorOptions,
        folder: str | Path = ".",
        opening: Opening | None = None,
    ) -> Self:
        """Add priors to a generator, opened in float32; their paths are relative to ``folder``."""
        if not priors:
            raise ConfigError(f"{Option('priors')} is empty: name a retriever that looks ahead.")
        opening = opening or Opening()
        search = replace(opening.search or generator.options, rescore=0, compile=False)
        opening = replace(
            opening, precision="float32", search=search, corpus=generator.corpus, hop_by_hop=False
        )
        weighed = []
        for number, prior in enumerate(priors):
            member = open_member(prior.retriever, Path(folder), f"priors[{number}]", opening)
            named = prior.retriever
            name = Path(named).name if isinstance(named, str) else getattr(named, "name", member.kind)
            weighed.append(WeightedSource(scoring(member, name), prior.weight, prior.temperature, name))
        return cls(generator, weighed, options.normalized)

    @property
    def corpus(self) -> Corpus:
        return self.generator.corpus

    @property
    def done(self) -> int:
        return self.generator.done

    @property
    def widest(self) -> int:
        return self.generator.widest

    def describe(self) -> Description:
        described = self.generator.describe()
        options = {
            "prior": [prior.name for prior in self.priors],
            "prior_weight": [prior.weight for prior in self.priors],
            "prior_temperature": [prior.divisor for prior in self.priors],
            "prior_normalized": self.normalized,
        }
        mode, _, rescored = described.score_mode.partition(",")
        mode = f"{mode} with priors{',' + rescored if rescored else ''}"
        return Description("hybrid", mode, {**described.options, **options}, stages=described.stages)

    def fingerprint(self) -> str:
        parts = [self.generator.fingerprint(), *(prior.source.fingerprint() for prior in self.priors)]
        parts += [json.dumps(self.describe().options)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def untuned(self) -> str:
        sources = [prior.source.fingerprint() for prior in self.priors]
        return " ".join([self.generator.fingerprint(), *dict.fromkeys(sources)])

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        filters = one_each(allow, len(queries))

        def find(live: Sequence[ChainToContinue], hop: int, k: int) -> list[list[ScoredPassage]]:
            return self.search(
                [queries[chain.query] for chain in live],
                [self.corpus.passages(chain.passages) for chain in live],
                k,
                [chain.hidden for chain in live],
                [filters[chain.query] for chain in live],
            )

        return find

    @property
    def runner(self) -> Self | None:
        return None if self.generator.runner is None else self

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        return self.generator.plan(query, k, allow)

    @property
    def stages(self) -> tuple[str, ...]:
        return self.generator.stages

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them.

        Priors are over the allowed passages as well.
        """
        queries = queries_of(queries)
        hidden = [[self.generator.done]] * len(queries)
        rankings = self.search(queries, [()] * len(queries), k, hidden, allow)
        return [self.generator.hits(ranking) for ranking in rankings]

    def candidates(
        self, queries: Sequence[Query], k: int, evidence: Evidence = ()
    ) -> list[list[ScoredPassage]]:
        """The passages that :meth:`retrieve` ranks, best first: k, or all candidates if spans are written.

        With evidence, the passages of the next hop, without those of the evidence. Scores of a generator that
        writes spans are T times those of :mod:`grls.retrieve.generative.span_scores`, plus those of the
        priors, without normalization over the candidates.
        """
        generator, before = self.generator, evidence or [()] * len(queries)
        hidden = [[generator.done, *evidence_numbers(self.corpus, passages)] for passages in before]
        if generator.spans is None:
            return self.search(queries, before, k, hidden)
        searched = generator.frontiers(*self._arguments(queries, before, k, hidden))
        scores = [ranking.scores(frontier) for frontier, ranking in searched]
        totals = [generator.options.span_temperature * scored.mean + scored.prior for scored in scores]
        return [
            [
                ScoredPassage(int(scored.passages[n]), float(total[n]))
                for n in np.lexsort((-total, scored.tiers))
            ]
            for scored, total in zip(scores, totals, strict=True)
        ]

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Evidence, k: int, allow: Allow = None
    ) -> list[HopHits]:
        """The top-k passages given evidence, which generator and priors read, and the score of DONE.

        DONE competes with the passages. If it is not among the k + 1 best (or not in the beam), its score is
        None. The filter does not apply to DONE.
        """
        rankings = self.search(queries, evidence, k + 1, [[]] * len(queries), allow)
        return hits_and_done(rankings, self, k)

    def search(
        self,
        queries: Sequence[Query],
        evidence: Evidence,
        k: int,
        hidden: Sequence[Sequence[int]],
        allow: Allow = None,
    ) -> list[list[ScoredPassage]]:
        """The k best passages but those in ``hidden``, DONE included; the filter does not apply to DONE."""
        return self.generator.search(*self._arguments(queries, evidence, k, hidden, allow))

    def priors_of(self, queries: Sequence[Query], evidence: Evidence) -> Prior:
        return prior_of(self.priors, queries, evidence, self.generator.done, self.normalized)

    def _arguments(
        self,
        queries: Sequence[Query],
        evidence: Evidence,
        k: int,
        hidden: Sequence[Sequence[int]],
        allow: Allow = None,
    ) -> tuple[Any, ...]:
        codec = self.generator.codec
        tokens = self.generator.encode(queries)
        before = [codec.excerpts(query.text, read) for query, read in zip(queries, evidence, strict=True)]
        inputs = [codec.model_input(*pair) for pair in zip(tokens, before, strict=True)]
        subsets = self.generator.subsets(queries, allow)
        return inputs, k, hidden, "retrieve", subsets, self.priors_of(queries, evidence)
