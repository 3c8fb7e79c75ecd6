"""The folders of systems, and of the parts that they are made of."""

from __future__ import annotations

from typing import Any

from grls.data.corpus import Corpus
from grls.fitting.plan import Stage
from grls.fitting.work import FitWork, section, stage_tree
from grls.index.options import IndexOptions, LimitOptions
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hybrid.options import PriorOptions
from grls.retrieve.registry import BM25, Opening, create
from grls.retrieve.spec import is_retriever, read_spec, recorded, relative, update_spec

DENSE, DENSE_HOPS, GENERATIVE, HYBRID = "dense", "dense-hops", "generator", "hybrid"
BM25_HOPS = "bm25-hops"
RANKED = {DENSE_HOPS: DENSE, BM25_HOPS: BM25}
"""The systems that are another one, ranked by hops."""


def make_words(work: FitWork) -> dict[str, Any]:
    """BM25 over the passages."""
    BM25Retriever(Corpus.read(work.data)).save_pretrained(work.member(BM25))
    return {"folder": BM25}


def make_dense(work: FitWork, stage: Stage, model: str | None) -> dict[str, Any]:
    """Embed the passages.

    Args:
        work: The run.
        stage: The options of ``grls index``; ``model`` where none was trained.
        model: The trained model, relative to the output; None: there is none.
    """
    tree, folder = stage_tree(stage), work.member(DENSE)
    source = str(tree["model"]) if model is None else str(work.output / model)
    line = build(source, work.data, _building(work, tree, str(folder), tree.get("kind", "dense")))
    update_spec(folder, {"search": {"truncate_queries": True}})  # a long query is no reason to fail
    return {"folder": DENSE, "line": _without_time(line, str(folder))}


def make_generator(work: FitWork, stage: Stage, model: str) -> dict[str, Any]:
    """Index the passages for the generator; see :func:`make_dense`."""
    tree, folder = stage_tree(stage), work.member(GENERATIVE)
    line = build(str(work.output / model), work.data, _building(work, tree, str(folder), "generative"))
    if search := recorded(section(SearchOptions, tree, "search")):
        update_spec(folder, {"search": search})
    return {"folder": GENERATIVE, "line": _without_time(line, str(folder))}


def _building(work: FitWork, tree: dict[str, Any], output: str, kind: str) -> Building:
    return Building(
        output,
        kind,
        section(IndexOptions, tree, "index"),
        section(LimitOptions, tree, "limits"),
        int(tree.get("batch_size", 32)),
        tree.get("device", work.options.device),
    )


def _without_time(line: str, folder: str) -> str:
    """What a folder holds, without its place and the seconds that it took."""
    what, _, last = line.removeprefix(f"{folder}: ").rpartition(", ")
    return what if last.endswith(" s") else f"{what}, {last}"


def make_hybrid_system(work: FitWork, stage: Stage) -> dict[str, Any]:
    """The generator with its priors, those that there are."""
    tree, folder = stage_tree(stage), work.member(HYBRID)
    there = [name for name in tree["priors"] if name == BM25 or work.member(name).is_dir()]
    content: dict[str, Any] = {
        "generator": work.named(GENERATIVE, folder),
        "priors": [{"retriever": work.named(name, folder)} for name in there],
        **recorded(section(PriorOptions, tree, "hybrid")),
    }
    if search := recorded(section(SearchOptions, tree, "search")):
        content["search"] = search
    create(folder, "hybrid", content, Opening(work.options.device))
    return {"folder": HYBRID, "priors": there}


def search_as_hybrid(work: FitWork) -> None:
    """Let the generator alone search as the tuned hybrid does, rescoring above all.

    Options of the generator's folder replace defaults of the hybrid's, so both have the same.
    """
    if all(is_retriever(work.member(name)) for name in (GENERATIVE, HYBRID)):
        update_spec(work.member(GENERATIVE), {"search": read_spec(work.member(HYBRID)).get("search")})


def make_hops_system(work: FitWork, stage: Stage) -> dict[str, Any]:
    """BM25 or the bi-encoder, ranked by hops as the options of its tuning say."""
    folder = work.member(stage.system)
    hops = recorded(section(HopOptions, stage_tree(stage), "hops"))
    content = {"retriever": relative(work.member(RANKED[stage.system]), folder), "hops": hops}
    create(folder, "hops", content, Opening(work.options.device))
    return {"folder": stage.system}


def is_single_step(work: FitWork, system: str) -> bool:
    """Whether a system of hops was tuned to one hop, and so is the retriever that it ranks with."""
    if system not in RANKED:
        return False
    hops = read_spec(work.member(system)).get("hops") or {}
    return hops.get("max") == 1
