"""Which pseudo-queries are kept: those by which a retriever finds the passage that they were written for.

A generator that drifts from its passage asks what another one answers, or nothing. A query that does not lead
back is such a one, or too vague to teach anything. What is dropped is counted by its reason.
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
    """What is left of some pseudo-queries.

    Attributes:
        kept: As queries with evidence, in order.
        dropped: Why others are not, and how many.
        asked: How many a retriever was asked for; those that it found again are kept.
    """

    kept: list[Query]
    dropped: Counter[str]
    asked: int

    @property
    def rate(self) -> float:
        """The share of queries that led back to their passage, of those asked for."""
        return 1 - self.dropped[ASTRAY] / self.asked if self.asked else 0.0


def sift(
    records: Sequence[dict[str, Any]],
    corpus: Corpus,
    retriever: Retriever | None,
    k: int = 10,
    told: Callable[[int], object] | None = None,
) -> Sifted:
    """Drop what is no query, then what does not lead back to its passage.

    A query leads back if the first passage of its chain is among the k best for it; the others are to be
    found from those before them. A passage with the same title and text counts as the passage.

    Args:
        records: As :class:`grls.train.doc2query.generate.QueryWriter` writes them.
        corpus: The passages.
        retriever: Over this corpus; None: every query leads back.
        k: How far down it may be found.
        told: Called with the number of queries that were retrieved for.

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
        query for query, back in zip(queries, _back(queries, corpus, retriever, k, told), strict=True) if back
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
    """Why a text is no query of its own; remembers it where it is one."""
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
    told: Callable[[int], object] | None,
) -> list[bool]:
    """Whether each query's first passage is among its k best."""
    first = copies(corpus)
    back: list[bool] = []
    with Progress(len(queries), "round trip", "queries", shown=None) as bar:
        for start in range(0, len(queries), _BATCH):
            some = queries[start : start + _BATCH]
            found = retriever.retrieve(some, k)
            ids = list({hit.id for hits in found for hit in hits} | {query.evidence[0] for query in some})
            alike = {  # DONE, which a generator may find, has no number
                name: first[number]
                for name, number in zip(ids, corpus.numbers(ids), strict=True)
                if number is not None
            }
            back += [
                alike[query.evidence[0]] in [alike.get(hit.id) for hit in hits]
                for query, hits in zip(some, found, strict=True)
            ]
            bar.update(len(some))
            if told is not None:
                told(len(some))
    return back
