"""The weights of the members of a fusion."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from grls.data.types import Chain, Hit
from grls.errors import ConfigError
from grls.io.temporary import is_temporary
from grls.retrieve.base import FindsChains
from grls.retrieve.fusion.fuse import FUSED, Fusion, tune_weights
from grls.retrieve.fusion.retriever import fuse_chains
from grls.retrieve.spec import MANIFEST, made
from grls.tune.step import Step, TuneChoice, Tuning, as_hits, as_pairs


def tune_fusion(tuning: Tuning) -> TuneChoice:
    """Find the weights of highest recall: steps of 0.1 that sum to one; of equal ones the most even.

    Raises:
        ConfigError: The method takes no weights.
    """
    spec, file, k = tuning.spec, tuning.folder / MANIFEST, tuning.grid.k
    names = [one.name for one in fields(Fusion)]
    fusion = made(Fusion, {name: spec[name] for name in names if name in spec}, file, "fusion")
    if fusion.method == "interleave":
        raise ConfigError(f"{file}: interleaving has no weights to tune; write the method rrf or sum.")
    depth = spec.get("depth") or FUSED  # what the folder fuses
    members = [_asked(tuning, n, member, max(k, depth)) for n, member in enumerate(spec["members"])]
    dynamic = all("done" in member[0] for member in members if member)

    def rankings(tried: Fusion, query: int) -> list[Hit]:
        answers = [member[query] for member in members]
        hits = [as_hits(one["hits"]) for one in answers]
        if not dynamic:
            return tried.fuse_first(hits, depth, max(k, depth))
        chains = [Chain(tuple(own), 0.0, one["done"]) for own, one in zip(hits, answers, strict=True)]
        return list(fuse_chains(chains, tried, spec.get("length", "mean")).hits)

    def quality(tried: Fusion) -> tuple[float, float]:
        ids = [[hit.id for hit in rankings(tried, query)] for query in range(len(tuning.dev.queries))]
        recall, order = tuning.dev.quality(ids, k)
        return recall, order

    before = quality(fusion)[0]
    best, (recall, _) = tune_weights(len(members), replace(fusion, weights=None), quality)
    weights = list(best.weights or ())
    shown = " ".join(f"{weight:g}" for weight in weights)
    return TuneChoice({"weights": weights}, f"recall@{k}", before, recall, f"weights {shown}")


def _asked(tuning: Tuning, number: int, member: Any, depth: int) -> list[dict[str, Any]]:
    """What a member finds for every query: hits, and of a chain whether it is done."""

    def search() -> list[dict[str, Any]]:
        corpus = tuning.dev.corpus  # of BM25 that names none
        opened = tuning.open_member(member, f"members[{number}]", corpus=corpus)
        queries = tuning.dev.queries
        if isinstance(opened, FindsChains) and opened.describe().steps == "dynamic":
            chains = [kept[0] for kept in opened.retrieve_chains(queries)]
            return [{"hits": as_pairs(chain.hits), "done": bool(chain.done)} for chain in chains]
        return [{"hits": as_pairs(hits)} for hits in opened.retrieve(queries, depth)]

    of = {"step": "fusion", "member": number, "named": member, "depth": depth}
    answers: list[dict[str, Any]] = tuning.journal.measured(of, search)
    name = member if isinstance(member, str) else member["kind"]
    print(f"  member {number}" + ("" if is_temporary(name) else f": {name}"), flush=True)
    return answers


FUSION = Step("fusion", tune_fusion)
