"""All that a training or a fit learns from: passages, and the queries with gold passages of each split."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import check_data, format_faults, has_qrels, read_qrels, read_queries, read_split
from grls.data.inputs.entries import corpus_of
from grls.data.inputs.gold import Gold, gold_of
from grls.data.inputs.tables import existing_path
from grls.errors import ConfigError, DataError
from grls.io.arguments import short_repr
from grls.io.progress import counted

log = logging.getLogger(__name__)

SPLITS = TRAIN, DEV, TEST = "train", "dev", "test"


class GivenData(NamedTuple):
    """What a user gives to learn from.

    Attributes:
        name: What results call it.
        splits: Those of ``train``, ``dev`` and ``test`` that there are.
        notes: What counts as gold where that is not the qrels, and what is left out.
    """

    name: str
    corpus: Corpus
    splits: dict[str, Gold]
    notes: tuple[str, ...]


def given_data(
    corpus: Any,
    queries: Any = None,
    gold: Any = None,
    dev: Any = None,
    test: Any = None,
    names: Sequence[str] = SPLITS,
) -> GivenData:
    """Read and check the data of a training or a fit; the arguments are those of :func:`grls.fit`.

    Splits that are not given are those of the data set folder ``queries`` (without them ``corpus``), which
    calls them ``names``. If it has no qrels at all, the evidence of its queries is their gold, to learn from.
    """
    passages, place = corpus_of(corpus), existing_path(corpus, "corpus")
    if place is not None and queries is None:
        _refuse_faults(place, passages)
    folder = place if queries is None else existing_path(queries, "queries")
    file = None if folder is None else folder / "queries.jsonl"
    if file is None or not file.is_file() or (queries is None and not file.stat().st_size):
        folder = None
    source = folder or queries
    if source is None and (gold is not None or dev is not None):
        raise DataError(
            f"there are no queries to learn from, and {'dev' if gold is None else 'gold'} is given: give "
            "queries, too, or the folder of a data set.",
            "queries",
        )
    splits: dict[str, Gold] = {}
    for split, name, value in zip(SPLITS, names, (gold, dev, test), strict=True):
        if name != split and (folder is None or value is not None):
            reason = f"{'gold' if split == TRAIN else split} is given, too"
            raise ConfigError(
                f"{split}_split={name!r} names a split of a data set folder, and "
                f"{'the queries are of none' if folder is None else reason}: leave {split}_split out."
            )
        if folder is not None and value is None and (name != split or _judges(folder, name)):
            splits[split] = Gold(*read_split(folder, name, passages, known=split == TRAIN))
        elif split != TRAIN and value is not None:
            splits[split] = _with_new_ids(_gold_of_split(split, value, source, passages), splits, split)
        elif split == TRAIN and source is not None and (value is not None or not _judges(folder)):
            splits[split] = gold_of(value, source, passages, True)
    name = "Python objects" if place is None else str(place)
    notes = _notes(folder, splits) if folder is not None and gold is None else ()
    return GivenData(name, passages, splits, notes)


def _judges(folder: Path | None, split: str | None = None) -> bool:
    if folder is None:
        return False
    return has_qrels(folder) if split is None else (folder / "qrels" / f"{split}.tsv").is_file()


def _refuse_faults(folder: Path, corpus: Corpus) -> None:
    """All faults at once; reading stops at the first."""
    if faults := [fault for fault in check_data(folder, corpus).faults if not fault.told]:
        text = f"{counted(len(faults), 'fault')} in queries and qrels; correct them, then call again."
        raise DataError(f"{text}\n{format_faults(faults)}", folder)


def _notes(folder: Path, splits: Mapping[str, Gold]) -> tuple[str, ...]:
    if not splits:
        return ()
    if not has_qrels(folder):
        return (f"no qrels: the evidence of {counted(len(splits[TRAIN].queries), 'query')} is the gold",)
    named = {query for path in (folder / "qrels").glob("*.tsv") for query in read_qrels(path)}
    left = sum(query.id not in named for query in read_queries(folder))
    return (f"{counted(left, 'query is', 'queries are')} in no qrels, and left out",) if left else ()


def _gold_of_split(name: str, value: Any, queries: Any, corpus: Corpus) -> Gold:
    """The queries of a split: a pair, or the name of a split of the folder of the queries."""
    if isinstance(value, str) and existing_path(queries, "queries") is not None:
        return gold_of(value, queries, corpus)
    if isinstance(value, tuple | list) and len(value) == 2:
        try:
            return gold_of(value[1], value[0], corpus)
        except DataError as error:
            raise DataError(error.text, name) from None
    raise DataError(
        "expected a pair (queries, gold), or the name of a split of a data set folder, got "
        f"{short_repr(value)}. Queries with a field 'evidence' make the pair (queries, None).",
        name,
    )


def _with_new_ids(part: Gold, splits: Mapping[str, Gold], prefix: str) -> Gold:
    """A split with other ids, where another query has the same id (the ids of a list are its numbers)."""
    known = {query.id: query for gold in splits.values() for query in gold.queries}
    if all(known.get(query.id, query) == query for query in part.queries):
        return part
    prefix += "-"
    while any(name.startswith(prefix) for name in known):
        prefix += "-"
    queries = [query._replace(id=prefix + query.id) for query in part.queries]
    return Gold(queries, {prefix + name: grades for name, grades in part.qrels.items()})


_SHARE, _MOST = 0.1, 200
"""The share of the training queries that are taken out for dev, and the most queries."""


def hold_out(gold: Gold) -> tuple[Gold, Gold]:
    """Take some queries out of the training queries, for dev: the other queries, and those.

    The choice depends on the ids alone, so it is the same in every run, and in any order of the queries.
    """
    if len(gold.queries) < 2:
        raise DataError(
            "there is one training query, of which no dev query can be taken out: give more queries, or dev.",
            "queries",
        )
    count = min(max(1, int(_SHARE * len(gold.queries))), _MOST)
    order = sorted((hashlib.sha256(query.id.encode()).digest(), query.id) for query in gold.queries)
    taken = {name for _, name in order[:count]}
    log.warning(
        "there are no dev queries, so %d of the %d training queries are taken out for dev.",
        count,
        len(gold.queries),
    )
    return _only(gold, set(gold.qrels) - taken), _only(gold, taken)


def _only(gold: Gold, ids: set[str]) -> Gold:
    return Gold(
        [query for query in gold.queries if query.id in ids],
        {name: grades for name, grades in gold.qrels.items() if name in ids},
    )
