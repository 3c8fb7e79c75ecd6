"""Queries from Python objects."""

from __future__ import annotations

from typing import Any

from grls.data.dataset import query_of, read_queries
from grls.data.inputs.entries import EntryForm, InputEntry, entries_of, metadata_of
from grls.data.inputs.values import existing_path, id_list
from grls.data.types import Query
from grls.errors import DataError
from grls.io.jsonl import refuse_half_characters

SOURCE = "queries"
"""The name of queries from Python in errors."""

_FORM = EntryForm(
    Query, "query", SOURCE, ("_id", "id", "query_id", "query-id", "qid"), ("text", "query", "question")
)


def queries_from(queries: Any) -> list[Query]:
    """Queries from what a user has.

    Args:
        queries: One of these:

            - a list of texts, whose ids are their places: ``"0"``, ``"1"``, …;
            - a list of dicts ``{"id", "text", "evidence", "answers", "metadata"}``, or of
              :class:`~grls.data.types.Query`. Only the text is required, and all other keys are metadata.
              Without ids, the places are the ids. ``evidence`` is a list of gold passages in the order of
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
    return [_query(entry) for entry in entries_of(queries, _FORM)]


def _query(entry: InputEntry) -> Query:
    if not entry.text.strip():
        raise DataError(f"{entry.place}: its text is empty; give it a text or leave it out.", _FORM.source)
    place = f"{_FORM.source}: {entry.place}"
    fields = dict(entry.fields)
    answers = fields.pop("answers", [])
    if answers:
        fields["answers"] = [answers] if isinstance(answers, str) else answers
    if isinstance(fields.get("evidence"), set | frozenset):
        fields["any_order"] = True
    metadata = metadata_of(entry._replace(fields=fields), _FORM, ("evidence",))
    evidence = id_list(entry.fields.get("evidence", []), f"{entry.place}, evidence", _FORM.source)
    record = {"_id": entry.id, "text": entry.text, "metadata": metadata, "evidence": evidence}
    refuse_half_characters(record, place)
    return query_of(record, place)
