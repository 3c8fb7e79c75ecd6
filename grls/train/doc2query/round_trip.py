"""Filters pseudo-queries: a retriever must find the passage for which the query was written.

A generator may drift from its passage and write a query that another passage answers, or none. A query that
does not lead back to its passage is of this kind, or too vague to learn from. Dropped queries are counted by
reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from grls.data.corpus import Corpus
from grls.data.neighbours import copies
from grls.data.types import Query
from grls.data.words import plain_words
from grls.io.progress import Progress
from grls.retrieve.base import Retriever
from grls.retrieve.queries import check_counts

EMPTY = "empty"
CUT = "cut off"
LONG = "too long to be read"
COPY = "copies a passage"
TWICE = "written before"
ASTRAY = "not found again"

_BATCH = 256


class Sifted(NamedTuple):
    """Filtered pseudo-queries.

    Attributes:
        kept: The kept queries with evidence, in order.
        dropped: Number of dropped queries by reason.
        asked: Number of queries for which the retriever was asked.
    """

    kept: list[Query]
    dropped: Counter[str]
    asked: int

    @property
    def rate(self) -> float:
        """Share of the queries asked for that led back to their passage."""
        return 1 - self.dropped[ASTRAY] / self.asked if self.asked else 0.0


def sift(
    records: Sequence[dict[str, Any]],
    corpus: Corpus,
    retriever: Retriever | None,
    k: int = 10,
    progress: Callable[[int], object] | None = None,
) -> Sifted:
    """Drop records without a usable query, then queries that do not lead back to their passage.

    A query leads back if the first passage of its chain is among its k best passages; later passages are
    retrieved from the earlier ones. A copy with the same title and text counts as the passage.

    Args:
        records: Records of :class:`grls.train.doc2query.generate.QueryWriter`.
        corpus: The passages.
        retriever: A retriever over this corpus; None: every query leads back.
        k: Lowest rank at which the passage may be retrieved.
        progress: Called with the number of queries that were retrieved for.

    Raises:
        ConfigError: ``k`` is not positive.
    """
    check_counts(k=k)
    dropped: Counter[str] = Counter()
    good: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    texts = _texts(records, corpus)
    for record in records:
        reason = _fault(record, texts, seen)
        if reason is None:
            good.append(record)
        else:
            dropped[reason] += 1
    queries = [
        Query(f"pseudo-{one['chain'][0]}-{one['draw']}", one["text"], tuple(one["chain"])) for one in good
    ]
    if retriever is None:
        return Sifted(queries, dropped, 0)
    kept = [
        query
        for query, back in zip(queries, _back(queries, corpus, retriever, k, progress), strict=True)
        if back
    ]
    if len(kept) < len(queries):
        dropped[ASTRAY] = len(queries) - len(kept)
    return Sifted(kept, dropped, len(queries))


def _texts(records: Sequence[dict[str, Any]], corpus: Corpus) -> dict[str, str]:
    """The plain texts of all passages that queries were written for, by id."""
    ids = list(dict.fromkeys(name for record in records for name in record["chain"]))
    numbers = [number for number in corpus.numbers(ids) if number is not None]
    return {passage.id: plain_words(passage.text) for passage in corpus.passages(numbers)}


def _fault(record: dict[str, Any], texts: dict[str, str], seen: set[tuple[str, str]]) -> str | None:
    """The reason to drop a record; None: it is usable, and is added to ``seen``."""
    text = plain_words(record["text"])
    if "failed" in record:
        return LONG
    if not text:
        return EMPTY
    if not record["ended"]:
        return CUT
    if any(text == texts[name] for name in record["chain"]):
        return COPY
    key = (record["chain"][0], text)
    if key in seen:
        return TWICE
    seen.add(key)
    return None


def _back(
    queries: Sequence[Query],
    corpus: Corpus,
    retriever: Retriever,
    k: int,
    progress: Callable[[int], object] | None,
) -> list[bool]:
    """Whether each query's first passage is among its k best."""
    first = copies(corpus)
    back: list[bool] = []
    with Progress(len(queries), "round trip", "queries", shown=None) as bar:
        for start in range(0, len(queries), _BATCH):
            batch = queries[start : start + _BATCH]
            rankings = retriever.retrieve(batch, k)
            ids = list({hit.id for hits in rankings for hit in hits} | {query.evidence[0] for query in batch})
            alike = {  # DONE, which a generator may retrieve, has no number
                name: first[number]
                for name, number in zip(ids, corpus.numbers(ids), strict=True)
                if number is not None
            }
            back += [
                alike[query.evidence[0]] in [alike.get(hit.id) for hit in hits]
                for query, hits in zip(batch, rankings, strict=True)
            ]
            bar.update(len(batch))
            if progress is not None:
                progress(len(batch))
    return back
