"""Data sets of the Hugging Face hub as folders in BEIR's layout: ``--data hub:NAME``, ``--corpus hub:NAME``.

Rows are streamed by ``datasets`` and written once; later commands read the folder. As in MTEB's data sets,
the configuration ``corpus`` holds the passages, ``queries`` the queries, and every configuration with columns
of query ids and passage ids the judgements, one file a split. A data set with a single configuration is a
corpus. Names of columns: as of data frames (:mod:`grls.data.inputs.entries`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from grls.data.corpus_table import cache_folder
from grls.data.dataset import Qrels, write_dataset
from grls.data.inputs.entries import queries_from
from grls.data.inputs.gold import PASSAGE, QUERY, of_rows
from grls.data.inputs.tables import CORPUS_FORM, column_of, name_list, read_entry
from grls.errors import ConfigError, DataError, GrlsError
from grls.io.arguments import short_repr

HUB = "hub:"
"""The beginning of the name of a data set of the hub, where a folder could stand."""


def local_folder(name: str) -> str:
    """The folder of a data set: ``name`` itself, or of ``hub:NAME`` the folder that holds its rows.

    NAME is a data set of the hub (``user/name``) or a local folder that ``datasets`` reads, and may end in
    ``:CONFIGURATION``, the configuration of the corpus. What was streamed from the hub is not streamed
    again; a local folder always is.
    """
    if not name.startswith(HUB):
        return name
    import datasets

    repository, _, chosen = name.removeprefix(HUB).partition(":")
    readers = getattr(datasets.packaged_modules, "_PACKAGED_DATASETS_MODULES", ())  # json, csv, …
    if not repository or (repository in readers and not Path(repository).is_dir()):
        raise ConfigError(f"{name}: expected {HUB}NAME, a data set of the hub (user/name) or a local folder.")
    key = re.sub(r"[^\w.-]+", "--", name.removeprefix(HUB)).strip("-")
    folder = cache_folder() / HUB.strip(":") / key
    try:
        if is_folder := Path(repository).is_dir():
            repository = str(Path(repository).resolve())
        if is_folder or not (folder / "corpus.jsonl").is_file():
            names = datasets.get_dataset_config_names(repository)
            sets = {config: datasets.load_dataset(repository, config, streaming=True) for config in names}
            _write(folder, name, sets, chosen)
            print(f"{name} is now in {folder}; remove it to read the hub again.", file=sys.stderr)
    except DataError as error:  # of a row
        raise DataError(error.text, name) from None
    except GrlsError:
        raise
    except Exception as error:  # whatever datasets, its readers of many formats and the hub's client raise
        raise ConfigError(
            f"{short_repr(name)}: datasets cannot read it ({error}). Correct the name, or, without the "
            f"network, give {HUB}FOLDER with the files of the data set."
        ) from error
    return str(folder)


def _write(folder: Path, name: str, sets: Mapping[str, Any], chosen: str) -> None:
    """``sets``: configuration -> split -> rows."""
    corpus = chosen or ("corpus" if "corpus" in sets else next(iter(sets)) if len(sets) == 1 else "")
    if corpus not in sets:
        raise ConfigError(
            f"{name}: expected the configuration of the corpus as {HUB}NAME:CONFIGURATION; there are "
            f"{name_list(sets)}."
        )
    queries = queries_from(list(chain.from_iterable(sets["queries"].values()))) if "queries" in sets else []
    qrels: dict[str, Qrels] = {}
    for split, rows in (
        (s, r) for config, splits in sets.items() if config != corpus for s, r in splits.items()
    ):
        columns: Mapping[str, Any] = next(iter(rows), {})
        if column_of(columns, QUERY) is not None and column_of(columns, PASSAGE) is not None:
            gold = of_rows(columns, list(rows), [query.id for query in queries])
            qrels[split] = {query: judged.grades for query, judged in gold.items()}
    write_dataset(folder, _passages(chain.from_iterable(sets[corpus].values())), queries, qrels)


def _passages(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Passages without ids are numbered."""
    for n, row in enumerate(rows):
        entry = read_entry(None, row, f"row {n}", CORPUS_FORM)
        title = "" if entry.own is None else entry.own
        yield {"_id": entry.id or str(n), "title": title, "text": entry.text, "metadata": entry.metadata}
