"""Scores a run against a data set with every metric that applies: a table query x metric, and its means.

The data decide which metrics apply. Sequence recall and the measures of ``ir_measures`` always apply.
Complete recall, set F1 with the known number of gold passages: some query has two gold passages or more, or
(set F1) the results hold chains. Path match: some query has evidence of two passages or more (chains are
compared with it, or rankings if there are no chains); kinds of miss: the same, and gold passages have titles.
Answer recall: queries have accepted answers. Seen and unseen recall: there are training qrels. Set F1 and
DONE-missing: the results hold chains. Hits of every hop, exact sets and exact chains: the results hold
chains, or are those of a fixed number of hops. Graph checks: the results hold chains, and queries state a
RuleTaker-Open problem. Sets (``expected-f1``) have no order of hops, so of these they have exact sets
alone, and no path match. The conventions stand in ``grls.evaluation.metrics``. Scores by type: the metadata
of queries have a field ``type``. Gold passages: :func:`grls.data.dataset.gold_passages`.
"""

from __future__ import annotations

import json
import logging
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from grls.data.corpus import Corpus
from grls.data.dataset import (
    Qrels,
    any_order,
    gold_passages,
    passage_queries,
    proofs_of,
    read_qrels,
    read_queries,
    read_split,
    relevant,
)
from grls.data.types import Query
from grls.errors import DataError, Option
from grls.evaluation.graph import Reading, graph_success
from grls.evaluation.measures import MEASURES, RunDepth, measure_names, query_values
from grls.evaluation.metrics import (
    KS,
    Accepted,
    answer_recall,
    averages,
    complete_recall,
    cutoffs,
    done_missing,
    exact_chain,
    hop_hits,
    known_number,
    path_match,
    score_table,
    seen_unseen,
    sequence_recall,
    set_f1,
)
from grls.evaluation.misses import NOTE, miss_kinds
from grls.evaluation.ruletaker import Problem, problem_of, states_problem
from grls.io.progress import counted
from grls.runs.comparable import refuse_other_data, refuse_unknown_passages
from grls.runs.portions import split_asked, which_queries
from grls.runs.results import passage_texts
from grls.runs.run import Run, shared_limit
from grls.runs.trec import coverage_of, ids_of, refuse_unknown

log = logging.getLogger(__name__)

Report = dict[str, Any]
"""Section -> metric -> value; ready for JSON."""


@dataclass(frozen=True)
class Judged:
    """A run as measures read it, and the queries that judge it.

    Attributes:
        run: The run.
        queries: At least the judged queries.
        qrels: Their judgements.
        corpus: The corpus of the passages.
        data: The data set; empty: none on disk.
        split: The split of the qrels.
    """

    run: Run
    queries: Sequence[Query]
    qrels: Qrels
    corpus: Corpus
    data: str = ""
    split: str = "test"

    @cached_property
    def gold(self) -> dict[str, list[str]]:
        """Judged query -> its gold passages."""
        by_id = {query.id: query for query in self.queries}
        return {query: gold_passages(by_id[query], self.qrels) for query in self.qrels}

    @cached_property
    def depth(self) -> RunDepth:
        """How deep the run is."""
        return RunDepth.of(self.run, len(self.corpus), [*self.gold.values()])

    @cached_property
    def ids(self) -> dict[str, list[str]]:
        """Judged query -> what was retrieved, best first; empty for a query without an answer."""
        return {query: ids_of(self.run.rankings.get(query, ())) for query in self.qrels}

    @cached_property
    def chains(self) -> dict[str, list[str]]:
        """Judged query -> its chain, empty for one without; no query, if the run holds no chains."""
        chains = self.run.chains
        return {q: ids_of(chains[q].hits) if q in chains else [] for q in self.qrels} if chains else {}


def judged_runs(
    runs: Sequence[Run], data: str | Path, split: str | None = None, corpus: Corpus | None = None
) -> list[Judged]:
    """Runs with the queries of a split (None: that of the manifests, else ``test``) that judge them.

    Queries of a run that belong to another split are ignored and counted. A run of other data is refused: by
    its manifest, if there is one, and by its ids. A query that is a passage does not find itself.
    """
    bound = next((run for run in runs if run.info is not None and run.info.split is not None), runs[0])
    split = split_asked(bound.path, bound.info, split)
    corpus = Corpus.read(data) if corpus is None else corpus
    limit = shared_limit(runs)
    queries, qrels = read_split(data, split, corpus, limit)
    every = read_queries(data)
    known = {which_queries(split, limit): queries, which_queries(None, None): every}
    for run in runs:
        refuse_other_data(run, data, corpus, known)
        if not run.rankings:
            raise DataError("the run has no line; retrieve again.", run.path)
        try:
            refuse_unknown(run.rankings, {query.id for query in every}, "query", f"{data}/queries.jsonl")
        except DataError as error:
            raise DataError(error.text, run.path) from None
        if qrels.keys().isdisjoint(run.rankings):
            raise DataError(
                f"the run answers no query of the split {split!r}: give {Option('split')} as it was "
                "retrieved for.",
                run.path,
            )
    refuse_unknown_passages(runs, corpus)
    if below := [grade for grades in qrels.values() for grade in grades.values() if grade < 0]:
        log.warning(
            "%s: %s below zero; such passages are not relevant, as with the grade 0.",
            Path(data) / "qrels" / f"{split}.tsv", counted(len(below), "grade is", "grades are"),
        )  # fmt: skip
    own = passage_queries(queries, qrels, corpus)
    return [Judged(run.without_own(own), queries, qrels, corpus, str(data), split) for run in runs]


def evaluate_run(
    run: str | Path | Run,
    data: str | Path,
    split: str | None = None,
    ks: Sequence[int] | None = None,
    measures: Sequence[str] | None = None,
) -> Report:
    """Score a file of results against one split of a data set.

    Args:
        run: JSONL of results (name ending in ``.jsonl``) or a TREC run (any other name), or a loaded run.
        data: The data set folder (corpus, queries, qrels).
        split: The split of the qrels; None: the split in the manifest, else ``test``.
        ks: Cut-offs of the recalls; None: 1, 5, 10, 20.
        measures: Standard measures (:func:`grls.evaluation.measures.measure_names`); None: :data:`MEASURES
            <grls.evaluation.measures.MEASURES>`.
    """
    names = None if measures is None else measure_names(measures)
    (judged,) = judged_runs([run if isinstance(run, Run) else Run.load(run)], data, split)
    judged.depth.refuse([*(f"recall@{k}" for k in ks or ()), *(names or ())])
    return score_run(judged, KS if ks is None else ks, MEASURES if names is None else names)


def score_run(
    judged: Judged,
    ks: Sequence[int] = KS,
    measures: Sequence[str] = MEASURES,
    ordered: bool | None = None,
) -> Report:
    """Score a run.

    Args:
        judged: The run.
        ks: Cut-offs of the recalls.
        measures: Standard measures, as ``ir_measures`` writes them.
        ordered: Whether passages stand in hop order; None: as the run says.

    Returns:
        ``split``, ``limit`` (where the run answers the first queries of the split), ``score_mode``,
        ``depth``, ``queries`` (counts: judged, unanswered, unjudged), ``sequence_recall``, ``measures``, and
        if they apply ``complete_recall``, ``answer_recall``, ``seen_unseen``, ``path_match``, ``misses``,
        ``set``, ``hops``, ``done_missing``, ``graph`` (by the paper's algorithm 3) and ``graph_reuse`` (a
        statement may be used again); each maps a metric to its value, or to None if it has none (as what
        reads deeper than the run was cut off: :mod:`grls.evaluation.measures`). ``by_type`` maps a type of
        questions to such metrics.
    """
    run, qrels, gold, ids, chains = judged.run, judged.qrels, judged.gold, judged.ids, judged.chains
    ks, coverage = cutoffs(ks), coverage_of(run.rankings, qrels, run.called)
    by_id = {query.id: query for query in judged.queries}
    queries = [by_id[query] for query in qrels]
    several = max(map(len, gold.values())) > 1
    texts = passage_texts(judged.corpus, (i for found in (*ids.values(), *chains.values()) for i in found))
    ordered = run.in_hop_order if ordered is None else ordered
    repeats = bool(chains) and (run.info is None or run.info.options.get("repeat") is True)
    paths = accepted_paths(queries, gold, repeats) if ordered else {}

    tables = {  # section -> query x metric
        "sequence_recall": score_table(sequence_recall, ids, gold, ks=ks),
        "measures": pd.DataFrame(query_values(measures, ids, qrels), index=list(qrels)),
        "complete_recall": score_table(complete_recall, ids, gold, ks=ks),
    }
    if answers := {query.id: query.answers for query in queries if query.answers}:
        read = {query: [texts[passage] for passage in ids[query][: max(ks)]] for query in answers}
        tables["answer_recall"] = score_table(answer_recall, read, answers, ks=ks).assign(queries=1)
    if (seen := seen_gold(judged.data, judged.split)) is not None:
        tables["seen_unseen"] = score_table(seen_unseen, ids, gold, seen=seen, ks=ks)
    if any(len(path) > 1 for accepted in paths.values() for path in accepted.paths):
        tables["path_match"] = score_table(path_match, chains or ids, paths).assign(queries=1)
        if misses := miss_kinds(queries, chains or ids, paths, judged.corpus):
            tables["misses"] = pd.DataFrame.from_dict(misses, orient="index").assign(queries=1)
    if chains or several:
        tables["set"] = score_table(known_number, chains or ids, gold)
    hops, limit, whole = chains, None, True
    if chains:
        tables["set"] = score_table(set_f1, chains, gold).join(tables["set"])
    elif run.steps == "fixed" and run.info is not None and ordered:
        # The ranking begins with the passages of the best chain; without their number no chain is whole.
        limit = run.info.options.get("hops")
        hops, whole = {query: found[:limit] for query, found in ids.items()}, limit is not None
    if hops:
        parts = []
        if ordered:
            uses = {query: paths[query].paths[0] if query in paths else () for query in gold}
            evidence = {query: [*path, *({*gold[query]} - {*path})] for query, path in uses.items()}
            longest = max(map(len, hops.values()))
            parts.append(score_table(hop_hits, hops, evidence, limit=longest if limit is None else limit))
        if whole:
            parts.append(score_table(exact_chain, hops, gold, {query: paths.get(query) for query in gold}))
        tables["hops"] = pd.concat(parts, axis=1)
    if chains and run.steps == "dynamic":
        done = {query: query in run.chains and run.chains[query].done for query in qrels}
        tables["done_missing"] = score_table(done_missing, done)
    if chains and ordered and (problems := stated_problems(queries, judged.corpus)):
        proofs = {query: [texts[passage] for passage in chains[query]] for query in problems}
        readings: dict[str, Reading] = {"graph": "algorithm3", "graph_reuse": "reuse"}
        for section, reading in readings.items():
            scores = score_table(graph_success, proofs, problems, reading=reading)
            tables[section] = scores.assign(queries=1)

    typed = [tables["sequence_recall"], tables["complete_recall"]]
    if chains:
        typed.append(tables["set"][["f1", "f1_known_number"]].rename(columns={"f1": "set_f1"}))
    typed += [tables["hops"]] if "hops" in tables else []
    if not several:  # it is the sequence recall
        del tables["complete_recall"]
    depth, part = judged.depth, shared_limit([run])
    report: Report = {"split": judged.split, **({} if part is None else {"limit": part})}
    report |= {"score_mode": run.score_mode or "unknown", "depth": depth.ranks, "queries": coverage._asdict()}
    report |= {
        section: depth.within(averages(table)) for section, table in tables.items() if len(table.columns)
    }
    by_type = {}
    for kind, rows in pd.concat(typed, axis=1).groupby(types_of(queries)):
        by_type[kind] = {"queries": len(rows), **depth.within(averages(rows.dropna(axis=1, how="all")))}
    return report | ({"by_type": by_type} if by_type else {})


def stated_problems(queries: Iterable[Query], corpus: Corpus) -> dict[str, Problem]:
    """Query id -> the RuleTaker-Open problem that its metadata state."""
    stated = {query.id: json.loads(query.metadata) for query in queries}
    stated = {query: metadata for query, metadata in stated.items() if states_problem(metadata)}
    texts = passage_texts(corpus, (start for metadata in stated.values() for start in metadata["start"]))
    problems = {query: problem_of(metadata, texts) for query, metadata in stated.items()}
    return {query: problem for query, problem in problems.items() if problem is not None}


def seen_gold(data: str | Path, split: str) -> set[str] | None:
    """The passages that are gold of a training query; None without another split ``train``."""
    file = Path(data) / "qrels" / "train.tsv"
    if not data or split == "train" or not file.is_file():
        return None
    return {passage for grades in read_qrels(file).values() for passage in relevant(grades)}


def accepted_paths(
    queries: Sequence[Query], gold: Mapping[str, Collection[str]], repeats: bool = False
) -> dict[str, Accepted]:
    """Query id -> its gold evidence, and equally good proofs in its metadata; of the queries with evidence.

    Unless hops may repeat a passage (``repeats``), a passage that a proof uses again stands once.
    """
    paths = {}
    for query in queries:
        if query.evidence:
            evidence = [passage for passage in query.evidence if passage in set(gold[query.id])]
            proofs = [evidence, *proofs_of(query)]
            accepted = proofs if repeats else [list(dict.fromkeys(proof)) for proof in proofs]
            paths[query.id] = Accepted(accepted, any_order(query))
    return paths


_MOST_TYPES = 20
"""More values than this are no types: the field has another meaning."""


def types_of(queries: Sequence[Query]) -> dict[str, str]:
    """Query id -> the type in its metadata; empty for fewer than two types."""
    types = {query.id: json.loads(query.metadata).get("type") for query in queries}
    types = {query: kind for query, kind in types.items() if isinstance(kind, str)}
    return types if 2 <= len({*types.values()}) <= _MOST_TYPES else {}


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
    if "misses" in report:
        lines += ["", *textwrap.wrap(NOTE, 100)]
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{100 * value:8.1f}"


_LABELS = {
    "set f1": "set F1",
    "f1 known number": "set F1, known number",
    "set f1 known number": "set F1, known number",
    "done missing": "DONE missing",
    "miss later hop": "missed: later hop",
    "miss title detail": "missed: similar title",
    "miss implicit first hop": "missed: not named",
    "miss distracted": "missed: named",
    "misses queries": "missed: queries",
}


def measure_label(*keys: str) -> str:
    """The name of a measure in tables: the glossary's.

    Args:
        keys: The key of the measure (``f1_known_number``), after the section of the report if need be.
    """
    words = " ".join(keys).replace("_", " ")
    return _LABELS.get(words, words)
