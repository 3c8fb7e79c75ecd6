"""Hybrid decoding: a generator that looks ahead with other retrievers while it writes.

Legend: Q queries, N passages, W hits a hop.

The scores of a bi-encoder or of BM25 become priors of the beam search (:mod:`grls.decode.prior`): a prefix is
worth the more, the more they say for the passages beneath it, so that passages they favour do not fall out of
the beam before they can be told apart. One pass, and no second list to fuse. A score is
log p(passage | query) + sum over priors of w_i log P_i(passage | query): what ranks, and no log-probability
(but among the candidates, where spans are written: :mod:`grls.retrieve.generative.span_scores`), unless it
is normalized at every token, for a generator that has learned beside its priors (the product of experts of
:mod:`grls.decode.prior`); chains of those are :mod:`grls.retrieve.hops.multistep`'s.

DONE is a passage to the search, and retrievers say nothing of it (but for bi-encoders trained with it), so it
gets a constant share of every prior. Where chains end is tuned by ``done_bias`` of
:class:`~grls.retrieve.hops.appending.AppendingMultistep`, which makes this a multi-step retriever.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from grls.data.corpus import Corpus
from grls.data.filters import Allow, one_each, resolved
from grls.data.types import Hit, Passage, Query
from grls.decode import ScoredPassage
from grls.decode.prior import Prior
from grls.errors import ConfigError, DataError
from grls.retrieve.base import Description, HopHits, NextHop, Under
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.options import DONE_SHARE, PriorOptions, PriorSpec
from grls.retrieve.hybrid.priors import EmptyPromptPrior, RetrieverPrior
from grls.retrieve.hybrid.weighted import WeightedSource, check_priors, prior_of
from grls.retrieve.queries import check_counts, queries_of
from grls.retrieve.registry import Opening, as_generator, open_member
from grls.retrieve.spec import MANIFEST, check_fields, made, named_from, recorded, write_spec

_OPTIONS = ("empty_weight", "done_share", "normalized")


@dataclass(frozen=True)
class _Priors:
    priors: list[dict[str, Any]]


class HybridRetriever:
    """A generative retriever with priors.

    Args:
        generator: The generator.
        priors: The sources that look ahead; those of weight 0 are not asked.
        done_share: Log of DONE's share of every prior that does not know it (nats, below 0).
        normalized: The sums of scores are normalized at every token, as of a generator that was trained
            beside these priors; else they are sums of log-probabilities.

    Raises:
        ConfigError: A weight, temperature or share cannot be used, or the generator is set to compile.
        MismatchError: A prior is over another corpus.
    """

    kind = "hybrid"
    done_biases = GenerativeRetriever.done_biases

    def __init__(
        self,
        generator: GenerativeRetriever,
        priors: Sequence[WeightedSource],
        done_share: float = DONE_SHARE,
        normalized: bool = False,
    ):
        if generator.options.compile:
            raise ConfigError("the compiled search takes no priors: leave compile out, or the priors.")
        check_priors(priors, generator.corpus, done_share)
        self.generator = generator
        self.priors = tuple(priors)
        self.done_share = done_share
        self.normalized = normalized

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder; see :func:`grls.retrieve.registry.load`.

        Priors of folders are opened in float32; ``bm25`` is over the generator's corpus.

        Raises:
            DataError: A field cannot be.
            ConfigError: The generator is none, or a prior cannot be used.
        """
        file = folder / MANIFEST
        check_fields(spec, ("generator", "priors"), ("empty_weight", "done_share", "normalized"), file)
        options = made(PriorOptions, {n: spec[n] for n in _OPTIONS if n in spec}, file, "hybrid")
        plain = replace(how, hop_by_hop=False)
        opened = open_member(spec["generator"], folder, "generator", plain)
        generator = as_generator(opened, f"{file}: priors look ahead for a generator")
        named = made(_Priors, {"priors": spec["priors"]}, file, "hybrid").priors
        specs = [made(PriorSpec, one, file, f"priors[{n}]") for n, one in enumerate(named)]
        if options.normalized and not specs:
            raise DataError(
                "normalized: it is for a generator that was trained beside priors, and there is no prior: "
                "name them in priors, or leave normalized out.",
                file,
            )
        return cls.over(generator, specs, options, folder, how)

    @classmethod
    def over(
        cls,
        generator: GenerativeRetriever,
        priors: Sequence[PriorSpec],
        options: PriorOptions,
        folder: str | Path = ".",
        how: Opening | None = None,
    ) -> Self:
        """A generator with priors as they are named.

        Args:
            generator: The generator.
            priors: The retrievers that look ahead.
            options: How priors are taken together.
            folder: The folder that their paths are relative to.
            how: How folders are opened; the precision is the generator's alone.
        """
        search = how.search if how is not None and how.search is not None else generator.options
        search = replace(search, rescore=0, compile=False)
        how = replace(how or Opening(), precision="float32", search=search, corpus=generator.corpus)
        how = replace(how, hop_by_hop=False)
        weighed = []
        for number, prior in enumerate(priors):
            opened = open_member(prior.retriever, Path(folder), f"priors[{number}]", how)
            named = prior.retriever if isinstance(prior.retriever, str) else opened.kind
            weighed.append(WeightedSource(RetrieverPrior(opened, named), prior.weight, prior.temperature))
        if options.empty_weight:
            weighed.append(WeightedSource(EmptyPromptPrior(generator), -options.empty_weight))
        return cls(generator, weighed, options.done_share, options.normalized)

    def save_pretrained(
        self,
        folder: str | Path,
        generator: str | Path | dict[str, Any],
        priors: Sequence[str | Path | dict[str, Any]],
    ) -> None:
        """Write a folder that names those of the members, or embeds their specifications.

        Args:
            folder: Where.
            generator: The generator's.
            priors: One each, but for that of an empty prompt.

        Raises:
            ConfigError: They are not as many, or the folder exists and holds something else.
            WriteError: The disk is full or the place cannot be written.
        """
        own = self.priors[:-1] if self._takes_back else self.priors
        if len(own) != len(priors):
            raise ConfigError(f"{len(priors)} folders for {len(own)} priors; give one each.")
        named = [
            recorded(PriorSpec(named_from(folder, member), prior.weight, prior.temperature))
            for member, prior in zip(priors, own, strict=True)
        ]
        taken = -self.priors[-1].weight if self._takes_back else 0.0
        options = recorded(PriorOptions(taken, self.done_share, self.normalized))
        content = {"generator": named_from(folder, generator), "priors": named, **options}
        write_spec(folder, self.kind, content)

    @property
    def corpus(self) -> Corpus:
        """The passages of the generator."""
        return self.generator.corpus

    @property
    def done(self) -> int:
        """The number of DONE."""
        return self.generator.done

    @property
    def writes_chains(self) -> bool:
        """Whether scores are log-probabilities."""
        return self.normalized

    @property
    def widest(self) -> int:
        """Passages that a search knows, whatever k is."""
        return self.generator.widest

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        described = self.generator.describe()
        empty = self.priors[-1].weight if self._takes_back else 0.0
        priors = self.priors[:-1] if self._takes_back else self.priors
        own = {
            "prior": [prior.source.name for prior in priors],
            "prior_weight": [prior.weight for prior in priors],
            "prior_temperature": [prior.divisor for prior in priors],
            "prior_normalized": self.normalized,
            "empty_weight": abs(empty),
            "done_share": self.done_share,
        }
        mode, _, rescored = described.score_mode.partition(",")
        mode = f"{mode} with priors{',' + rescored if rescored else ''}"
        return Description("hybrid", mode, {**described.options, **own}, stages=described.stages)

    @property
    def _takes_back(self) -> bool:
        """Whether the last prior is the generator's own, under an empty prompt."""
        return bool(self.priors) and isinstance(self.priors[-1].source, EmptyPromptPrior)

    def fingerprint(self) -> str:
        """SHA-256 of the generator, of every prior, and of their weights."""
        parts = [self.generator.fingerprint(), *(prior.source.fingerprint() for prior in self.priors)]
        parts += [json.dumps(self.describe().options)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def untuned(self) -> str:
        """The fingerprints of the generator and of its priors."""
        priors = self.priors[:-1] if self._takes_back else self.priors
        sources = [prior.source.fingerprint() for prior in priors]
        return " ".join([self.generator.fingerprint(), *dict.fromkeys(sources)])

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        """Make ready for hops of these queries; see :class:`~grls.retrieve.base.WritesChains`."""
        filters = resolved(one_each(allow, len(queries)), self.corpus)

        def find(live: Sequence[Under], hop: int, k: int) -> list[list[ScoredPassage]]:
            return self.search(
                [queries[chain.query] for chain in live],
                [self.corpus.passages(chain.passages) for chain in live],
                k,
                [chain.hidden for chain in live],
                [filters[chain.query] for chain in live],
            )

        return find

    @property
    def stages(self) -> tuple[str, ...]:
        """The training stages that the generator has gone through."""
        return self.generator.stages

    @property
    def learned_done(self) -> bool | None:
        """Whether it was trained to tell when DONE follows: not known of a generator."""
        return None

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them.

        Args:
            queries: The queries.
            k: Most hits a query.
            allow: The passages that may be found; see :class:`~grls.retrieve.base.Retriever`. Priors are then
                over the allowed passages, too.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: k is below 1, a filter cannot be used, or none of them leaves a passage.
        """
        queries = queries_of(queries)
        hidden = [[self.generator.done]] * len(queries)
        found = self.search(queries, [()] * len(queries), k, hidden, allow)
        return [self.generator.hits(ranking) for ranking in found]

    def candidates(self, queries: Sequence[Query], k: int) -> list[list[ScoredPassage]]:
        """The passages that :meth:`retrieve` ranks, best first: k, or all candidates where spans are written.

        Scores of a generator that writes spans are T times those of
        :mod:`grls.retrieve.generative.span_scores`, plus those of the priors; they are not relative to each
        other.
        """
        hidden = [[self.generator.done]] * len(queries)
        generator = self.generator
        if generator.spans is None:
            return self.search(queries, [()] * len(queries), k, hidden)
        scores = generator.weigh(*self._asked(queries, [()] * len(queries), k, hidden))
        totals = [generator.options.span_temperature * own.mean + own.said for own in scores]
        return [
            [ScoredPassage(int(own.passages[n]), float(total[n])) for n in np.argsort(-total, kind="stable")]
            for own, total in zip(scores, totals, strict=True)
        ]

    def retrieve_hop(
        self,
        queries: Sequence[Query],
        evidence: Sequence[Sequence[Passage]],
        k: int,
        allow: Allow = None,
    ) -> list[HopHits]:
        """The top-k passages given those found so far, and the score of DONE.

        Generator and priors are all given the evidence. DONE competes, so a hop's scores are those beside
        DONE; where it is not among the k + 1 best (or the beam's) its score is None.

        Args:
            queries: The queries.
            evidence: For each, the passages found so far, in order.
            k: Most hits a query.
            allow: The passages that may be found; a filter does not apply to DONE.
        """
        found = self.search(queries, evidence, k + 1, [[]] * len(queries), allow)
        return [self._hop(ranking, k) for ranking in found]

    def _hop(self, found: Sequence[ScoredPassage], k: int) -> HopHits:
        done = self.generator.done
        score = next((one.score for one in found if one.passage == done), None)
        return HopHits(self.generator.hits([one for one in found if one.passage != done][:k]), score)

    def search(
        self,
        queries: Sequence[Query],
        evidence: Sequence[Sequence[Passage]],
        k: int,
        hidden: Sequence[Sequence[int]],
        allow: Allow = None,
    ) -> list[list[ScoredPassage]]:
        """The k best of all passages of the index, DONE among them.

        Args:
            queries: The queries.
            evidence: For each, the passages found so far, in order.
            k: Most hits a query.
            hidden: For each, numbers that may not be found.
            allow: The passages that may be found; a filter does not apply to DONE.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: k is below 1, a filter cannot be used, or none of them leaves a passage.
        """
        return self.generator.search(*self._asked(queries, evidence, k, hidden, allow))

    def look_ahead(self, query: Query, evidence: Sequence[Passage]) -> Prior | None:
        """The prior over the passages for a query and the passages found so far."""
        return prior_of(
            self.priors, [query], [evidence], self.generator.done, self.done_share, self.normalized
        )

    def _asked(
        self,
        queries: Sequence[Query],
        evidence: Sequence[Sequence[Passage]],
        k: int,
        hidden: Sequence[Sequence[int]],
        allow: Allow = None,
    ) -> tuple[Any, ...]:
        """The arguments of :meth:`DecodedPassages.search` for the generator."""
        check_counts(k=k)
        codec = self.generator.codec
        tokens = self.generator.encode(queries)
        before = [codec.excerpts(query.text, own) for query, own in zip(queries, evidence, strict=True)]
        inputs = [codec.model_input(*pair) for pair in zip(tokens, before, strict=True)]
        within = self.generator.subsets(queries, allow)
        done = self.generator.done
        prior = prior_of(self.priors, queries, evidence, done, self.done_share, self.normalized)
        return inputs, k, hidden, "retrieve", within, prior
