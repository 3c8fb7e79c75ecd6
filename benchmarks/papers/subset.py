"""A data set whose training queries are chosen for a rate of unseen gold (arXiv 2204.13596, table 11).

    python -m benchmarks.papers.subset --data data/entailmentbank --queries 1313 --rate 0.3 --output runs/high

The rate is the share of test queries all of whose gold passages are gold of no training query. Training
queries are kept, one after another, that see most of the test queries not seen yet, until the rate is
reached; the others are those that see fewest. The paper chose among the training graphs of EntailmentBank
and WorldTree. The choice looks at the test split, so it serves for this question alone: how the rate matters.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path

from jsonargparse import auto_cli

from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, read_queries, relevant, write_dataset
from grls.errors import ConfigError
from grls.io.files import write_json


def choose(
    train: Mapping[str, Collection[str]],
    test: Mapping[str, Collection[str]],
    count: int,
    rate: float,
    seed: int = 0,
) -> tuple[list[str], float]:
    """Choose training queries.

    Args:
        train: Training query -> its gold passages.
        test: Test query -> its gold passages.
        count: Queries to choose.
        rate: The share of test queries that is to stay unseen.
        seed: Seed of the order in which equally good queries are taken.

    Returns:
        The queries in the order of ``train``, and the rate that they have.

    Raises:
        ConfigError: There are fewer training queries, or no test query, or the rate is none.
    """
    if not 0 <= rate <= 1:
        raise ConfigError(f"rate must be between 0 and 1, got {rate}.")
    if not 0 < count <= len(train) or not test:
        raise ConfigError(
            f"cannot choose {count:,} of {len(train):,} queries for {len(test):,} test queries."
        )
    readers: dict[str, set[str]] = {}  # gold passage -> test queries
    for name, gold in test.items():
        for passage in gold:
            readers.setdefault(passage, set()).add(name)
    seen_by = {q: set().union(*(readers.get(p, ()) for p in gold)) for q, gold in train.items()}
    left = list(train)
    random.Random(seed).shuffle(left)
    kept: list[str] = []
    unseen = set(test)
    most = (1 - rate) * len(test)  # test queries that may be seen
    gains = {query: len(seen) for query, seen in seen_by.items()}
    while len(kept) < count:
        room = most - (len(test) - len(unseen))
        fitting = [query for query in left if 0 < gains[query] <= room]
        query = max(fitting, key=gains.__getitem__) if fitting else min(left, key=gains.__getitem__)
        kept.append(query)
        left.remove(query)
        if gains[query]:
            unseen -= seen_by[query]
            gains = {other: len(seen_by[other] & unseen) for other in left}
    chosen = set(kept)
    return [query for query in train if query in chosen], len(unseen) / len(test)


def main(data: str, output: str, queries: int, rate: float, seed: int = 0) -> None:
    """Write the data set, and its rate as OUTPUT/subset.json.

    Args:
        data: Data set folder with the splits train and test.
        output: Folder to write; an earlier one is replaced.
        queries: Training queries to keep.
        rate: Share of test queries that is to stay unseen.
        seed: Seed of the choice.
    """
    files = {file.stem: file for file in sorted((Path(data) / "qrels").glob("*.tsv"))}
    if missing := {"train", "test"} - {*files}:
        raise SystemExit(
            f"error: {data} has no qrels/{min(missing)}.tsv: name a data set folder with this split."
        )
    qrels = {split: read_qrels(file) for split, file in files.items()}
    gold = {s: {q: relevant(g) for q, g in qrels[s].items()} for s in ("train", "test")}
    chosen, reached = choose(gold["train"], gold["test"], queries, rate, seed)
    qrels["train"] = {query: qrels["train"][query] for query in chosen}
    judged = {query for of_split in qrels.values() for query in of_split}
    write_dataset(output, Corpus.read(data), [q for q in read_queries(data) if q.id in judged], qrels)
    write_json(Path(output) / "subset.json", {"queries": len(chosen), "unseen_rate": reached, "asked": rate})
    print(
        f"{len(chosen):,} training queries; {reached:.1%} of the test queries are unseen ({rate:.1%} asked)"
    )


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
