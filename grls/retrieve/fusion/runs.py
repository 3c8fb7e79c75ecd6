"""Fusing runs that were retrieved already.

How to fuse says :mod:`grls.retrieve.fusion.fuse`, whether runs belong together :mod:`grls.runs.comparable`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from grls.errors import ConfigError, Option
from grls.retrieve.fusion.fuse import Fusion, fuse_rankings
from grls.retrieve.fusion.retriever import Length, chain_hits, chain_length, fuse_chains
from grls.runs.manifest import RunInfo, Steps
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
        how = {"method": fusion.method, "normalization": fusion.normalization, "rrf_k": fusion.rrf_k}
        # The fingerprint whatever ends chains; empty where that of a member is unknown.
        prints = [run.info.retriever if run.info is not None else "" for run in members]
        parts = json.dumps([prints, {**how, "weights": fusion.weights}]).encode()
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
            options={**kept, **how, **options, "weights": fusion.weights},
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
