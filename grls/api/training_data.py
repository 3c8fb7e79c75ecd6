"""The data of a training from Python: read, split and written as the folder that trainings read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import has_qrels, write_dataset
from grls.data.inputs.entries import corpus_of
from grls.data.inputs.gold import Gold, gold_of, hold_out, queries_and_qrels
from grls.data.inputs.tables import existing_path
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.arguments import short_repr
from grls.io.files import TemporaryFolder, sha256
from grls.retrieve.spec import DATA


def training_data(corpus: Any, queries: Any, gold: Any, dev: Any) -> tuple[Corpus, dict[str, Gold]]:
    """Read and check the data of a training: the corpus, and the splits ``train`` and ``dev``.

    Arguments are those of :meth:`grls.api.training.Generator.fit`. The gold of a data set folder's queries is
    its split ``train``, or their evidence where the folder has no qrels.
    """
    passages = corpus_of(corpus)
    splits = given_splits(corpus, passages, queries, gold, dev)
    if not splits:
        raise DataError(
            "there are no queries: give queries and gold, or the folder of a data set as the corpus.",
            "queries",
        )
    if "dev" not in splits:
        splits["train"], splits["dev"] = hold_out(splits["train"])
    return passages, splits


SPLITS = ("train", "dev", "test")


def given_splits(
    corpus: Any,
    passages: Corpus,
    queries: Any,
    gold: Any,
    dev: Any,
    test: Any = None,
    names: Sequence[str] = SPLITS,
) -> dict[str, Gold]:
    """The splits that the user gives, ``train``, ``dev`` and ``test``, or those of a data set folder.

    ``corpus`` is the argument that ``passages`` were read from; ``names`` are those of a folder's splits.
    Other arguments are as of :meth:`grls.api.training.Generator.fit`. Without queries there are none, and
    gold or dev are refused.
    """
    folder = existing_path(corpus if queries is None else queries, "corpus or queries")
    if folder is not None and not (folder / "queries.jsonl").is_file():
        folder = None
    for split, name, value in zip(SPLITS, names, (gold, dev, test), strict=True):
        if name == split or (folder is not None and value is None):
            continue
        reason = f"{'gold' if split == 'train' else split} is given, too"
        raise ConfigError(
            f"{split}_split={name!r} names a split of a data set folder, and "
            f"{'the queries are of none' if folder is None else reason}: leave {split}_split out."
        )
    source = folder or queries
    splits: dict[str, Gold] = {}
    if source is not None:
        named = names[0] != SPLITS[0]
        judged = gold is None and folder is not None and (named or has_qrels(folder))
        splits["train"] = gold_of(names[0] if judged else gold, source, passages, True)
    elif gold is not None or dev is not None:
        raise DataError(
            f"there are no queries to learn from, and {'gold' if gold is not None else 'dev'} is given: give "
            "queries, too, or the folder of a data set.",
            "queries",
        )
    for split, name, value in (("dev", names[1], dev), ("test", names[2], test)):
        if value is None and folder is not None:
            value = name if name != split or (folder / "qrels" / f"{split}.tsv").is_file() else None
        if value is not None:
            splits[split] = _with_new_ids(_gold_of_split(split, value, source, passages), splits, split)
    return splits


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


def place_data(data: tuple[Corpus, dict[str, Gold]], output: Path, resume: bool) -> str:
    """Write the data set of a training into its output, and return the folder.

    Raises:
        MismatchError: The run to resume had other data.
        WriteError: The folder cannot be written.
    """
    folder, (corpus, splits) = output / DATA, data
    if not (resume and folder.is_dir()):
        write_dataset(folder, corpus, *queries_and_qrels(splits))
        return str(folder)
    place = TemporaryFolder()
    new = Path(place) / DATA
    write_dataset(new, corpus, *queries_and_qrels(splits))
    for file in sorted(file.relative_to(new) for file in new.rglob("*") if file.is_file()):
        if not (folder / file).is_file() or sha256(folder / file) != sha256(new / file):
            raise MismatchError(
                f"the run in {output} had other data than this call ({folder / file} differs): resume it "
                "with the same corpus, queries, gold and dev, or begin a new run in another output."
            )
    return str(folder)
