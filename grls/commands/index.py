"""``grls index``: a retriever folder from a model and a corpus, or from other retriever folders."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.cluster.options import USUAL_WORKERS, WorkerOptions, workers_of
from grls.data.corpus import Corpus
from grls.data.inputs.entries import corpus_of
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.index.options import IndexOptions, LimitOptions
from grls.io.arguments import Count, options
from grls.io.files import named_lines, refuse_unusable, write_json
from grls.io.progress import counted
from grls.models.option_names import Device, Similarity
from grls.retrieve.bm25 import USUAL_BM25, BM25Options, BM25Retriever
from grls.retrieve.compose import compose, write_retriever
from grls.retrieve.fusion.retriever import Fusion, fusion_spec
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions, hops_spec
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec, hybrid_spec
from grls.retrieve.registry import Opening
from grls.retrieve.rescored.options import PASSAGES, Rereading, rescored_spec
from grls.retrieve.spec import MANIFEST, TIME, followed, from_record, recorded

_INDEX, _LIMITS, _PRIORS, _FUSION = IndexOptions(), LimitOptions(), PriorOptions(), Fusion()


def make_index(
    model: str,
    *,
    corpus: str,
    output: str,
    kind: str = "auto",
    index: IndexOptions = _INDEX,
    limits: LimitOptions = _LIMITS,
    batch_size: Count = 32,
    device: Device = "auto",
    similarity: Similarity | None = None,
    ray: str | None = None,
    workers: WorkerOptions = USUAL_WORKERS,
) -> None:
    """Build a retriever folder: model, tokenizer, corpus and constraint index, or embeddings.

    A run that was killed while it embedded a corpus goes on when it is started again, from the last finished
    shard: of 512 passages, of a large corpus up to 4,096 (dense) or 1,024, or of `--workers.shard`.

    Args:
        model: Folder that a training stage wrote (``<output>/model``), or a hub name.
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        output: The retriever folder; an earlier one there is replaced.
        kind: ``generative``: the model decodes passages; ``dense``: a bi-encoder; ``st5``: an encoder-decoder
            as a bi-encoder, by its first decoder output; ``sparse``: a sparse encoder (SPLADE);
            ``multi-vector``: late interaction (ColBERT); ``rescored``: a cross-encoder that reads what BM25
            finds; any other that is registered and built from a model;
            ``auto``: what a folder of sentence-transformers says it is, dense for ``all-MiniLM-L6-v2``, else
            generative.
        index: How passages are indexed (generative).
        limits: The longest texts, in tokens.
        batch_size: Passages encoded together (not generative).
        similarity: How vectors are compared (dense, st5); the folder keeps it. null: as the model says, else
            by the cosine, the default of sentence-transformers.
        ray: Address of a Ray cluster whose workers share the work (generative: sorting, dense: encoding):
            HOST:PORT, auto, or local for a cluster on this machine. All its machines must see the files.
        workers: How many workers, and their shards.
    """
    from grls.retrieve.build import Building, build

    sharing = workers_of(ray, workers)
    refuse_unusable(output, MANIFEST)
    print(
        build(model, corpus, Building(output, kind, index, limits, batch_size, device, similarity, sharing))
    )


def split_index(retriever: str, *, output: str, parts: Count = 2, ray: str | None = None) -> None:
    """Cut the index of a generative retriever into prefix ranges that one beam searches together.

    Every search finds the same passages with the same scores. Passages are added and merged in the retriever
    that is cut, not in the one that is made.

    Args:
        retriever: Folder of a generative retriever.
        output: The retriever folder that is made; an earlier one there is replaced.
        parts: Number of ranges, of as many tokens each.
        ray: Address of a Ray cluster on whose machines the ranges are opened, spread over all that see the
            folder: HOST:PORT, auto, or local; null: all ranges are in one process.
    """
    from grls.index.ranges import PrefixRanges
    from grls.retrieve.generative.retriever import GenerativeRetriever

    refuse_unusable(output, MANIFEST)
    workers_of(ray, USUAL_WORKERS)
    opened = GenerativeRetriever.from_pretrained(str(followed(retriever)), "cpu")
    opened.save_pretrained(output, PrefixRanges(parts, ray))
    workers = "in one process" if ray is None else f"on the Ray cluster {ray}"
    print(f"{output}: {counted(len(opened.corpus), 'passage')} in {parts} prefix ranges, {workers}")


def make_bm25(
    *, corpus: str, output: str, bm25: BM25Options = USUAL_BM25, analyzer: Analyzer = USUAL
) -> None:
    """Make a folder of BM25 over a corpus.

    Args:
        corpus: ``corpus.jsonl``, the data set folder that holds it, or a folder of documents.
        output: The retriever folder; an earlier one there is replaced.
        bm25: How passages are scored.
        analyzer: How texts are split into words.
    """

    refuse_unusable(output, MANIFEST)
    passages = corpus_of(corpus)
    begun = perf_counter()
    BM25Retriever(passages, bm25, analyzer).save_pretrained(output)
    write_json(Path(output) / TIME, {"seconds": perf_counter() - begun})
    print(f"{output}: bm25, {counted(len(passages), 'passage')}")


@options(kw_only=True)
class FolderOptions:
    """The folder of a composite.

    Args:
        output: The retriever folder; an earlier one there is replaced.
        search: Options of decoding; those that differ from their defaults are kept in the folder.
    """

    output: str
    search: SearchOptions = USUAL_SEARCH


def make_hybrid(
    retriever: str,
    *,
    priors: list[str | dict[str, Any]],
    weights: list[float] | None = None,
    hybrid: PriorOptions = _PRIORS,
    **folder: Any,
) -> None:
    """Make a folder of hybrid decoding: other retrievers look ahead for a generator while it writes.

    Args:
        retriever: Folder of a generative retriever.
        priors: The retrievers that look ahead: folders, or `bm25`; or all that a prior has, such as
            ``[{"retriever": "runs/dense", "weight": 2, "temperature": 0.1}]``.
        weights: The weights of the priors beside the generator, in their order; null: those of the
            objects, or 1.
        hybrid: Options of all priors.
        folder: See :class:`FolderOptions`.
    """
    specs = []
    for prior in priors:
        if isinstance(prior, str) and prior.startswith("{"):  # an object without a list around it
            try:
                prior = dict(json.loads(prior))
            except ValueError as error:
                raise ConfigError(f"--priors: {prior} is no JSON ({error}).") from None
        record = {"retriever": prior} if isinstance(prior, str) else prior
        specs.append(from_record(PriorSpec, record, Path("--priors"), "prior"))
    if weights is not None:
        if len(weights) != len(specs):
            named = counted(len(specs), "prior is named", "priors are named")
            raise ConfigError(
                f"--weights has {counted(len(weights), 'weight')}, and {named}: give one a prior."
            )
        specs = [replace(spec, weight=weight) for spec, weight in zip(specs, weights, strict=True)]
    _write(FolderOptions(**folder), hybrid_spec(retriever, specs, hybrid))


def make_hops(retriever: str, *, hops: HopOptions = USUAL_HOPS, **folder: Any) -> None:
    """Make a folder of a retriever that retrieves hop by hop.

    Args:
        retriever: Folder of the retriever that finds the passages of each hop.
        hops: Options of the hops; ``--hops.steps`` may not be ``single``.
        folder: See :class:`FolderOptions`.
    """
    _write(FolderOptions(**folder), hops_spec(retriever, hops))


def make_fusion(
    members: list[str],
    *,
    fusion: Fusion = _FUSION,
    depth: Count | None = None,
    **folder: Any,
) -> None:
    """Make a folder of several retrievers over one corpus whose rankings are fused.

    Args:
        members: Their folders, or ``bm25`` over the corpus of the others.
        fusion: How rankings are fused.
        depth: Number of hits of each member that give scores (``rrf``, ``sum``); null: 20.
        folder: See :class:`FolderOptions`.
    """
    _write(FolderOptions(**folder), fusion_spec(members, fusion, depth))


def make_rescored(
    retriever: str,
    *,
    model: str,
    passages: Count = PASSAGES,
    weight: float | None = None,
    device: Device = "auto",
    **folder: Any,
) -> None:
    """Make a folder of a retriever whose best passages a cross-encoder rescores.

    `grls tune` finds the number of passages and the weight. `grls index MODEL --corpus CORPUS` makes a folder
    with the model and the corpus in it, over BM25.

    Args:
        retriever: Folder of the first retriever.
        model: Folder or hub name of a cross-encoder; the folder names it and holds no copy.
        passages: Number of best passages that the cross-encoder reads.
        weight: Weight of the cross-encoder's logit beside the score of the first retriever; null: the logit
            replaces the score.
        folder: See :class:`FolderOptions`.
    """
    _write(FolderOptions(**folder), rescored_spec(retriever, model, Rereading(passages, weight)), device)


def _write(folder: FolderOptions, spec: dict[str, Any], device: str = "cpu") -> None:
    """Write the folder of a composite, and print its kind."""
    output = folder.output
    refuse_unusable(output, MANIFEST)
    stored = {"search": recorded(folder.search)} if folder.search != USUAL_SEARCH else {}
    made = compose(spec | stored, Opening(device))
    write_retriever(made, output, link=True)
    retriever = made.retriever
    described, passages = retriever.describe(), counted(len(retriever.corpus), "passage")
    label = described.name  # of most composed retrievers it names the kind already
    if retriever.kind not in re.findall(r"[\w-]+", label):
        label = f"{retriever.kind}, {label}"
    print(f"{output}: {label}, score mode {described.score_mode}, {passages}")


def update(
    retriever: str,
    *,
    add: str | None = None,
    remove: str | None = None,
    output: str | None = None,
    device: Device = "auto",
    batch_size: Count = 32,
) -> None:
    """Add and remove passages of a retriever of any kind, without making it again.

    Passages are removed first, then added behind the others. Models are not trained on the new passages. Of
    a generative retriever the index is sorted again. Of retrievers that encode passages
    (dense, sparse, multi-vector) only the added ones are encoded. A hybrid, a fusion, hops or another
    composite becomes a copy whose members are inside and are changed; the folders that it named stay as they
    are. What is tuned stays in the folder.

    Args:
        retriever: The retriever folder.
        add: Passages to add: a ``corpus.jsonl``, or the folder that holds one.
        remove: A file of passages to remove, an id a line.
        output: Folder of the changed retriever; null: the folder is replaced.
        batch_size: Passages encoded together.
    """
    from grls.retrieve.update import Changes, update_folder

    if add is None and remove is None:
        raise ConfigError("nothing to do: give --add FILE or --remove FILE.")
    removed = [] if remove is None else named_lines(remove, "a passage id a line")
    ids = list(dict.fromkeys(line for _, line in removed))
    added = None if add is None else Corpus.read(add)
    start = perf_counter()
    count = update_folder(retriever, output, Changes(added, ids, device, batch_size))
    folder, seconds = output or followed(retriever), perf_counter() - start
    print(f"{folder}: {counted(count, 'passage')}, {seconds:.1f} s")
