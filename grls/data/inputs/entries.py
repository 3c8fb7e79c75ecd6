"""Corpora and queries from Python objects, of one form: an id, a text, and further fields.

Entries come from a list of texts or objects, from a dict by id, or from a table. Entries without ids are
numbered: "0", "1", …
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import query_of, read_queries
from grls.data.documents import (
    READERS,
    Documents,
    Unread,
    document_files,
    entry_documents,
    passages_of,
    read_documents,
)
from grls.data.inputs.tables import (
    CORPUS_FORM,
    QUERY_FORM,
    EntryForm,
    InputEntry,
    column_of,
    existing_path,
    id_list,
    name_list,
    read_entry,
    refuse_dict_of_tables,
    refuse_unnamed_index,
    required_column,
    table_from,
)
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.io.arguments import Count, checked, list_from, short_repr
from grls.io.files import near_name
from grls.io.jsonl import refuse_half_characters
from grls.io.progress import counted

log = logging.getLogger(__name__)


def entries_of(value: Any, form: EntryForm) -> list[tuple[str, str, InputEntry]]:
    """The entries with their ids, each behind its name for error texts."""
    if isinstance(value, str | bytes):
        raise DataError(
            f"{short_repr(value)} is no file or folder; a list of one text is written [{short_repr(value)}]"
            f"{near_name(str(value))}",
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
        number = form is QUERY_FORM and isinstance(value, int)
        text = f"; a query is a text: {str(value)!r}" if number else ""
        raise DataError(
            "expected a list of texts or objects, a dict from ids to texts, a data frame, a data set or a "
            f"path; got {type(value).__name__} {short_repr(value)}{text}.",
            form.source,
        )
    if not pairs:
        raise DataError(f"there is no {form.noun}; expected at least one.", form.source)
    read = [read_entry(key, content, f"{form.noun} {n}", form) for n, (key, content) in enumerate(pairs)]
    without = [n for n, entry in enumerate(read) if entry.id is None]
    if without and len(without) < len(read):
        raise DataError(
            f"{form.noun} {without[0]} has no id, and others have one (looked for {name_list(form.ids)}); "
            "give every one an id, or none.",
            form.source,
        )
    entries: dict[str, tuple[str, str, InputEntry]] = {}
    for n, entry in enumerate(read):
        name = entry.id or str(n)
        label = f"{form.noun} {n} ({name!r})"
        if name in entries:
            raise DataError(
                f"{label}: its id is that of {entries[name][0]} already; every {form.noun} needs a different "
                "id.",
                form.source,
            )
        entries[name] = label, name, entry
    return list(entries.values())


SOURCE = "queries"
"""The name of queries from Python in errors."""


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
    """
    path = existing_path(queries, SOURCE)
    if path is not None:
        return read_queries(path)
    read = []
    for label, name, entry in entries_of(queries, QUERY_FORM):
        if not entry.text.strip():
            raise DataError(f"{label}: its text is empty; give it a text or leave it out.", SOURCE)
        metadata = {field: value for field, value in entry.metadata.items() if value or field != "answers"}
        if isinstance(entry.own, set | frozenset):
            metadata["any_order"] = True
        evidence = id_list([] if entry.own is None else entry.own, f"{label}, evidence", SOURCE)
        record = {"_id": name, "text": entry.text, "metadata": metadata, "evidence": evidence}
        refuse_half_characters(record, f"{SOURCE}: {label}")
        read.append(query_of(record, f"{SOURCE}: {label}"))
    return read


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
            - the path of a ``corpus.jsonl``, or of the data set folder that holds it;
            - a folder of documents, or a list of ``Path`` of some (:func:`documents`).

            An id may be a whole number; it becomes a text. A missing value (None, NaN) is left out.
    """
    if isinstance(passages, Corpus):
        if not len(passages):
            raise DataError("there is no passage; expected at least one.", passages.source)
        return passages
    path = existing_path(passages, source)
    if path is not None:
        return _of_files([path]) if _holds_documents(path) else Corpus.read(path)
    if _are_paths(passages):
        return _of_files(passages)
    form = replace(CORPUS_FORM, source=source)
    rows: list[Passage] = []
    metadata: list[dict[str, Any]] = []
    for label, name, entry in entries_of(passages, form):
        title = "" if entry.own is None else entry.own
        if not entry.text.strip() and not (isinstance(title, str) and title.strip()):
            raise DataError(f"{label}: its text is empty; give it a text or leave it out.", source)
        rows.append(Passage(name, entry.text, title))
        metadata.append(entry.metadata)
    return Corpus.from_passages(rows, source, metadata)


_WORDS = 100  # of a passage of documents, at most
_OWN = ("corpus.jsonl", "queries.jsonl", "qrels", "grls.json")
"""What a data set or a retriever holds, and a folder of documents does not."""


def _are_paths(source: Any) -> bool:
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(one, Path) for one in source)


def _holds_documents(path: Path) -> bool:
    """Whether it is a folder of documents, or one (without ending: no JSON)."""
    if path.is_dir():
        return not any((path / name).exists() for name in _OWN)
    if path.suffix or not path.is_file():
        return path.suffix.lower() in READERS
    with path.open("rb") as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf\r\n\t ")[:1] != b"{"


@checked
def documents(source: Any, *, words: Count = _WORDS) -> Corpus:
    """A corpus of the passages of documents: text, Markdown, HTML, and with an extra PDF and DOCX.

    A passage lies within one section, under its heading, and ends with a paragraph or sentence where it can.
    Its title is that of its document. Its metadata name its ``file``, its ``line`` there (of a PDF its
    ``page``), its ``heading``, and as ``links`` the passages that its text links to. What could not be read
    is logged as a warning, with reasons.

    Args:
        source: A folder, a file, a list of ``Path`` of some, or whole texts in one of the forms of
            :func:`corpus_of`; a text whose id ends in ``.md`` or ``.html`` is read as such.
        words: Most words of a passage, beside its heading.

    Raises:
        DataError: There is no file, or none that gives a passage (the error says why).
    """
    path = existing_path(source, "documents")
    if path is not None or _are_paths(source):
        return _of_files(source if path is None else [path], words)
    entries = entries_of(source, replace(CORPUS_FORM, source="documents"))
    texts = [(name, entry.text, str(entry.own or "")) for _, name, entry in entries]
    return _of_documents(entry_documents(texts), "documents", words)


def _of_files(given: Sequence[Path], words: int = _WORDS) -> Corpus:
    name = str(given[0]) if len(given) == 1 else "documents"
    if lacking := [each for each in given if not each.exists()]:
        raise DataError(f"no such file or folder{near_name(lacking[0])}", lacking[0])
    files, skipped = list[Path](), list[Unread]()
    for each in given:
        inside, others = document_files(each) if each.is_dir() else ([each], [])
        files += inside
        skipped += others
    if not files and not skipped:
        raise DataError(
            "there is no file here; expected corpus.jsonl (a data set), or text, Markdown, HTML, PDF or "
            "DOCX files.",
            name,
        )
    roots = [each.absolute() if each.is_dir() else each.absolute().parent for each in given]
    found = read_documents(files, Path(os.path.commonpath(roots)))
    found.unread.extend(skipped)
    return _of_documents(found, name, words)


def _of_documents(found: Documents, name: str, words: int) -> Corpus:
    passages, metadata, lost = passages_of(found, words)
    told = f"{counted(len(found.read), 'document')} read, not these:\n{found.table()}"
    if not passages:
        raise DataError(
            f"there is no corpus.jsonl (a data set), and no document gave a passage.\n{found.table()}", name
        )
    if found.unread:
        log.warning("%s: %s", name, told)
    if lost:
        log.warning(
            "%s: %s to files that are not there, such as %s", name, counted(len(lost), "link"), lost[0]
        )
    return Corpus.from_passages(passages, name, metadata)
