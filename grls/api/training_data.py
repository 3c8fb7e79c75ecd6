"""The data set of a training from what a user has, and its folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grls.api.temporary import temporary_folder
from grls.data.corpus import Corpus
from grls.data.inputs.corpora import corpus_of
from grls.data.inputs.folders import write_splits
from grls.data.inputs.gold import Gold, gold_of
from grls.data.inputs.held_out import hold_out
from grls.data.inputs.values import existing_path
from grls.errors import DataError, MismatchError
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
        corpus: See :func:`~grls.data.inputs.corpora.corpus_of`.
        queries: See :func:`~grls.data.inputs.gold.gold_of`; None: those of the data set folder ``corpus``.
        gold: The same; for the queries of a data set folder the name of a split, None: ``train``.
        dev: A pair of queries and gold, or the name of a split; None: the split ``dev`` of the folder of the
            queries, or else some of the training queries.

    Raises:
        DataError: Something is malformed, or a gold passage is not in the corpus.
    """
    passages = corpus_of(corpus)
    folder = _set_folder(corpus if queries is None else queries)
    if queries is None and folder is None:
        raise DataError(
            "there are no queries: give queries and gold, or the folder of a data set as the corpus.",
            "queries",
        )
    asked = folder or queries
    train = gold_of("train" if gold is None and folder is not None else gold, asked, passages)
    if dev is None and folder is not None and (folder / "qrels" / "dev.tsv").is_file():
        dev = "dev"
    if dev is None:
        return TrainingData(passages, *hold_out(train))
    return TrainingData(passages, train, _renamed(_dev(dev, asked, passages), train))


def _set_folder(value: Any) -> Path | None:
    """The folder of a data set with queries; None: it is something else."""
    path = existing_path(value)
    return path if path is not None and (path / "queries.jsonl").is_file() else None


def _dev(dev: Any, queries: Any, corpus: Corpus) -> Gold:
    if isinstance(dev, str):
        return gold_of(dev, queries, corpus)
    if isinstance(dev, tuple | list) and len(dev) == 2:
        return gold_of(dev[1], dev[0], corpus)
    raise DataError(
        "expected a pair (queries, gold), or the name of a split of a data set folder, got "
        f"{type(dev).__name__}.",
        "dev",
    )


def _renamed(dev: Gold, train: Gold) -> Gold:
    """Dev with other ids, where an id is that of another training query (lists have places as ids)."""
    texts = {query.id: query for query in train.queries}
    if all(texts.get(query.id, query) == query for query in dev.queries):
        return dev
    prefix = "dev-"
    while any(name.startswith(prefix) for name in texts):
        prefix += "-"
    queries = [query._replace(id=prefix + query.id) for query in dev.queries]
    return Gold(queries, {prefix + name: grades for name, grades in dev.qrels.items()})


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
    held = _Held()
    new = temporary_folder(held) / DATA
    write_splits(new, data.corpus, splits)
    for file in _files(new):
        if not (folder / file).is_file() or sha256(folder / file) != sha256(new / file):
            raise MismatchError(
                f"the run in {output} had other data than this call ({folder / file} differs): resume it "
                "with the same corpus, queries, gold and dev, or begin a new run in another output."
            )
    return str(folder)


class _Held:
    """Owns a temporary folder."""


def _files(folder: Path) -> Iterable[Path]:
    return sorted(file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
