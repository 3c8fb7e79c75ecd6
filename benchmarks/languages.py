"""BM25 in twelve languages, with our words against one regular expression and English function words.

    python -m benchmarks.languages

``languages.tsv`` has twelve invented passages of each language and a query for each, as people write them:
inflected, in capitals, with or without vowel points. The table has the share of queries whose passage comes
first: with the default regular expression of bm25s, with our words, and with their stems if there is a
stemmer; and with the first two for queries in decomposed Unicode (NFD). A corpus of this size shows whether
a language works at all, not which of two good ways is better.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import bm25s
from jsonargparse import auto_cli

from benchmarks.common import print_table
from grls.data.corpus import Corpus
from grls.data.language import STEMMERS
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.retrieve.bm25 import BM25Retriever

FILE = Path(__file__).with_name("languages.tsv")
Search = Callable[[Sequence[str]], list[int | None]]
"""From queries to the number of the first passage of each; None if nothing is found."""


def read(file: Path = FILE) -> dict[str, list[tuple[str, str]]]:
    """Passages and queries by language."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        language, passage, query = line.split("\t")
        pairs.setdefault(language, []).append((passage, query))
    return pairs


def by_expression(passages: Sequence[str]) -> Search:
    """BM25 over lower-cased runs of letters and digits, without English function words."""

    def words(texts: Sequence[str]) -> list[list[str]]:
        rows = bm25s.tokenize(list(texts), stopwords="english", return_ids=False, show_progress=False)
        return [list(row) for row in rows]

    held = words(passages)
    if not any(held):
        return lambda queries: [None] * len(queries)
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index(held, show_progress=False)

    def search(queries: Sequence[str]) -> list[int | None]:
        first: list[int | None] = []
        for tokens in words(queries):
            scores = index.get_scores(tokens) if tokens else None
            first.append(None if scores is None or not scores.any() else int(scores.argmax()))
        return first

    return search


def by_words(passages: Sequence[str], analyzer: Analyzer) -> Search:
    """Our BM25."""
    corpus = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(passages)])
    retriever = BM25Retriever(corpus, analyzer=analyzer)

    def search(queries: Sequence[str]) -> list[int | None]:
        hits = retriever.retrieve([Query(str(n), text) for n, text in enumerate(queries)], 1)
        return [int(ranking[0].id) if ranking else None for ranking in hits]

    return search


def recall(search: Search, queries: Sequence[str]) -> float:
    """The share of queries (in percent) whose passage comes first."""
    return 100 * sum(n == first for n, first in enumerate(search(queries))) / len(queries)


def measure(language: str, pairs: Sequence[tuple[str, str]]) -> list[float | None]:
    """Recall@1 by expression, words and stems (None: no stemmer), and in NFD by expression and words."""
    passages, queries = [list(column) for column in zip(*pairs, strict=True)]
    apart = [unicodedata.normalize("NFD", query) for query in queries]
    old, new = by_expression(passages), by_words(passages, Analyzer())
    stems = by_words(passages, Analyzer(language, stem=True)) if language in STEMMERS else None
    composed = [recall(old, queries), recall(new, queries), recall(stems, queries) if stems else None]
    return [*composed, recall(old, apart), recall(new, apart)]


def main() -> None:
    """Measure all languages and print a table."""
    header = ("", "one expression", "words", "stems", "one expression, NFD", "words, NFD")
    rows = {language: measure(language, pairs) for language, pairs in read().items()}
    table = [
        (language, *("-" if value is None else f"{value:.0f}" for value in row))
        for language, row in rows.items()
    ]
    table.append(("mean", *map(_mean, zip(*rows.values(), strict=True))))
    print_table("R@1 of BM25, 12 queries a language", header, table)


def _mean(column: Sequence[float | None]) -> str:
    """The mean of a column; a dash if a language lacks a figure, because means would not be comparable."""
    values = [value for value in column if value is not None]
    return f"{sum(values) / len(values):.0f}" if len(values) == len(column) else "-"


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
