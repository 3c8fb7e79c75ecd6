"""``grls explain``: why a gold passage was found, or why not."""

from __future__ import annotations

from pathlib import Path

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.explain.options import USUAL_CASE, CaseOptions
from grls.io.arguments import Count
from grls.models.option_names import Device, Precision
from grls.retrieve.base import Retriever
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions

EVERY = "all"
"""The QUERY that stands for a whole split."""


def explain(
    query: str,
    *,
    retriever: str,
    data: str | None = None,
    split: str | None = None,
    case: CaseOptions = USUAL_CASE,
    k: Count | None = None,
    search: SearchOptions = USUAL_SEARCH,
    hops: HopOptions = USUAL_HOPS,
    output: str | None = None,
    limit: Count | None = None,
    device: Device = "auto",
    precision: Precision = "float32",
) -> None:
    """Explain why a gold passage was found, or why not.

    Says at which decoding step its prefix left the beam and by how much, what its whole score would have
    been, and so whether the beam or the model was at fault. All scores include the priors of a hybrid. For
    `all` it counts the verdicts of a split. Only the search is explained, not how rescoring changes its
    ranking.
    For a retriever of another kind (BM25, bi-encoders, fusions, rescored ones, generators of spans or with
    removed passages) it says the rank and score of each gold passage and what stands above it; for `all`, one
    line for each query and the number of gold passages up to each rank. ``output`` writes the same as JSON.

    Args:
        query: A query id of ``data``, the text of a query (without ``data``, or with a space), or `all`
            for a summary over ``split``.
        retriever: Folder of a retriever of any kind, or `bm25`: BM25 over the corpus of ``data``. Decoding
            steps are explained of those that decode whole passages: generative, with priors (hybrid), or
            either hop by hop (hops).
        data: Data set folder; null: that of the run of `grls fit` that made the retriever, if the query is
            one of it.
        split: The split whose qrels name the gold passages; null: the one that judges the query; for `all`
            test.
        case: What is explained.
        k: Number of passages to search for; null: 10 in a single step and in ranked hops, else as many as
            continue a chain (hops.branch, or 4). Where ranks are printed: the number of passages that are
            ranked; null: 100.
        search: Options of search.
        hops: Of a search that decodes passages: single: every gold passage without evidence; fixed and
            dynamic: hop by hop, each gold passage after those before it in gold order (dynamic: DONE may be
            written, with its bias); ranked: so, and where each gold passage stands in the ranking.
        output: Write OUTPUT.json with all facts.
        limit: For `all`: number of first queries to explain; null: all.
    """
    from grls.api.explaining import explain_query, find_query
    from grls.commands.retrievers import bm25_over
    from grls.data.dataset import read_queries
    from grls.explain.explain import Explanation
    from grls.explain.standing import DEPTH, standing_record
    from grls.explain.text import explanation_record
    from grls.io.files import refuse_unwritable
    from grls.retrieve.hops.retriever import hop_by_hop
    from grls.retrieve.registry import Opening, load_retriever, names_bm25
    from grls.retrieve.spec import data_beside

    if query == EVERY and case.gold is not None:
        raise ConfigError(f"--case.gold is of one query; for {EVERY!r} leave it out.")
    if output is not None:
        refuse_unwritable(output)
    hops.refuse_bias()
    folder = None if data is None else Path(data)
    if names_bm25(retriever):
        opened = bm25_over(data)
    else:
        opening = Opening(device, precision, None if search == USUAL_SEARCH else search)
        opened = load_retriever(retriever, opening)
        beside = data_beside(Path(retriever)) if folder is None and Path(retriever).is_dir() else None
        if beside and (query == EVERY or any(row.id == query for row in read_queries(beside))):
            folder = beside
    opened = hop_by_hop(opened, hops)
    if query == EVERY:
        if folder is None:
            raise ConfigError(f"{EVERY!r} looks at the queries of a split: give --data DIR.")
        _explain_split(opened, str(folder), split or "test", limit, k, output)
        return
    gold = _ids(case.gold or "", opened.corpus)
    question, order = find_query(query, gold, folder, split, opened.corpus)
    explained = explain_query(opened, question, order, k or DEPTH, k)
    print(explained)
    records = [
        explanation_record(one.details)
        if isinstance(one.details, Explanation)
        else standing_record(one.details)
        for one in explained
    ]
    _write(output, records)


def _ids(listed: str, corpus: Corpus) -> list[str]:
    """Ids separated by commas; a single id may itself hold commas."""
    if corpus.numbers([listed])[0] is not None:
        return [listed]
    return [part.strip() for part in listed.split(",") if part.strip()]


def _explain_split(
    retriever: Retriever, data: str, split: str, limit: int | None, k: int | None, output: str | None
) -> None:
    """Count the verdicts of all gold passages, or their ranks."""
    from grls.data.dataset import gold_passages, read_split
    from grls.explain.explain import explainer_of, gold_by_hop
    from grls.explain.standing import DEPTH, format_ranks, line_of, rank_counts, rank_record, standings
    from grls.explain.text import format_summary, plain_facts, summarise

    queries, qrels = read_split(data, split, retriever.corpus, limit, known=True)
    orders = [(row, order) for row in queries if (order := gold_passages(row, qrels))]
    if not orders:
        raise DataError(f"no query of --split {split} has a gold passage; give another split.", data)
    if explaining := explainer_of(retriever, k):
        explainer, hops = explaining
        asks = [(row, *hop) for row, order in orders for hop in gold_by_hop(order, hops.chained)]
        summary = summarise(explainer, asks)
        print(format_summary(summary))
        _write(output, plain_facts(summary))
        return
    depth = k or DEPTH
    ranks: list[int | None] = []
    records: list[dict[str, object]] = []
    for row, order in orders:
        golds = standings(retriever, row, order, depth, links=False)
        print(line_of(golds))
        ranks += [standing.rank for standing in golds]
        records.append(rank_record(golds))
    described, counts = retriever.describe(), rank_counts(ranks, depth)
    print("\n" + format_ranks(counts))
    named = {"retriever": described.name, "scores": described.score_mode}
    _write(output, named | counts | {"queries": records})


def _write(output: str | None, facts: object) -> None:
    from grls.io.files import write_json

    if output is not None:
        write_json(f"{output}.json", facts)
        print(f"\nwrote {output}.json")
