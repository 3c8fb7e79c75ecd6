"""``grls explain``: why a gold passage was found, or why not."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from grls.errors import ConfigError, DataError
from grls.explain.options import USUAL_CASE, CaseOptions, candidates_listed
from grls.models.option_names import Precision
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
    k: int | None = None,
    search: SearchOptions = USUAL_SEARCH,
    hops: HopOptions = USUAL_HOPS,
    output: str | None = None,
    limit: int | None = None,
    device: str = "auto",
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
    Of answers (NAME.answers.jsonl of `grls answer riches` or another program) in the place of a retriever it
    says whether a wrong one is a failure of index, search or attribution.

    Args:
        query: A query id of ``data``, the text of a query (without ``data``, or with a space), or `all`
            for a summary over ``split``.
        retriever: Folder of a retriever of any kind, or `bm25`: BM25 over the corpus of ``data``; or answers,
            NAME.answers.jsonl.
            Decoding steps are explained of those that decode whole passages: generative, with priors
            (hybrid), or either hop by hop (hops).
        data: Data set folder; null: that of the run of `grls fit` that made the retriever, if the query is
            one of it; of answers, that of their manifest.
        split: The split whose qrels name the gold passages; null: test, or that of the answers. It must judge
            the query, unless case.gold is set.
        case: What is explained, and how far it is looked into.
        k: Number of passages to search for; null: 10 in a single step and in ranked hops, else as many as
            continue a chain (hops.branch, or 4). Where ranks are printed: the number of passages that are
            ranked; null: 100.
        search: Options of search.
        hops: single: every gold passage without evidence; fixed and dynamic: hop by hop, each gold passage
            after those before it in gold order (dynamic: DONE may be written, with its bias). The numbers
            of hops and chains have no effect there. ranked: so, and at last where each gold passage stands
            in the ranking of that many hops.
        output: Write OUTPUT.html (with the beam tree) and OUTPUT.json; for `all`, and where ranks are
            printed, OUTPUT.json alone.
        limit: For `all`: number of first queries to explain; null: all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: Precision of the model: float32, bfloat16, or int8 on CPUs (generators only); auto:
            bfloat16 where the processor has it.
    """
    from grls.commands.opening import bm25_over
    from grls.data.dataset import gold_passages, read_queries, read_split
    from grls.explain.asks import asks_of, explainable, hops_of, ids_of, query_and_gold
    from grls.explain.explain import Explainer
    from grls.explain.page import write_explanations
    from grls.explain.standing import (
        DEPTH,
        format_ranks,
        in_ranking,
        line_of,
        rank_counts,
        rank_record,
        refuse_stepwise,
        standing_parts,
        standing_record,
        standings,
    )
    from grls.explain.text import format_explanation, format_summary, parts_text, plain_values, summarise
    from grls.io.files import refuse_unwritable
    from grls.retrieve.base import single_steps
    from grls.retrieve.hops.retriever import hop_by_hop
    from grls.retrieve.hops.stop import stop_of_hop
    from grls.retrieve.registry import Opening, load_retriever, names_bm25
    from grls.retrieve.spec import data_beside

    if query == EVERY and any(value is not None for value in (case.gold, case.evidence, case.hop)):
        raise ConfigError(
            f"--case.gold, --case.evidence and --case.hop are of one query; for {EVERY!r} leave them out."
        )
    if output is not None:
        refuse_unwritable(output)
    hops.refuse_bias()
    if retriever.endswith(".answers.jsonl"):
        from grls.explain.losses import answer_parts, failure_record, format_failures, judge_answers

        changed = k is not None or search != USUAL_SEARCH or hops != USUAL_HOPS
        if changed or replace(case, propositions=None) != USUAL_CASE:
            raise ConfigError(
                "--k, --case, --search and --hops are of a search, and --retriever names answers: leave them "
                "out, but for --case.propositions."
            )
        judged = judge_answers(retriever, data, split, limit, case.propositions)
        if query == EVERY:
            print(format_failures(judged))
            each = {answer.query.id: answer.failure or "right" for answer in judged}
            _write(output, {**failure_record(judged), "answers": each})
            return
        answer = next((answer for answer in judged if answer.query.id == query), None)
        if answer is None:
            near = get_close_matches(query, [answer.query.id for answer in judged], 1)
            raise DataError(
                f"no query {query!r} among the {len(judged):,} with gold passages and accepted answers"
                + (f"; did you mean {near[0]!r}?" if near else "; give a query id of the split, or all."),
                retriever,
            )
        print(parts_text(answer_parts(answer)))
        _write(output, plain_values(answer))
        return
    split = split or "test"
    is_bm25 = names_bm25(retriever)
    if data is None and not is_bm25 and Path(retriever).is_dir():
        folder = data_beside(Path(retriever))
        if folder and (query == EVERY or any(row.id == query for row in read_queries(folder))):
            data = str(folder)
    if is_bm25:
        opened = bm25_over(data)
    else:
        opening = Opening(device, precision, None if search == USUAL_SEARCH else search)
        opened = load_retriever(retriever, opening)
    single = single_steps(opened)
    decoding = explainable(single)
    depth = DEPTH if k is None else k
    explainer = None
    if decoding is None:
        refuse_stepwise(opened, retriever, case, search, hops)
    else:
        k = candidates_listed(hops) if k is None else k
        explainer = Explainer(decoding, k, case.widest, case.exhaustive, stop_of_hop(single, hops))
    if query == EVERY:
        if data is None:
            raise ConfigError(f"{EVERY!r} looks at the queries of a split: give --data DIR.")
        queries, qrels = read_split(data, split, opened.corpus, limit, known=True)
        if explainer is not None:
            summary = summarise(explainer, asks_of(queries, qrels, hops.chained))
            print(format_summary(summary))
            _write(output, summary.record())
            return
        ranks: list[int | None] = []
        records: list[dict[str, object]] = []
        for row in queries:
            if not (order := gold_passages(row, qrels)):
                continue
            golds = standings(opened, row, order, depth, links=False)
            print(line_of(golds))
            ranks += [standing.rank for standing in golds]
            records.append(rank_record(golds))
        if not ranks:
            raise DataError(f"no query of --split {split} has a gold passage; give another split.", data)
        print("\n" + format_ranks(ranks, depth))
        described = opened.describe()
        counts = {"retriever": described.name, "scores": described.score_mode, **rank_counts(ranks, depth)}
        _write(output, counts | {"queries": records})
        return
    question, order = query_and_gold(query, data, split, case.gold is not None, opened.corpus)
    gold = ids_of(case.gold, opened.corpus)
    if explainer is None:
        ((named, _),) = hops_of(order, gold, None, None, "single")
        golds = standings(opened, question, named, depth)
        print("\n\n".join(parts_text(standing_parts(standing)) for standing in golds))
        _write(output, [standing_record(standing) for standing in golds])
        return
    evidence = None if case.evidence is None else ids_of(case.evidence, opened.corpus)
    asks = hops_of(order, gold, evidence, case.hop, hops.chained)
    explanations = [e for ask in asks for e in explainer.explain(question, *ask)]
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n\n".join(format_explanation(e, colour) for e in explanations))
    if hops.steps == "ranked":  # the explanations above are of single hops
        explained = [explanation.gold for explanation in explanations]
        for ranked in standings(hop_by_hop(opened, hops), question, explained, DEPTH):
            print(f"\n{ranked.gold}\n\n{parts_text(in_ranking(ranked))}")
    if output is not None:
        print("\nwrote " + ", ".join(write_explanations(output, explanations)))


def _write(output: str | None, facts: object) -> None:
    from grls.io.files import write_json

    if output is not None:
        write_json(f"{output}.json", facts)
        print(f"\nwrote {output}.json")
