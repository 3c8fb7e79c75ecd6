"""Fusing runs that were retrieved already.

How to fuse says :mod:`grls.retrieve.fusion.retriever`, whether runs belong together
:mod:`grls.runs.comparable`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.inputs.arguments import Count, checked
from grls.data.types import Chain, Hit, Query
from grls.errors import ConfigError, DataError, Option, in_python, worded
from grls.io.progress import counted
from grls.models.base import Floats
from grls.retrieve.base import Description, Retriever, unended_fingerprint
from grls.retrieve.fusion.retriever import (
    Fusion,
    Length,
    chain_hits,
    chain_length,
    fuse_chains,
    fuse_rankings,
)
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import Opening, open_member, write_composite
from grls.retrieve.spec import MANIFEST, check_fields, from_record, named_from
from grls.runs.portions import RunInfo, Steps
from grls.runs.run import Run
from grls.runs.trec import chain_ranking


@dataclass(frozen=True)
class RunFusion:
    """What is fused and how much of it is kept.

    Args:
        steps: Dynamic runs give chains, others rankings.
        k: Passages a query; None keeps as many as the longest list holds.
        length: Of a dynamic chain.
    """

    steps: Steps
    k: int | None
    length: Length

    @classmethod
    def of(cls, members: Sequence[Run], k: int | None, length: Length) -> RunFusion:
        """The fusion that these runs allow.

        Raises:
            ConfigError: There are fewer than two, dynamic runs do not fit, or ``k`` or ``length`` does not.
        """
        steps = shared_steps(members)
        if k is not None and steps == "dynamic":
            raise ConfigError(
                f"{Option('k')} is of rankings, and these runs are chains that end: {Option('length')} says "
                "where."
            )
        chain_length([0] * len(members), length)
        return cls(steps, k, length)

    def fuse(self, members: Sequence[Run], fusion: Fusion) -> Run:
        """Fuse runs that hold the same queries; the result has no manifest."""
        if self.steps == "dynamic":
            chains = {}
            for query in members[0].chains:
                own = [member.chains[query] for member in members]
                # Scores to fuse by: of hops added up, or, of a set, each passage's own.
                scored = [
                    chain_hits(chain) if ranking == chain_ranking(chain) else ranking
                    for chain, ranking in zip(own, [run.rankings[query] for run in members], strict=True)
                ]
                chains[query] = fuse_chains(own, fusion, self.length, scored)
            return Run({query: list(c.hits) for query, c in chains.items()}, chains, fusion.score_mode)
        rankings = fuse_rankings([member.rankings for member in members], fusion, self._kept(members))
        return Run(rankings, score_mode=fusion.score_mode)

    def _kept(self, members: Sequence[Run]) -> int | None:
        """Passages a query that are kept of fused rankings; None: all, of which there are none."""
        longest = max((len(hits) for member in members for hits in member.rankings.values()), default=0)
        return self.k if self.k is not None else longest or None

    def ensemble(
        self, members: Sequence[Run], fusion: Fusion, name: str | None, options: dict[str, Any]
    ) -> Run:
        """Fuse runs that hold the same queries, with a manifest.

        Args:
            members: The runs.
            fusion: How rankings are fused.
            name: What reports call it; None makes one from the method and the members.
            options: What the manifest records besides the fusion.
        """
        start = perf_counter()
        fused = self.fuse(members, fusion)
        infos = [run.info for run in members if run.info is not None]
        depths = [depth for run in members if (depth := run.depth()) is not None]
        kept = {
            "runs": [run.path for run in members],
            "k": None if self.steps == "dynamic" else self._kept(members),
            "members_depth": min(depths, default=None),
            "pool": any(run.is_ranking for run in members),
            "length": self.length,
        }
        method = {"method": fusion.method, "normalization": fusion.normalization, "rrf_k": fusion.rrf_k}
        # The fingerprint whatever ends chains; empty where that of a member is unknown.
        prints = [run.info.retriever if run.info is not None else "" for run in members]
        parts = json.dumps([prints, {**method, "weights": fusion.weights}]).encode()
        info = RunInfo(
            system="ensemble",
            name=name or f"{fusion.method} of {' + '.join(run.name for run in members)}",
            steps=self.steps,
            corpus="",
            queries="",
            data="",
            split=None,
            score_mode=fusion.score_mode,
            stages=tuple(dict.fromkeys(stage for info in infos for stage in info.stages)),
            members=tuple(run.name for run in members),
            seconds=perf_counter() - start + sum(info.seconds for info in infos),  # members' time counts
            options={**kept, **method, **options, "weights": fusion.weights},
            retriever=hashlib.sha256(parts).hexdigest() if all(prints) else "",
        )
        return Run(fused.rankings, fused.chains, fused.score_mode, info)


def shared_steps(runs: Sequence[Run]) -> Steps:
    """What a fusion of these runs is: dynamic or fixed where all are, ranked where one is, else single.

    Raises:
        ConfigError: A dynamic run has no chains (a TREC run), or is to be fused with one that is not dynamic.
    """
    dynamic = [run for run in runs if run.steps == "dynamic"]
    others = [run for run in runs if run.steps != "dynamic"]
    if dynamic and others:
        raise ConfigError(
            f"{dynamic[0].path} is dynamic and {others[0].path} is {others[0].steps}; a chain that ends by "
            f"itself cannot be fused with a ranking. Retrieve both with the same {Option('hops.steps')}."
        )
    for run in dynamic:
        if not run.chains and run.rankings:
            raise ConfigError(f"{run.path} is dynamic, and its chains stand in JSONL alone; give that file.")
    if dynamic:
        return "dynamic"
    if all(run.steps == "fixed" for run in runs):
        return "fixed"
    return "ranked" if any(run.steps == "ranked" for run in runs) else "single"


# How many passages of a ranking to give: the first k whose expected F1 is highest.
#
# Legend: n passages of a ranking, Q development queries, M the most gold passages that a ranking lacks.
#
# Chains end by DONE (:mod:`grls.retrieve.hops.stop`); a ranking has no end of its own. Here it ends where F1
# against the right set is expected to be highest. A logistic regression over what a ranking shows of the
# passage in place r (its score, the best score, where it stands between the best and the last, the gap behind
# it, r and log r) gives the probability p_r that it is gold, fitted on development queries. With these taken
# as independent, and G = gold_1 + … + gold_n + missing, where ``missing`` is how many gold passages the
# ranking lacks, as often as development queries lack them,
#
#     expected F1 of the first k  =  E[2 (gold_1 + … + gold_k) / (k + G)],
#
# which is computed exactly: how many of the first k are gold, and how many of the others, are
# Poisson-binomial. Of independent passages the set of highest expected F1 is that of the likeliest k for some
# k (Ye, Chai, Lee and Chieu, "Optimizing F-measures: a tale of two approaches", ICML 2012). The ranking's own
# order is kept, though, so measures of rank change for what is cut alone. The module knows no text and no
# model.


_LEAST = 1e-9
"""No passage is less probable, so that logarithms are finite."""

_HIGHEST = 1e100
"""No score is farther from 0, so that squares are finite."""


class Size(NamedTuple):
    """Where a ranking is cut.

    Attributes:
        k: Passages that are kept.
        expected_f1: What F1 they are expected to have, in [0, 1].
    """

    k: int
    expected_f1: float


@dataclass(frozen=True)
class _Record:
    """A :class:`SetSize` as plain numbers, one each a feature; ``missing`` as there."""

    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weights: tuple[float, ...]
    bias: float
    missing: tuple[float, ...]


@dataclass(frozen=True)
class SetSize:
    """Cuts rankings of one system.

    Attributes:
        model: From features of a passage to the probability that it is gold.
        missing: ``[M + 1]`` how probable it is that a ranking lacks 0, 1, … gold passages.
    """

    model: Pipeline
    missing: Floats

    @classmethod
    def fit(cls, rankings: Sequence[Sequence[Hit]], gold: Sequence[Collection[str]]) -> SetSize:
        """Learn it from development queries.

        Args:
            rankings: ``[Q]`` hits, best first.
            gold: ``[Q]`` ids of the gold passages.

        Raises:
            ConfigError: No passage that was found is gold, or all are, so nothing tells them apart; or a
                score is beyond ±1e100.
        """
        right = [np.array([hit.id in own for hit in hits]) for hits, own in zip(rankings, gold, strict=True)]
        found = np.concatenate(right) if right else np.array([])
        if not 0 < found.sum() < len(found):
            raise ConfigError(
                f"of the {counted(len(found), 'passage')} found for "
                f"{counted(len(right), 'development query')} "
                f"{int(found.sum()):,} are gold: a cut needs some that are and some that are not. Tune on "
                "queries whose gold is in the run."
            )
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        model.fit(np.concatenate([_features(hits) for hits in rankings]), found)
        lacking = [len(set(own) - {h.id for h in hits}) for own, hits in zip(gold, rankings, strict=True)]
        return cls(model, np.bincount(lacking) / len(lacking))

    def record(self) -> _Record:
        """As plain numbers."""
        scaler, regression = (step for _, step in self.model.steps)
        return _Record(
            tuple(scaler.mean_.tolist()),
            tuple(scaler.scale_.tolist()),
            tuple(regression.coef_[0].tolist()),
            float(regression.intercept_[0]),
            tuple(self.missing.tolist()),
        )

    @classmethod
    def from_record(cls, record: _Record) -> SetSize:
        """From what :meth:`record` gives.

        Raises:
            ConfigError: The numbers are not as many as the features.
        """
        features = len(_features([Hit("", 0.0)])[0])
        if {len(record.mean), len(record.scale), len(record.weights)} != {features} or not record.missing:
            raise ConfigError(f"expected {features} numbers of each kind for a cut; tune it again.")
        scaler, regression = StandardScaler(), LogisticRegression()
        scaler.mean_, scaler.scale_ = np.array(record.mean), np.array(record.scale)
        scaler.var_, scaler.n_features_in_ = scaler.scale_**2, features
        regression.coef_, regression.intercept_ = np.array([record.weights]), np.array([record.bias])
        regression.classes_ = np.array([False, True])
        return cls(make_pipeline(scaler, regression), np.array(record.missing))

    def probabilities(self, hits: Sequence[Hit]) -> Floats:
        """``[n]`` the probability that each passage of a ranking is gold."""
        if not hits:
            return np.array([])
        found: Floats = self.model.predict_proba(_features(hits))[:, 1]
        return np.clip(found, _LEAST, 1 - _LEAST)

    def cut(self, hits: Sequence[Hit]) -> Chain:
        """The first passages of a ranking, as a chain that is done.

        Returns:
            Each passage with the log of its probability; the score is the log of the expected F1 (nats), or
            of 1e-9 for the empty chain of an empty ranking.
        """
        probabilities = self.probabilities(hits)
        size = best_size(probabilities, self.missing)
        kept = zip(hits[: size.k], np.log(probabilities).tolist(), strict=False)
        score = math.log(max(size.expected_f1, _LEAST))
        return Chain(tuple(Hit(hit.id, log) for hit, log in kept), score, True)


class CutRetriever:
    """Cuts what another retriever ranks: a retriever of kind ``cut``.

    Args:
        retriever: Ranks.
        size: Fitted on its rankings of development queries; None: not yet, and it cuts nothing before.
        depth: Passages of a ranking that are looked at: as many as when ``size`` was fitted.
        place: The folder that it was opened from, for errors.
    """

    kind = "cut"
    tuned_by = ("grls.tune.priors:CUT",)
    folders = ("retriever",)

    def __init__(self, retriever: Retriever, size: SetSize | None, depth: int, place: str | Path = "FOLDER"):
        check_counts(depth=depth)
        self.retriever, self.place = retriever, place
        self.size = size
        self.depth = depth

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Self:
        """Open a folder; see :func:`load_retriever`."""
        file = folder / MANIFEST
        check_fields(spec, ("retriever", "depth"), ("size",), file)
        size = None
        if "size" in spec:
            record = from_record(_Record, spec["size"], file, "size")
            try:
                size = SetSize.from_record(record)
            except ConfigError as error:
                raise DataError(f"size: {worded(error.text, in_python)}", file) from error
        own = from_record(_Depth, {"depth": spec["depth"]}, file, "cut")
        return cls(open_member(spec["retriever"], folder, "retriever", opening), size, own.depth, folder)

    def save_pretrained(self, folder: str | Path, retriever: str | Path | dict[str, Any]) -> None:
        """Write a folder that names the one of the retriever, or embeds its specification."""
        named = {"retriever": named_from(folder, retriever), "depth": self.depth}
        content = named | ({"size": self._record} if self.size is not None else {})
        write_composite(folder, self.kind, content, self.corpus)

    @property
    def _record(self) -> dict[str, Any] | None:
        return None if self.size is None else asdict(self.size.record())

    @property
    def corpus(self) -> Corpus:
        """What it retrieves from."""
        return self.retriever.corpus

    def describe(self) -> Description:
        """What manifests and reports say of it."""
        first = self.retriever.describe()
        mode, label = f"{first.score_mode}, cut", f"{first.name}, cut"
        return replace(
            first,
            score_mode=mode,
            label=label,
            options={**first.options, "cut": self.depth},
            steps="dynamic",
            sets=True,
        )

    def fingerprint(self) -> str:
        """Of the retriever, and of where it is cut."""
        return f"{self.retriever.fingerprint()} {json.dumps(self._record)} {self.depth}"

    def untuned(self) -> str:
        """The fingerprint of the retriever alone."""
        return self.retriever.fingerprint()

    def unended(self) -> str:
        """The fingerprint of the rankings before they are cut."""
        return unended_fingerprint(self.retriever)

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """At most k passages of each query, as the retriever ranks them.

        Raises:
            ConfigError: k is below 1, or the cut is not fitted yet.
        """
        return [hits[:k] for hits, _ in self.retrieve_sets(queries, allow)]

    @checked
    def retrieve_chains(self, queries: Any, allow: Allow = None) -> list[list[Chain]]:
        """One chain a query: the passages that are kept."""
        return [[chain] for _, chain in self.retrieve_sets(queries, allow)]

    def retrieve_sets(
        self, queries: Sequence[Query | str], allow: Allow = None
    ) -> list[tuple[list[Hit], Chain]]:
        """What is kept of each query's ranking, with the scores of the retriever, and the same as a chain.

        Raises:
            ConfigError: The cut is not fitted yet.
        """
        size = self.size
        if size is None:  # before anything is searched for
            raise ConfigError(
                f"where rankings end is not known yet: `grls tune {self.place} {Option('data', 'D')}` finds "
                "it on dev."
            )
        rankings = self.retriever.retrieve(queries, self.depth, allow)
        chains = [size.cut(hits) for hits in rankings]
        return [(hits[: len(chain.hits)], chain) for hits, chain in zip(rankings, chains, strict=True)]


@dataclass(frozen=True)
class _Depth:
    depth: int


def best_size(probabilities: Floats, missing: Floats) -> Size:
    """The k whose expected F1 is highest, at least 1 where there is a passage; of equals the smallest.

    Args:
        probabilities: ``[n]`` that each passage of a ranking is gold, in its order.
        missing: ``[M + 1]`` that the ranking lacks 0, 1, … gold passages.
    """
    if not len(probabilities):
        return Size(0, 0.0)
    behind = [missing]  # of the last 0, 1, … passages: how many are gold or missing
    for p in probabilities[::-1]:
        behind.append(np.convolve(behind[-1], [1 - p, p]))
    best, before = Size(0, -math.inf), np.array([1.0])
    for k, p in enumerate(probabilities, 1):
        before = np.convolve(before, [1 - p, p])
        others = behind[len(probabilities) - k]
        right, left = np.arange(len(before))[:, None], np.arange(len(others))[None]
        value = float(before @ (2 * right / (k + right + left)) @ others)
        if value > best.expected_f1 + 1e-12:
            best = Size(k, value)
    return best


def _features(hits: Sequence[Hit]) -> Floats:
    """``[n, 6]`` what a ranking shows of its passages."""
    if not hits:
        return np.zeros((0, 6))
    scores = np.array([hit.score for hit in hits])
    if not np.abs(scores).max() <= _HIGHEST:
        raise ConfigError(
            f"a run to cut has scores from {scores.min():g} to {scores.max():g}; expected are some between "
            f"{-_HIGHEST:g} and {_HIGHEST:g}. Divide them all, of {Option('tune')}, too, by one number."
        )
    ranks = np.arange(1, len(scores) + 1)
    height = scores[0] - scores[-1]
    between = (scores - scores[-1]) / height if height > 0 else np.ones(len(scores))
    gaps = np.append(scores[:-1] - scores[1:], 0.0)
    return np.stack((np.log(ranks), ranks, scores, np.full(len(scores), scores[0]), between, gaps), axis=1)
