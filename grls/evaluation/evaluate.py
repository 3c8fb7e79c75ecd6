"""Scores a run against a data set with every metric that applies.

The data decide which metrics apply. Sequence recall and the measures of ``ir_measures`` always apply.
Complete recall, set F1 with the known number of gold passages: some query has two gold passages or more, or
(set F1) the results hold chains. Path match: some query has evidence of two passages or more (chains are
compared with it, or rankings if there are no chains); kinds of miss: the same, and gold passages have titles.
Answer recall: queries have accepted answers. Seen and unseen recall: there are training qrels. Set F1 and
DONE-missing: the results hold chains. Hits of every hop, exact sets and exact chains: the results hold
chains, or are those of a fixed number of hops. Graph checks: the results hold chains, and queries state a
RuleTaker-Open problem. Sets (``expected-f1``, a cut) have no order of hops, so of these they have exact sets
alone, and no path match. The conventions stand in ``grls.evaluation.metrics``, one file each. Scores by type:
the metadata of queries have a field ``type``. Gold passages: :func:`grls.data.dataset.gold_passages`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import (
    Qrels,
    any_order,
    gold_passages,
    proofs_of,
    read_qrels,
    relevant,
    warn_below_zero,
)
from grls.data.types import Hit, Query
from grls.evaluation.graph import Reading
from grls.evaluation.measures import MEASURES, RunDepth, mean_values, measure_names
from grls.evaluation.metrics.answer_recall import answer_recall
from grls.evaluation.metrics.averages import KS, cutoffs
from grls.evaluation.metrics.complete_recall import complete_recall
from grls.evaluation.metrics.done_missing import done_missing
from grls.evaluation.metrics.exact_chain import exact_chain
from grls.evaluation.metrics.graph_success import graph_success
from grls.evaluation.metrics.hop_hits import hop_hits
from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.path_match import Accepted, path_match
from grls.evaluation.metrics.seen_unseen import seen_unseen
from grls.evaluation.metrics.sequence_recall import sequence_recall
from grls.evaluation.metrics.set_f1 import set_f1
from grls.evaluation.misses import miss_kinds
from grls.evaluation.ruletaker import Problem, problem_of, states_problem
from grls.runs.comparable import judged_queries
from grls.runs.portions import split_asked
from grls.runs.results import passage_texts
from grls.runs.run import Run, shared_limit
from grls.runs.trec import align, without_done

Report = dict[str, Any]
"""Section -> metric -> value; ready for JSON."""


def evaluate_run(
    run: str | Path | Run,
    data: str | Path,
    split: str | None = None,
    ks: Sequence[int] | None = None,
    corpus: Corpus | None = None,
    measures: Sequence[str] | None = None,
) -> Report:
    """Score a file of results against one split of a data set.

    Queries of the run that belong to another split are ignored and counted. The manifest of a run, if any,
    must fit the run, the corpus and the queries of ``data``.

    Args:
        run: JSONL of results (name ending in ``.jsonl``) or a TREC run (any other name), or a loaded run.
        data: The data set folder (corpus, queries, qrels).
        split: The split of the qrels; None: the split in the manifest, else ``test``.
        ks: Cut-offs of the recalls; None: 1, 5, 10, 20.
        corpus: The corpus of ``data``, if it is already read.
        measures: Standard measures (:func:`grls.evaluation.measures.measure_names`); None: :data:`MEASURES
            <grls.evaluation.measures.MEASURES>`.

    Returns:
        The report of :func:`evaluate_results`, with ``split`` and ``score_mode``, and ``limit`` where the run
        answers the first queries of the split.

    Raises:
        ConfigError: There is no cut-off, a cut-off is below 1, or one of ``ks`` or ``measures`` reads deeper
            than the run was cut off.
        DataError: A file is missing or malformed, the run is empty, has changed since its manifest was
            written, has a query or passage id that the data set does not have, or answers no query of the
            split.
        MismatchError: The manifest names another corpus, other queries or another split.
    """
    cuts, names = cutoffs(KS if ks is None else ks), measure_names(MEASURES if measures is None else measures)
    loaded = run if isinstance(run, Run) else Run.load(run)
    split = split_asked(loaded.path, loaded.info, split)
    corpus = Corpus.read(data) if corpus is None else corpus
    (loaded,), queries, qrels = judged_queries([loaded], data, split, corpus)
    warn_below_zero(data, split, qrels)
    depth = RunDepth.of(loaded, len(corpus), [gold_passages(query, qrels) for query in queries])
    depth.refuse([] if ks is None else [f"recall@{k}" for k in cuts])
    depth.refuse([] if measures is None else names)
    seen = seen_gold(data, split)
    report = evaluate_results(loaded, queries, qrels, corpus, cuts, seen, names)
    mode = loaded.score_mode or "unknown"
    limit = shared_limit([loaded])
    part = {} if limit is None else {"limit": limit}
    return {"split": split, **part, "score_mode": mode, "depth": depth.ranks, **report}


def evaluate_results(
    run: Run,
    queries: Sequence[Query],
    qrels: Qrels,
    corpus: Corpus,
    ks: Sequence[int] = KS,
    seen: Collection[str] | None = None,
    measures: Sequence[str] = MEASURES,
    ordered: bool | None = None,
) -> Report:
    """Score a run in memory.

    Args:
        run: The run.
        queries: At least the judged queries.
        qrels: Their judgements.
        corpus: The corpus of the passages.
        ks: Cut-offs of the recalls.
        seen: Passages that are gold of a training query; None leaves out seen and unseen recall.
        measures: Standard measures (:func:`grls.evaluation.measures.measure_names`).
        ordered: Whether passages stand in hop order; None: as the run says.

    Returns:
        ``queries`` (counts: judged, unanswered, unjudged), ``sequence_recall``, ``measures``, and if they
        apply ``complete_recall``, ``answer_recall``, ``seen_unseen``, ``path_match``, ``misses``, ``set``,
        ``hops``, ``done_missing``, ``graph`` (by the paper's algorithm 3) and ``graph_reuse`` (a statement
        may be used again); each maps a metric to its value, or to None if it has none (as what reads deeper
        than the run was cut off: :mod:`grls.evaluation.measures`). ``by_type`` maps a type of questions to
        such metrics.

    Raises:
        DataError: The qrels are empty, or a hit is not in ``corpus``.
    """
    by_id = {query.id: query for query in queries}
    rankings, coverage = align(run.rankings, qrels, run.called)
    judged = [by_id[query_id] for query_id in rankings]
    gold = [gold_passages(query, qrels) for query in judged]
    chains: dict[str, list[Hit]] | None = None  # of every judged query; empty for one without a chain
    if run.chains:
        chains = {q: without_done(run.chains[q].hits) if q in run.chains else [] for q in qrels}
    retrieved = [*rankings.values(), *(chains or {}).values()]
    texts = passage_texts(corpus, (hit.id for hits in retrieved for hit in hits))
    ranked = {query: [hit.id for hit in hits] for query, hits in rankings.items()}
    ids = list(ranked.values())
    report: Report = {"queries": coverage._asdict(), "sequence_recall": sequence_recall(ids, gold, ks)}
    report["measures"] = mean_values(measures, ranked, qrels) or None
    several = max(map(len, gold)) > 1
    report["complete_recall"] = complete_recall(ids, gold, ks) if several else None
    report["answer_recall"] = None
    if answered := [query for query in judged if query.answers]:
        read = [[texts[hit.id] for hit in rankings[query.id][: max(ks)]] for query in answered]
        values = answer_recall(read, [query.answers for query in answered], ks)
        report["answer_recall"] = {**values, "queries": len(answered)}
    report["seen_unseen"] = None if seen is None else seen_unseen(ids, gold, seen, ks)
    passages = None if chains is None else [[hit.id for hit in hits] for hits in chains.values()]
    ordered = run.in_hop_order if ordered is None else ordered
    repeats = chains is not None and (run.info is None or run.info.options.get("repeat") is True)
    paths = accepted_paths(judged, gold, repeats)
    report["path_match"] = report["misses"] = None
    known = [(chain, path) for chain, path in zip(passages or ids, paths, strict=True) if path is not None]
    if ordered and any(len(path) > 1 for _, accepted in known for path in accepted.paths):
        values = path_match([chain for chain, _ in known], [accepted for _, accepted in known])
        report["path_match"] = {**values, "queries": len(known)}
        report["misses"] = miss_kinds(judged, passages or ids, paths, corpus)
    hops: FoundByHops | None = None
    if passages is not None:
        report["set"] = {**set_f1(passages, gold), **known_number(passages, gold)}
        hops = FoundByHops(passages, gold, paths, ordered)
    else:  # of rankings only F1 with the known number, where a query has several passages
        report["set"] = known_number(ids, gold) if several else None
        if run.steps == "fixed" and run.info is not None and ordered:
            # The ranking begins with the passages of the best chain; without their number no chain is whole.
            limit = run.info.options.get("hops")
            first = [chain[:limit] for chain in ids]
            hops = FoundByHops(first, gold, paths, complete=limit is not None, limit=limit)
    report["hops"] = None if hops is None else hops.scores() or None
    if chains is not None and run.steps == "dynamic":
        report["done_missing"] = done_missing([q in run.chains and run.chains[q].done for q in qrels])
    if chains is not None and ordered:
        problems = stated_problems(judged, corpus)
        proofs = [[texts[hit.id] for hit in chains[q]] for q in problems]
        readings: dict[str, Reading] = {"graph": "algorithm3", "graph_reuse": "reuse"} if problems else {}
        for section, reading in readings.items():
            rates = graph_success(proofs, [*problems.values()], reading)
            report[section] = {**rates, "queries": len(problems)}
    depth = RunDepth.of(run, len(corpus), gold)
    report = {section: depth.within(values) for section, values in report.items() if values is not None}
    types = scores_by_type(judged, ids, gold, ks, passages, hops)
    by_type = {name: depth.within(values) for name, values in types.items()}
    return {**report, **({"by_type": by_type} if by_type else {})}


def stated_problems(queries: Iterable[Query], corpus: Corpus) -> dict[str, Problem]:
    """Query id -> the RuleTaker-Open problem that its metadata state.

    Raises:
        DataError: A start fact is not in the corpus.
    """
    stated = {query.id: json.loads(query.metadata) for query in queries}
    stated = {query: metadata for query, metadata in stated.items() if states_problem(metadata)}
    texts = passage_texts(corpus, (start for metadata in stated.values() for start in metadata["start"]))
    problems = {query: problem_of(metadata, texts) for query, metadata in stated.items()}
    return {query: problem for query, problem in problems.items() if problem is not None}


def seen_gold(data: str | Path, split: str) -> set[str] | None:
    """The passages that are gold of a training query; None without another split ``train``."""
    file = Path(data) / "qrels" / "train.tsv"
    if split == "train" or not file.is_file():
        return None
    return {passage for grades in read_qrels(file).values() for passage in relevant(grades)}


def accepted_paths(
    queries: Sequence[Query], gold: Sequence[Collection[str]], repeats: bool = False
) -> list[Accepted | None]:
    """The gold evidence of each query, and equally good proofs in its metadata; None without evidence.

    Unless hops may repeat a passage (``repeats``), a passage that a proof uses again stands once.
    """
    paths: list[Accepted | None] = []
    for query, passages in zip(queries, gold, strict=True):
        evidence = [passage for passage in query.evidence if passage in set(passages)]
        proofs = [evidence, *proofs_of(query)]
        accepted = proofs if repeats else [list(dict.fromkeys(proof)) for proof in proofs]
        paths.append(Accepted(accepted, any_order(query)) if query.evidence else None)
    return paths


class FoundByHops(NamedTuple):
    """The passages that the hops of each query found.

    Passages without hop order (:attr:`grls.runs.run.Run.in_hop_order`) have no hits of hops and no paths; the
    exact set of a chain remains.

    Attributes:
        ids: Passage ids in hop order, without DONE.
        gold: Gold passage ids.
        paths: The accepted paths; None for a query without a known order.
        ordered: Whether the ids are in hop order.
        complete: Whether the ids are the whole chain and nothing else.
        limit: Largest number of hops; None: the length of the longest chain.
    """

    ids: Sequence[Sequence[str]]
    gold: Sequence[Collection[str]]
    paths: Sequence[Accepted | None]
    ordered: bool = True
    complete: bool = True
    limit: int | None = None

    def scores(self, rows: Iterable[int] | None = None) -> dict[str, float]:
        """``H1``, ``H2``, …, ``exact_set`` and ``exact_chain`` of some queries (None: all), where known."""
        rows = range(len(self.ids)) if rows is None else list(rows)
        ids, gold = [self.ids[n] for n in rows], [self.gold[n] for n in rows]
        paths = [self.paths[n] for n in rows] if self.ordered else []
        uses = [[] if path is None else path.paths[0] for path in paths]  # of passages, as often as used
        evidence = [[*path, *(set(names) - set(path))] for path, names in zip(uses, gold, strict=False)]
        hits = hop_hits(ids, evidence, self.limit) if self.ordered else {}
        return {**hits, **(exact_chain(ids, gold, paths) if self.complete else {})}


_MOST_TYPES = 20
"""More values than this are no types: the field has another meaning."""


def types_of(queries: Sequence[Query]) -> dict[str, list[int]]:
    """Type in the metadata -> rows of its queries, ascending by type; empty for fewer than two types."""
    rows: dict[str, list[int]] = {}
    for n, query in enumerate(queries):
        kind = json.loads(query.metadata).get("type")
        if isinstance(kind, str):
            rows.setdefault(kind, []).append(n)
    return dict(sorted(rows.items())) if 2 <= len(rows) <= _MOST_TYPES else {}


def scores_by_type(
    queries: Sequence[Query],
    ids: Sequence[Sequence[str]],
    gold: Sequence[Sequence[str]],
    ks: Sequence[int],
    chains: Sequence[Sequence[str]] | None = None,
    hops: FoundByHops | None = None,
) -> dict[str, dict[str, float | int]]:
    """Type -> recall and complete recall, with ``chains`` set F1, with ``hops`` their scores.

    All lists have one item a query: passage ids, best first or in hop order, or gold passage ids.
    """
    report = {}
    for kind, rows in types_of(queries).items():
        ranked, golds = [ids[n] for n in rows], [gold[n] for n in rows]
        scores: dict[str, float | int] = {"queries": len(rows)}
        scores |= sequence_recall(ranked, golds, ks) | complete_recall(ranked, golds, ks)
        if chains is not None:
            passages = [chains[n] for n in rows]
            scores |= {"set_f1": set_f1(passages, golds)["f1"], **known_number(passages, golds)}
        report[kind] = scores | ({} if hops is None else hops.scores(rows))
    return report


def format_report(report: Report) -> str:
    """The report as an aligned table: counts, then recalls by cut-off, then the rest (in percent).

    A note says where values are left out because the run was cut off before them.
    """
    counts = ", ".join(f"{count} {name}" for name, count in report["queries"].items())
    named = [f"{name} {report[name]}" for name in ("split", "limit", "score_mode") if name in report]
    rows: list[tuple[str, dict[int, float | None]]] = []  # name, cut-off -> value of every recall
    for section, prefix, name in (
        ("sequence_recall", "recall@", "sequence recall"),
        ("seen_unseen", "seen_recall@", "  of seen passages"),
        ("seen_unseen", "unseen_recall@", "  of unseen passages"),
        ("complete_recall", "complete_recall@", "complete recall"),
        ("answer_recall", "answer_recall@", "answer recall"),
    ):
        recalls = {key: value for key, value in report.get(section, {}).items() if key.startswith(prefix)}
        if recalls:
            rows.append((name, {int(key.removeprefix(prefix)): value for key, value in recalls.items()}))
    ks = sorted({k for _, values in rows for k in values})
    lines = [", ".join([*named, f"queries: {counts}"]), ""]
    lines.append(" " * 22 + "".join(f"{f'R@{k}':>8}" for k in ks))
    lines += [f"{name:<22}" + "".join(_percent(values.get(k)) for k in ks) for name, values in rows]
    unseen = report.get("seen_unseen", {}).get("all_unseen_queries")
    if unseen is not None:
        lines.append(f"{'queries, all unseen':<22}" + _percent(unseen / report["queries"]["judged"]))
    sections = ("measures", "path_match", "misses", "set", "hops", "done_missing", "graph", "graph_reuse")
    for section in sections:
        for name, value in report.get(section, {}).items():
            shown = _percent(value) if name != "queries" else f"{value:>8}"
            alone = section in (name, "measures", "hops") or name.startswith("miss_")
            keys = [name] if alone else [section, name]
            lines.append(f"{measure_label(*keys):<22}{shown}")
    types = report.get("by_type", {})
    if types:  # recall and complete recall, then a table of their other metrics
        lines += ["", "by type"]
    for name, values in types.items():
        for label, prefix in ((name, "recall@"), ("  complete", "complete_recall@")):
            lines.append(f"{label:<22}" + "".join(_percent(values.get(f"{prefix}{k}")) for k in ks))
    metrics = dict.fromkeys(n for values in types.values() for n in values if n != "queries" and "@" not in n)
    metrics = dict.fromkeys(sorted(metrics, key=lambda name: name.startswith("exact_")))  # after all hops
    heads = {name: f"  {measure_label(name):>6}" for name in metrics}
    if heads:
        lines += ["", f"{'by type':<22}" + "".join(heads.values())]
        lines += [
            f"{name:<22}" + "".join(_percent(values.get(n)).rjust(len(head)) for n, head in heads.items())
            for name, values in types.items()
        ]
    depth = RunDepth(report.get("depth"))
    dicts = [values for values in report.values() if isinstance(values, dict)]
    if not all(depth.tells(metric) for values in dicts for metric in values):
        lines += ["", *textwrap.wrap(depth.note(), 100)]
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{100 * value:8.1f}"


_LABELS = {
    "set f1": "set F1",
    "f1 known number": "set F1, known number",
    "set f1 known number": "set F1, known number",
    "done missing": "DONE missing",
}


def measure_label(*keys: str) -> str:
    """The name of a measure in tables: the glossary's.

    Args:
        keys: The key of the measure (``f1_known_number``), after the section of the report if need be.
    """
    words = " ".join(keys).replace("_", " ")
    return _LABELS.get(words, words)
