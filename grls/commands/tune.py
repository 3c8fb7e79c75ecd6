"""``grls tune``: tune all that a retriever folder has on development queries."""

from __future__ import annotations

from grls.io.arguments import Count
from grls.io.progress import counted
from grls.models.option_names import Device, Precision
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions
from grls.tune.options import USUAL_GRID, TuneOptions


def tune(
    retriever: str,
    *,
    data: str,
    split: str = "dev",
    limit: Count | None = None,
    grid: TuneOptions = USUAL_GRID,
    search: SearchOptions = USUAL_SEARCH,
    hops: HopOptions = USUAL_HOPS,
    device: Device = "auto",
    precision: Precision = "float32",
) -> None:
    """Tune all that a retriever folder has on development queries, and write it into the folder.

    Tunes the weights of priors, of a fusion's members, and of rescoring (for a generator that has learned
    it); the weight of a cross-encoder, and how many passages it reads; the number of ranked hops, a single
    step included; for hops until DONE the bias on DONE and how a chain is chosen. Prints what each choice
    gained. A killed run goes on when it is called again with the same options (FOLDER.tune.jsonl).

    Args:
        retriever: Retriever folder of any kind.
        data: Data set folder.
        split: The development queries: not those that results will be reported for.
        limit: Number of first queries to use; null: all.
        grid: The values to try.
        search: Options of search; those that differ from their defaults are written into the folder.
        hops: How retrieval goes hop by hop; written into the folder, too. A single step leaves hops that the
            folder stores as they are, untuned.
    """
    from grls.commands.retrievers import refuse_other_corpus, tell_unlike_training
    from grls.retrieve.base import untuned_fingerprint
    from grls.retrieve.registry import Opening, load_retriever
    from grls.retrieve.spec import recorded
    from grls.tune.run import tune_folder
    from grls.tune.step import DevQueries

    dev = DevQueries.read(data, split, limit)
    search_options = recorded(search)
    opened = load_retriever(retriever, Opening(device, precision, search, hop_by_hop=False))
    refuse_other_corpus(opened, data, split, dev.corpus)
    tell_unlike_training(opened)
    fingerprint = untuned_fingerprint(opened)
    del opened
    options = {"search": search_options} if search_options else {}
    single = hops.steps == "single"
    options |= {} if single else {"hops": recorded(hops)}
    tune_folder(retriever, dev, grid, Opening(device, precision), fingerprint, options, single)
    print(f"{retriever}: tuned on {counted(len(dev.queries), 'query')} of {split} of {data}")
