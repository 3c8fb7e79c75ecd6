"""``grls retrieve``: retrieve for the queries of a data set, in a single step or hop by hop."""

from __future__ import annotations

from grls.cluster.options import USUAL_WORKERS, WorkerOptions
from grls.data.filter_options import NO_FILTER, FilterOptions
from grls.data.words import USUAL, Analyzer
from grls.models.precision_names import Precision
from grls.retrieve.bm25_options import USUAL_BM25, BM25Options
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions


def retrieve(
    retriever: str,
    *,
    data: str,
    output: str,
    split: str | None = "test",
    limit: int | None = None,
    k: int = 10,
    search: SearchOptions = USUAL_SEARCH,
    hops: HopOptions = USUAL_HOPS,
    filter: FilterOptions = NO_FILTER,
    bm25: BM25Options = USUAL_BM25,
    analyzer: Analyzer = USUAL,
    device: str = "auto",
    precision: Precision = "float32",
    name: str | None = None,
    ray: str | None = None,
    workers: WorkerOptions = USUAL_WORKERS,
) -> None:
    """Retrieve for queries.

    Writes OUTPUT.trec (a TREC run; none where an id holds white space), OUTPUT.jsonl (with evidence text) and
    OUTPUT.info.json (what made them, for `grls fuse` and `grls report`). With many queries a killed run
    resumes when it is called again with the same options (OUTPUT.retrieved.jsonl). Options of search and hops
    that the folder stores replace the defaults.

    Args:
        retriever: Retriever folder of any kind, or `bm25`: BM25 over the corpus of the data set.
        data: Data set folder (queries and qrels), or a queries.jsonl where ``split`` is null.
        output: Path of the results without ending.
        split: Split of the queries; null: all queries of the file.
        limit: Number of first queries of the split; null: all. The manifest records it: the run is scored on
            these queries, and is fused and compared with runs for the same ones.
        k: Passages a query (in a single step, with ranked hops, and with ``hops.pool``).
        search: Options of search.
        hops: Options of retrieval hop by hop.
        filter: Which passages may be found.
        bm25: How `bm25` scores passages.
        analyzer: How `bm25` splits texts into words.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: Precision of the model: bfloat16 where the processor has it; float16-weights
            or int8 on CPUs (generators only); auto measures.
        name: Name of the run in reports; null: a name from the system and the steps.
        ray: Address of a Ray cluster whose workers share the queries: HOST:PORT, auto, or local for a cluster
            on this machine. All its machines must see the files. Scores are those of one process up to the
            rounding of float32.
        workers: How many workers, and their shards.
    """
    from grls.cluster.options import workers_of
    from grls.cluster.plan import alone_at_shards
    from grls.commands.run_shards import AskedAgain, share_queries
    from grls.io.ending import quiet
    from grls.io.files import refuse_unwritable
    from grls.retrieve.queries import check_counts

    quiet()
    sharing = workers_of(ray, workers)
    check_counts(k=k)
    refuse_unwritable(output)
    asked = AskedAgain(
        retriever, data, split, limit, k, search, hops, filter, bm25, analyzer, device, precision
    )
    run = asked.opened()
    if sharing is None:
        print(run.save(output, name))
        return
    with alone_at_shards(output):
        print(run.save(output, name, share_queries(run, asked, sharing, output)))
