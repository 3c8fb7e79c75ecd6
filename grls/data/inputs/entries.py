"""Corpora and queries from Python objects, of one form: an id, a text, and further fields.

Entries come from a list of texts or objects, from a dict by id, or from a table. Entries without ids are
numbered: "0", "1", …
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.dataset import query_of, read_queries
from grls.data.inputs.tables import (
    column_of,
    existing_path,
    id_list,
    id_text,
    json_value,
    list_from,
    name_list,
    refuse_dict_of_tables,
    refuse_unnamed_index,
    required_column,
    short_repr,
    table_from,
)
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.resumable import refuse_half_characters


@dataclass(frozen=True)
class EntryForm:
    """What entries are, and where their fields stand.

    Attributes:
        type: The class of one entry.
        noun: The name of one entry, for error texts.
        source: The name of all, for error texts.
        ids: The names under which the id may stand; the first that is there counts.
        texts: The names under which the text may stand.
    """

    type: type[Passage] | type[Query]
    noun: str
    source: str
    ids: tuple[str, ...]
    texts: tuple[str, ...]


class InputEntry(NamedTuple):
    """One passage or query; ``fields`` are its others, without missing values; errors call it ``label``."""

    id: str
    text: str
    fields: dict[str, Any]
    label: str


def entries_of(value: Any, form: EntryForm) -> list[InputEntry]:
    """The entries of a list, dict or table.

    Raises:
        DataError: It is something else; it is empty; a column or a text is missing; an id is used twice; or
            only some entries have an id.
    """
    if isinstance(value, str | bytes):
        raise DataError(
            f"{short_repr(value)} is no file or folder; a list of one text is written [{short_repr(value)}].",
            form.source,
        )
    alone = isinstance(value, Passage | Query)
    if isinstance(value, Mapping):
        alone = {column_of(value, form.ids), column_of(value, form.texts)}.isdisjoint({None})
        refuse_dict_of_tables(value, form.source)
    if alone:
        raise DataError(
            f"this is a single {form.noun}; put it in a list: [{short_repr(value)}].", form.source
        )
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # of frame.itertuples(), such as (id, text)
        raise DataError(
            f"this is a single row, {short_repr(value)}; write it as a dict in a list: [row._asdict()].",
            form.source,
        )
    pairs: list[tuple[Any, Any]]  # id or None, and content
    if (table := table_from(value, form.source)) is not None:
        required_column(table.columns, form.texts, f"the texts of {form.noun} entries", form.source)
        refuse_unnamed_index(value, table, form.ids, form.source)
        pairs = [(None, row) for row in table.rows]
    elif isinstance(value, Mapping) or (
        hasattr(value, "items") and hasattr(value, "index")
    ):  # pandas' series
        pairs = list(value.items())
    elif (values := list_from(value)) is not None:
        pairs = [(None, content) for content in values]
    else:
        number = form is _QUERY_FORM and isinstance(value, int)
        text = f"; a query is a text: {str(value)!r}" if number else ""
        raise DataError(
            "expected a list of texts or objects, a dict from ids to texts, a data frame, a data set or a "
            f"path; got {type(value).__name__} {short_repr(value)}{text}.",
            form.source,
        )
    if not pairs:
        raise DataError(f"there is no {form.noun}; expected at least one.", form.source)
    parts = [entry_parts(key, content, f"{form.noun} {n}", form) for n, (key, content) in enumerate(pairs)]
    without = [n for n, (name, _, _) in enumerate(parts) if name is None]
    if without and len(without) < len(parts):
        raise DataError(
            f"{form.noun} {without[0]} has no id, and others have one (looked for {name_list(form.ids)}); "
            "give every one an id, or none.",
            form.source,
        )
    entries: dict[str, InputEntry] = {}
    for n, (name, text, fields) in enumerate(parts):
        entry = InputEntry(name or str(n), text, fields, f"{form.noun} {n} ({name or str(n)!r})")
        if entry.id in entries:
            raise DataError(
                f"{entry.label}: its id is that of {entries[entry.id].label} already; every {form.noun} "
                "needs a different id.",
                form.source,
            )
        entries[entry.id] = entry
    return list(entries.values())


def metadata_of(entry: InputEntry, form: EntryForm, but: Collection[str]) -> dict[str, Any]:
    """The metadata of an entry: the object (or JSON text) in its field ``metadata``, and all further fields.

    ``but``: fields that are no metadata.

    Raises:
        DataError: ``metadata`` is no object, has another value for a field, or JSON cannot hold it.
    """
    if not entry.fields:
        return {}
    fields = {name: value for name, value in entry.fields.items() if name not in but}
    metadata = fields.pop("metadata", {})
    if isinstance(metadata, str):
        with suppress(ValueError, RecursionError):
            metadata = json.loads(metadata)
    if not isinstance(metadata, dict):
        got = short_repr(entry.fields["metadata"])
        raise DataError(f"{entry.label}: expected metadata to be an object, got {got}.", form.source)
    twice = [name for name in metadata.keys() & fields.keys() if metadata[name] != fields[name]]
    if twice:
        raise DataError(
            f"{entry.label}: {min(twice)!r} is a field, and a key of metadata with another value; keep one.",
            form.source,
        )
    try:
        json.dumps({**metadata, **fields}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{entry.label}: expected metadata that JSON can hold ({error}); convert the value or leave the "
            "column out.",
            form.source,
        ) from None
    return {**metadata, **fields}


def entry_parts(
    key: Any, content: Any, label: str, form: EntryForm
) -> tuple[str | None, str, dict[str, Any]]:
    """Id (None if there is none), text and other fields of an entry.

    Raises:
        DataError: It has no text, or something else is wrong with it.
    """
    if isinstance(content, str):
        return None if key is None else id_text(key, label, form.source), str.__str__(content), {}
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
    present = {name: value for name, value in fields.items() if value is not None}
    return (names[0] if names else None), text, present


SOURCE = "queries"
"""The name of queries from Python in errors."""

_QUERY_FORM = EntryForm(
    Query, "query", SOURCE, ("_id", "id", "query_id", "query-id", "qid"), ("text", "query", "question")
)


def queries_from(queries: Any) -> list[Query]:
    """Queries from what a user has.

    Args:
        queries: One of these:

            - a list of texts, whose ids are their numbers: ``"0"``, ``"1"``, …;
            - a list of dicts ``{"id", "text", "evidence", "answers", "metadata"}``, or of
              :class:`~grls.data.types.Query`. Only the text is required, and all other keys are metadata.
              Without ids, the numbers are the ids. ``evidence`` is a list of gold passages in the order of
              retrieval, or a set if any order is correct;
            - a dict from ids to texts, or to such dicts;
            - a data frame (pandas, polars), a ``datasets.Dataset`` or an Arrow table with such columns;
            - the path of a ``queries.jsonl``, or of the data set folder that holds it.

            An id may be a whole number; it becomes a text. A missing value (None, NaN) is left out.

    Raises:
        DataError: It is something else, or empty; a column is missing; an id is used twice; a query has no
            text, or a field has a wrong form.
    """
    path = existing_path(queries, SOURCE)
    if path is not None:
        return read_queries(path)
    read = []
    for entry in entries_of(queries, _QUERY_FORM):
        if not entry.text.strip():
            raise DataError(f"{entry.label}: its text is empty; give it a text or leave it out.", SOURCE)
        fields = dict(entry.fields)
        answers = fields.pop("answers", [])
        if answers:
            fields["answers"] = [answers] if isinstance(answers, str) else answers
        if isinstance(fields.get("evidence"), set | frozenset):
            fields["any_order"] = True
        metadata = metadata_of(entry._replace(fields=fields), _QUERY_FORM, ("evidence",))
        evidence = id_list(entry.fields.get("evidence", []), f"{entry.label}, evidence", SOURCE)
        record = {"_id": entry.id, "text": entry.text, "metadata": metadata, "evidence": evidence}
        refuse_half_characters(record, f"{SOURCE}: {entry.label}")
        read.append(query_of(record, f"{SOURCE}: {entry.label}"))
    return read


CORPUS_FORM = EntryForm(
    Passage, "passage", "corpus", ("_id", "id", "docid", "doc_id", "docno"), ("text", "contents")
)


def corpus_of(passages: Any, source: str = "corpus") -> Corpus:
    """A corpus from what a user has.

    Args:
        source: The argument that it is, for error texts.
        passages: One of these:

            - a :class:`~grls.data.corpus.Corpus`;
            - a list of texts, whose ids are their numbers: ``"0"``, ``"1"``, …;
            - a list of dicts ``{"id", "text", "title", "metadata"}``, or of
              :class:`~grls.data.types.Passage`. Only the text is required, and all other keys are metadata.
              Without ids, the numbers are the ids;
            - a dict from ids to texts, or to such dicts;
            - a data frame (pandas, polars), a ``datasets.Dataset`` or an Arrow table with such columns;
            - the path of a ``corpus.jsonl``, or of the data set folder that holds it.

            An id may be a whole number; it becomes a text. A missing value (None, NaN) is left out.

    Raises:
        DataError: It is something else, or empty; a column is missing; an id is used twice or reserved; a
            passage has no text.
    """
    if isinstance(passages, Corpus):
        if not len(passages):
            raise DataError("there is no passage; expected at least one.", passages.source)
        return passages
    path = existing_path(passages, source)
    if path is not None:
        return Corpus.read(path)
    form = replace(CORPUS_FORM, source=source)
    rows: list[Passage] = []
    metadata: list[dict[str, Any]] = []
    for entry in entries_of(passages, form):
        title = entry.fields.get("title", "")
        if not entry.text.strip() and not (isinstance(title, str) and title.strip()):
            raise DataError(f"{entry.label}: its text is empty; give it a text or leave it out.", source)
        rows.append(Passage(entry.id, entry.text, title))
        metadata.append(metadata_of(entry, form, ("title",)))
    return Corpus.from_passages(rows, source, metadata)
