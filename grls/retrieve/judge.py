"""Opens a retriever that judges passages or queries of a corpus: BM25, or a folder."""

from __future__ import annotations

from dataclasses import replace

from grls.data.corpus import Corpus
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, Option
from grls.retrieve.base import Retriever
from grls.retrieve.bm25 import USUAL_BM25, BM25Options
from grls.retrieve.registry import Opening, load_named, names_bm25


def open_judge(name: str, corpus: Corpus, opening: Opening, analyzer: Analyzer) -> Retriever:
    """Open a retriever folder of any kind, or ``bm25``, over ``corpus``.

    Queries that are too long are cut, since passages may be queries.
    """
    if not names_bm25(name):
        refuse_words(name, analyzer)
    return load_named(name, corpus, replace(opening, truncate_queries=True), analyzer)


def refuse_words(folder: str, analyzer: Analyzer, bm25: BM25Options = USUAL_BM25) -> None:
    """Refuse (ConfigError) options of ``bm25`` for a folder, which has its own."""
    if analyzer != USUAL or bm25 != USUAL_BM25:
        option = Option("bm25" if analyzer == USUAL else "analyzer")
        raise ConfigError(
            f"{option} is for bm25, which counts the words of the corpus anew; {folder} searches as it was "
            f"made: leave {option} out, or make a folder with `grls index bm25`."
        )
