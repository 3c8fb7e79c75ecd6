"""Tables of other libraries as rows (pandas, polars, ``datasets``, pyarrow), and ids, paths and JSON values.

The fields of a passage or query have one form (:class:`EntryForm`), whether it comes from Python or in a line
of a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.arguments import is_table, short_repr


class DataTable(NamedTuple):
    columns: list[str]
    rows: list[dict[str, Any]]


def table_from(value: Any, source: str) -> DataTable | None:
    """The rows of a table; None if the value is no table. A named index of pandas is a column."""
    if not is_table(value):
        return None
    if hasattr(value, "to_dict") and hasattr(value, "index"):  # pandas
        frame = value if value.index.names == [None] else value.reset_index()
        columns = [str(name) for name in frame.columns]
        if repeated := {name for name in columns if columns.count(name) > 1}:
            raise DataError(f"two columns have the name {min(repeated)!r}; rename or drop one.", source)
        # By column, since a row as a whole would not keep the types of the columns.
        rows = zip(*(frame.iloc[:, column].tolist() for column in range(frame.shape[1])), strict=True)
        return DataTable(columns, [dict(zip(columns, row, strict=True)) for row in rows])
    if hasattr(value, "to_dicts"):  # polars
        return DataTable(list(value.columns), value.to_dicts())
    if hasattr(type(value), "column_names") and not isinstance(value, Mapping):  # datasets, pyarrow
        records = value.to_pylist() if hasattr(value, "to_pylist") else [dict(row) for row in value]
        return DataTable(list(value.column_names or (records[0] if records else ())), records)
    return None


def refuse_dict_of_tables(value: Any, source: str) -> None:
    splits = [name for name, table in value.items() if is_table(table)] if isinstance(value, Mapping) else []
    if splits:
        raise DataError(
            f"this is a dict of data sets; choose one, as in data[{splits[0]!r}] (there are "
            f"{name_list(value)}).",
            source,
        )


def column_of(columns: Collection[str], names: Collection[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def required_column(columns: Collection[str], names: Collection[str], content: str, source: str) -> str:
    """The first of the names that is a column; the error says what ``content`` it would hold."""
    column = column_of(columns, names)
    if column is None:
        raise DataError(
            f"there is no column with {content}: looked for {name_list(names)}; there are "
            f"{name_list(columns, 20)}. Rename the column to {next(iter(names))!r}.",
            source,
        )
    return column


def refuse_unnamed_index(value: Any, table: DataTable, ids: Collection[str], source: str) -> None:
    """Refuse a data frame without ids whose index is not 0, 1, 2, …: it may be meant as ids, or not."""
    labels = getattr(value, "index", None)
    if labels is None or column_of(table.columns, ids) is not None or not hasattr(labels, "names"):
        return
    if list(labels) != list(range(len(table.rows))):
        raise DataError(
            f"there is no column with ids (looked for {name_list(ids)}; there are "
            f"{name_list(table.columns, 20)}), and the index is not 0, 1, 2, …: name the index with "
            "frame.rename_axis('id') if it holds the ids, or drop it with frame.reset_index(drop=True).",
            source,
        )


def name_list(names: Collection[Any], most: int = 8) -> str:
    texts = [repr(name) for name in list(names)[:most]]
    return ", ".join([*texts, "…"] if len(names) > most else texts) or "none"


def json_value(value: Any) -> Any:
    """A value of another library as JSON holds it; a missing value (None, NaN, NaT, NA) is None.

    Arrays become lists, numbers of numpy become numbers of Python, and dates their ISO text. A value that
    JSON cannot hold stays as it is.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if _is_missing(value):
        return None
    if isinstance(value, float):
        return float(value)
    if hasattr(value, "tolist"):
        return json_value(value.tolist())
    return value.isoformat() if hasattr(value, "isoformat") else value


def _is_missing(value: Any) -> bool:
    """A missing value (NaN, NaT, NA) does not equal itself."""
    if hasattr(value, "__len__") or is_table(value):
        return False
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA is neither equal nor unequal
        return True


def id_text(value: Any, label: str, source: str) -> str:
    """An id as a text, whole numbers in digits; ``label`` names the owner of the id, for the error text."""
    name = json_value(value)
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    if isinstance(name, str):
        if name:
            return name
        raise DataError(f"{label} has an empty id; every id needs at least one character.", source)
    hint = "; a column with missing values turns whole numbers into fractions" * isinstance(name, float)
    raise DataError(
        f"{label}: expected an id that is a text or a whole number, got {short_repr(value)}{hint}.", source
    )


def id_list(value: Any, label: str, source: str) -> list[str]:
    """An id may be repeated: a proof may use a statement twice."""
    ids = json_value(sorted(value, key=str) if isinstance(value, set | frozenset) else value)
    if isinstance(ids, str | int):
        ids = [ids]
    if not isinstance(ids, list):
        raise DataError(f"{label}: expected a list of passage ids, got {short_repr(value)}.", source)
    return [id_text(name, label, source) for name in ids]


def existing_path(value: Any, source: str) -> Path | None:
    """Any ``Path``, or a text that names something on disk; None for all else."""
    if not isinstance(value, str | os.PathLike) or value == "":
        return None
    try:
        path = Path(value)
        exists = path.exists()
    except (OSError, ValueError, TypeError) as error:  # too long for a name, with a NUL, or bytes
        if isinstance(value, str):
            return None
        raise DataError(f"{short_repr(value)} can be no path ({error}).", source) from None
    return path if exists or not isinstance(value, str) else None


@dataclass(frozen=True)
class EntryForm:
    """What entries are, and where their fields stand.

    Attributes:
        noun: The name of one entry, for error texts.
        source: The name of all, for error texts.
        ids: The names under which the id may stand; the first that is there counts.
        texts: The names under which the text may stand.
        own: Its further field; all others are metadata.
    """

    type: type[Passage] | type[Query]
    noun: str
    source: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    own: str


class InputEntry(NamedTuple):
    """One passage or query; ``own`` is its title or evidence (None: missing), ``metadata`` the rest."""

    id: str | None
    text: str
    own: Any
    metadata: dict[str, Any]


QUERY_FORM = EntryForm(
    Query,
    "query",
    "queries",
    ("_id", "id", "query_id", "query-id", "qid"),
    ("text", "query", "question"),
    "evidence",
)
CORPUS_FORM = EntryForm(
    Passage, "passage", "corpus", ("_id", "id", "docid", "doc_id", "docno"), ("text", "contents"), "title"
)


def read_entry(key: Any, content: Any, label: str, form: EntryForm) -> InputEntry:
    """An entry from what Python or a line holds: a text or an object, and its key in a dict.

    Its metadata are the object (or JSON text) ``metadata`` and all further fields, without missing values.
    """
    if isinstance(content, str):
        name = None if key is None else id_text(key, label, form.source)
        return InputEntry(name, str.__str__(content), None, {})
    fields: Any = content._asdict() if isinstance(content, form.type) else content
    if not isinstance(fields, Mapping):
        raise DataError(
            f"{label}: expected a text, a {form.type.__name__}, or an object such as "
            f"{{{form.ids[0]!r}: 'a', {form.texts[0]!r}: '…'}}, got {short_repr(content)}.",
            form.source,
        )
    fields = {str(name): json_value(value) for name, value in fields.items()}
    text_key, id_key = column_of(fields, form.texts), column_of(fields, form.ids)
    if text_key is None:
        raise DataError(
            f"{label} has no text: looked for {name_list(form.texts)}; there are {name_list(fields)}.",
            form.source,
        )
    text, named = fields.pop(text_key), fields.pop(id_key) if id_key is not None else None
    if not isinstance(text, str):
        fault = "its text is missing" if text is None else f"got {short_repr(text)}"
        raise DataError(f"{label}: expected its text to be a string, {fault}.", form.source)
    names = [id_text(name, label, form.source) for name in (key, named) if name is not None]
    if len(set(names)) > 1:
        raise DataError(f"{label}: its key in the dict is {names[0]!r}, its id is {names[1]!r}.", form.source)
    label = f"{label} ({names[0]!r})" if names else label
    fields = {name: value for name, value in fields.items() if value is not None}
    own, metadata = fields.pop(form.own, None), fields.pop("metadata", {})
    if isinstance(metadata, str):
        with suppress(ValueError, RecursionError):
            metadata = json.loads(metadata)
    if not isinstance(metadata, dict):
        raise DataError(
            f"{label}: expected metadata to be an object, got {short_repr(metadata)}.", form.source
        )
    twice = [name for name in metadata.keys() & fields.keys() if metadata[name] != fields[name]]
    if twice:
        raise DataError(
            f"{label}: {min(twice)!r} is a field, and a key of metadata with another value; keep one.",
            form.source,
        )
    metadata = {**metadata, **fields}
    try:
        json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{label}: expected metadata that JSON can hold ({error}); convert the value or leave the "
            "column out.",
            form.source,
        ) from None
    return InputEntry(names[0] if names else None, text, own, metadata)


def in_layout(record: dict[str, Any], form: EntryForm, file: str | Path, line: int | None) -> dict[str, Any]:
    """A line of ``corpus.jsonl`` or ``queries.jsonl`` in BEIR's layout, as entries from Python are read."""
    usual = isinstance(record.get("_id"), str) and not isinstance(record.get("metadata"), str)
    if usual and record.keys() <= {"_id", "text", "metadata", form.own}:
        return record
    try:
        entry = read_entry(None, record, form.noun, form)
    except DataError as error:
        raise DataError(error.text.removeprefix(f"{form.source}: "), file, line) from None
    if entry.id is None:
        return record
    return {"_id": entry.id, "text": entry.text, form.own: entry.own, "metadata": entry.metadata}
