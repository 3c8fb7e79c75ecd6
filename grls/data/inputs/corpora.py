"""A corpus from Python objects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grls.data.corpus import Corpus
from grls.data.inputs.entries import EntryForm, entries_of, metadata_of
from grls.data.inputs.values import existing_path
from grls.data.types import Passage
from grls.errors import DataError

_FORM = EntryForm(
    Passage, "passage", "corpus", ("_id", "id", "docid", "doc_id", "docno"), ("text", "contents")
)


def corpus_of(passages: Any, source: str = "corpus") -> Corpus:
    """A corpus from what a user has.

    Args:
        source: The argument that it is, for error texts.
        passages: One of these:

            - a :class:`~grls.data.corpus.Corpus`;
            - a list of texts, whose ids are their places: ``"0"``, ``"1"``, …;
            - a list of dicts ``{"id", "text", "title", "metadata"}``, or of
              :class:`~grls.data.types.Passage`. Only the text is required, and all other keys are metadata.
              Without ids, the places are the ids;
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
    form = replace(_FORM, source=source)
    entries = entries_of(passages, form)
    for entry in entries:
        title = entry.fields.get("title", "")
        if not entry.text.strip() and not (isinstance(title, str) and title.strip()):
            raise DataError(f"{entry.place}: its text is empty; give it a text or leave it out.", source)
    metadata = [metadata_of(entry, form, ("title",)) for entry in entries]
    made = [Passage(entry.id, entry.text, entry.fields.get("title", "")) for entry in entries]
    return Corpus.from_passages(made, source, metadata)
