"""The data set of a training from what a user has, and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grls.api.temporary import HeldFolder
from grls.data.corpus import Corpus
from grls.data.dataset import has_qrels
from grls.data.inputs.entries import corpus_of
from grls.data.inputs.folders import write_splits
from grls.data.inputs.gold import Gold, gold_of, hold_out
from grls.data.inputs.tables import existing_path, short_repr
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.files import sha256

DATA = "data"
"""The folder of the data set in the output of a training."""


@dataclass(frozen=True)
class TrainingData:
    """A corpus, with queries to train on and queries to choose by.

    Attributes:
        corpus: The passages.
        train: Training queries with their gold passages.
        dev: Dev queries with their gold passages.
    """

    corpus: Corpus
    train: Gold
    dev: Gold


def training_data(corpus: Any, queries: Any, gold: Any, dev: Any) -> TrainingData:
    """Read and check what a user has.

    Args:
        corpus: See :func:`~grls.data.inputs.entries.corpus_of`.
        queries: See :func:`~grls.data.inputs.gold.gold_of`; None: those of the data set folder ``corpus``.
        gold: The same; for the queries of a data set folder the name of a split; None: ``train``, or the
            evidence of the queries where the folder has no qrels.
        dev: A pair of queries and gold, or the name of a split; None: the split ``dev`` of the folder of the
            queries, or else some of the training queries.

    Raises:
        DataError: Something is malformed, or a gold passage is not in the corpus.
    """
    passages = corpus_of(corpus)
    splits = given_splits(corpus, passages, queries, gold, dev)
    if not splits:
        raise DataError(
            "there are no queries: give queries and gold, or the folder of a data set as the corpus.",
            "queries",
        )
    if "dev" not in splits:
        return TrainingData(passages, *hold_out(splits["train"]))
    return TrainingData(passages, splits["train"], splits["dev"])


class SplitNames(NamedTuple):
    """What the splits of a data set folder are called there."""

    train: str = "train"
    dev: str = "dev"
    test: str = "test"


USUAL_NAMES = SplitNames()


def given_splits(
    corpus: Any,
    passages: Corpus,
    queries: Any,
    gold: Any,
    dev: Any,
    test: Any = None,
    names: SplitNames = USUAL_NAMES,
) -> dict[str, Gold]:
    """The splits that a user has: ``train``, ``dev`` and ``test`` -> queries with their gold passages.

    Args:
        corpus: What the corpus was read from.
        passages: The corpus.
        queries: See :func:`training_data`.
        gold: See :func:`training_data`.
        dev: See :func:`training_data`.
        test: The same for the split ``test``.
        names: What the splits are called in a data set folder, where nothing else is given.

    Returns:
        The splits; those of a data set folder where nothing else is given. None at all without queries.

    Raises:
        ConfigError: A split of a folder is named, and there is no folder, or the split is given otherwise.
        DataError: Something is malformed, or there is gold, or there are dev queries, without queries to
            learn from.
    """
    folder = existing_path(corpus if queries is None else queries, "corpus or queries")
    if folder is not None and not (folder / "queries.jsonl").is_file():
        folder = None
    for usual, called, value in zip(USUAL_NAMES, names, (gold, dev, test), strict=True):
        if called == usual or (folder is not None and value is None):
            continue
        instead = f"{'gold' if usual == 'train' else usual} is given, too"
        raise ConfigError(
            f"{usual}_split={called!r} names a split of a data set folder, and "
            f"{'the queries are of none' if folder is None else instead}: leave {usual}_split out."
        )
    asked = folder or queries
    splits: dict[str, Gold] = {}
    if asked is not None:
        named = names.train != USUAL_NAMES.train
        judged = gold is None and folder is not None and (named or has_qrels(folder))
        splits["train"] = gold_of(names.train if judged else gold, asked, passages)
    elif gold is not None or dev is not None:
        raise DataError(
            f"there are no queries to learn from, and {'gold' if gold is not None else 'dev'} is given: give "
            "queries, too, or the folder of a data set.",
            "queries",
        )
    for name, called, value in (("dev", names.dev, dev), ("test", names.test, test)):
        there = folder is not None and (called != name or (folder / "qrels" / f"{name}.tsv").is_file())
        part = called if value is None and there else value
        if part is not None:
            splits[name] = _renamed(_part(name, part, asked, passages), splits, name)
    return splits


def _part(name: str, value: Any, queries: Any, corpus: Corpus) -> Gold:
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


def _renamed(part: Gold, splits: Mapping[str, Gold], prefix: str) -> Gold:
    """A split with other ids, where an id is that of another query (lists have places as ids)."""
    known = {query.id: query for gold in splits.values() for query in gold.queries}
    if all(known.get(query.id, query) == query for query in part.queries):
        return part
    prefix += "-"
    while any(name.startswith(prefix) for name in known):
        prefix += "-"
    queries = [query._replace(id=prefix + query.id) for query in part.queries]
    return Gold(queries, {prefix + name: grades for name, grades in part.qrels.items()})


def place_data(data: TrainingData, output: Path, resume: bool) -> str:
    """Write the data set of a training, and return its folder.

    Args:
        data: The data set.
        output: The output of the training.
        resume: The data set that is there must be the same.

    Raises:
        MismatchError: The run to resume had other data.
        WriteError: The folder cannot be written.
    """
    folder, splits = output / DATA, {"train": data.train, "dev": data.dev}
    if not (resume and folder.is_dir()):
        write_splits(folder, data.corpus, splits)
        return str(folder)
    held = HeldFolder()
    new = held.path / DATA
    write_splits(new, data.corpus, splits)
    for file in sorted(file.relative_to(new) for file in new.rglob("*") if file.is_file()):
        if not (folder / file).is_file() or sha256(folder / file) != sha256(new / file):
            raise MismatchError(
                f"the run in {output} had other data than this call ({folder / file} differs): resume it "
                "with the same corpus, queries, gold and dev, or begin a new run in another output."
            )
    return str(folder)
