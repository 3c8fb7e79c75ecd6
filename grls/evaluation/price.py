"""The price of DONE: the set F1 that a system loses because it has to find out where its chains end.

A run that ends by itself (chains until DONE, rankings that are cut) is compared with a run of the same system
that does not end: a fixed number of hops, or the rankings before the cut. The price of a query with n gold
passages is the set F1 of the first n passages of the second run less the set F1 of all passages of the first,
in [-1, 1]. It is below 0 where a longer chain holds what the first n passages lack: to know the number is no
upper bound. If several chains are kept, the first n passages of the best chain of a fixed number of hops need
not be the best chain of n hops; the price then includes that difference.

Manifests tell which runs belong together; a run without an end that has fewer passages than n bounds the
price from below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages
from grls.errors import ConfigError, MismatchError, Option
from grls.evaluation.evaluate import types_of
from grls.evaluation.metrics.known_number import known_number_f1
from grls.evaluation.metrics.set_f1 import set_scores
from grls.evaluation.significance import CONFIDENCE, Comparison, compare
from grls.io.progress import counted
from grls.runs.comparable import judged_queries, load_runs
from grls.runs.portions import RunInfo, differ, split_asked
from grls.runs.run import Run
from grls.runs.trec import without_done

Passages = Sequence[Sequence[str]]
"""Passage ids of each query, in order."""


class PricedQueries(NamedTuple):
    """The price over some queries.

    Attributes:
        ended: Mean set F1 as the system ended.
        known: Mean set F1 with the known number of gold passages.
        price: ``known`` compared with ``ended``, query by query.
    """

    ended: float
    known: float
    price: Comparison


class Price(NamedTuple):
    """The price of a run.

    Attributes:
        end: The name of the end: ``DONE``, or ``the cut``.
        groups: The price over all queries (``all``), those whose chains are ``too short``, of ``right
            length`` or ``too long``, and those of each type (``type NAME``); no group is empty.
        length: Mean number of distinct passages as the system ended.
        gold: Mean number of gold passages.
        beyond: Number of queries with more gold passages than the run without an end has passages.
    """

    end: str
    groups: dict[str, PricedQueries]
    length: float
    gold: float
    beyond: int

    def record(self) -> dict[str, Any]:
        """As JSON values."""
        groups = {
            name: {**group._asdict(), "price": group.price._asdict()} for name, group in self.groups.items()
        }
        fields = self._asdict()
        return {"what": fields.pop("end"), **fields, "groups": groups}


def price_of_end(
    ended: Passages,
    unended: Passages,
    gold: Passages,
    types: Mapping[str, Sequence[int]] | None = None,
    end: str = "DONE",
    seed: int = 0,
) -> Price:
    """The price of the end of chains or rankings.

    Args:
        ended: The passages that the system returned, without DONE.
        unended: The passages that the same system ranks if nothing ends it.
        gold: Gold passage ids of each query.
        types: Type of questions -> rows of its queries.
        end: The name of the end.
        seed: Seed of the resampling.
    """
    scores = [set_scores(ids, relevant).f1 for ids, relevant in zip(ended, gold, strict=True)]
    known = [known_number_f1(ids, relevant) for ids, relevant in zip(unended, gold, strict=True)]
    lengths, sizes = ([len(set(ids)) for ids in lists] for lists in (ended, gold))
    depths = [len(set(ids)) for ids in unended]
    more = [length - size for length, size in zip(lengths, sizes, strict=True)]
    rows_of: dict[str, Sequence[int]] = {
        "all": range(len(more)),
        "too short": [n for n, extra in enumerate(more) if extra < 0],
        "right length": [n for n, extra in enumerate(more) if extra == 0],
        "too long": [n for n, extra in enumerate(more) if extra > 0],
    }
    rows_of |= {f"type {name}": rows for name, rows in (types or {}).items()}
    groups = {}
    for name, rows in rows_of.items():
        if rows:
            parts = [known[n] for n in rows], [scores[n] for n in rows]
            groups[name] = PricedQueries(fmean(parts[1]), fmean(parts[0]), compare(*parts, seed=seed))
    beyond = sum(depth < size for depth, size in zip(depths, sizes, strict=True))
    return Price(end, groups, fmean(lengths), fmean(sizes), beyond)


def runs_without_end(infos: Sequence[RunInfo | None]) -> dict[int, int]:
    """Index of a run that ends -> index of a run of the same system without an end, if there is one.

    Runs belong together if their manifests say the same corpus, queries and retriever. Of several runs the
    one with the most hops is taken, then the one of the most passages, then the first.
    """
    pairs: dict[int, int] = {}
    for index, info in enumerate(infos):
        if info is None or info.steps != "dynamic":
            continue
        reaches: dict[int, tuple[int, ...]] = {}  # hops and passages of the runs of the same system
        for n, other in enumerate(infos):
            if other is None or other.steps == "dynamic":
                continue
            same = ("corpus", "queries", "retriever")
            if all(getattr(info, name) == getattr(other, name) != "" for name in same):
                counts = (other.options.get("hops"), other.options.get("k"))
                reaches[n] = tuple(count if isinstance(count, int) else 0 for count in counts)
        if reaches:
            pairs[index] = max(reaches, key=lambda n: reaches[n])
    return pairs


def what_ends(info: RunInfo | None) -> str:
    """The name of the end of a run's chains or rankings."""
    return "the cut" if info is not None and "cut" in info.options else "DONE"


def price_of_run(
    run: str | Run, unended: str | Run, data: str | Path, split: str | None, corpus: Corpus
) -> Price:
    """The price of the end of a run, beside a run of the same system without an end.

    Without ``split`` it is that of the manifest, else ``test``.

    Raises:
        ConfigError: The first run does not end by itself, or the second one does.
        DataError: A file is missing, malformed or empty, answers no query of the split, or has a query or a
            passage that the data set does not have.
        MismatchError: The manifests show other corpora, queries or systems.
    """
    loaded = load_runs([run, unended])
    refuse_no_pair(*loaded)
    split = split_asked(loaded[0].path, loaded[0].info, split)
    loaded, queries, qrels = judged_queries(loaded, data, split, corpus)
    by_id = {query.id: query for query in queries}
    gold = [gold_passages(by_id[query], qrels) for query in qrels]
    passages = []
    for each in loaded:
        lists = [each.chains[q].hits if q in each.chains else each.rankings.get(q, ()) for q in qrels]
        passages.append([[hit.id for hit in without_done(hits)] for hits in lists])
    types = types_of([by_id[q] for q in qrels])
    return price_of_end(passages[0], passages[1], gold, types, what_ends(loaded[0].info))


def refuse_no_pair(run: Run, unended: Run) -> None:
    """Refuse two runs that give no price.

    Raises:
        ConfigError: The first run does not end by itself, or the second one does.
        MismatchError: They are of two systems.
    """
    if run.steps != "dynamic":
        raise ConfigError(
            f"{run.called} does not end by itself, so its end has no price: give a run of "
            f"{Option('hops.steps', 'dynamic')}, or of `grls fuse cut`."
        )
    if unended.steps == "dynamic":
        raise ConfigError(
            f"{unended.called} ends by itself, so it lacks the passages after its end: give a run of the "
            f"same system with {Option('hops.steps', 'fixed')}, or the ranking before the cut."
        )
    if run.info and unended.info and differ(run.info.retriever, unended.info.retriever):
        raise MismatchError(
            f"{run.called} and {unended.called} are of two systems, so they differ in more than where they "
            "end: retrieve both with the same retriever, search options and filters."
        )


def format_price(price: Price, unended: str) -> str:
    """A table: set F1 as ended and with the known number, and the price in points with its interval."""
    lines = [
        f"price of {price.end}: set F1 with the known number of passages less set F1 as ended",
        f"known: the first n passages of {unended}, for n gold passages",
        f"{'':<28}{'queries':>8}{'ended':>8}{'known':>8}{'price':>8}   {CONFIDENCE:.0%} interval",
    ]
    for name, (ended, known, result) in price.groups.items():
        numbers = f"{result.queries:8}{100 * ended:8.1f}{100 * known:8.1f}{100 * result.difference:+8.1f}"
        lines.append(f"{name:<28}{numbers}   {result.interval}")
    lines.append(f"mean length {price.length:.2f}, gold {price.gold:.2f}")
    if price.beyond:
        lines.append(
            f"a lower bound: for {counted(price.beyond, 'query')} {unended} has fewer passages than are gold"
        )
    return "\n".join(lines)
