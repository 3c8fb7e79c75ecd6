"""Pseudo-queries as identifiers: a passage is written as any query that it answers.

MINDER (arXiv 2305.16675) has them beside titles and substrings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Self

from grls.data.corpus import Corpus
from grls.data.dataset import read_queries
from grls.data.identifiers import Identifier, IdentifierKind, passage_keys
from grls.errors import DataError
from grls.io.arguments import options

_FIELD = "queries"


@options("options")
class PseudoQueries(IdentifierKind):
    """The queries of each passage. A passage that is added, or whose title or text changes, brings its own,
    in the field ``queries`` of its metadata (a list of texts).

    Args:
        file: Queries in JSONL, each with ``evidence``: the passages that it is of. ``grls prepare
            pseudo-queries`` writes such a file.
    """

    file: str

    def learn(self, corpus: Corpus) -> None:
        queries: dict[str, list[str]] = {}
        for query in read_queries(self.file):
            for passage in query.evidence:
                queries.setdefault(passage, []).append(query.text)
        written = {key: queries.get(passage.id) for passage, key in zip(corpus, _keys(corpus), strict=True)}
        self.state["queries"] = written | _brought(corpus)

    def knowing(self, corpus: Corpus) -> Self:
        known = copy(self)
        known.__dict__["state"] = {"queries": self.state["queries"] | _brought(corpus)}
        return known

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        for passage, key in zip(corpus, _keys(corpus), strict=True):
            queries = self.state["queries"].get(key)
            texts = queries if isinstance(queries, list) else []
            if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
                raise DataError(
                    f"the passage {passage.id!r} has no pseudo-query for this title and text: write one "
                    f"for each into the file of queries, or a list of texts as {_FIELD!r} into the "
                    "metadata of a passage that is added or changed.",
                    corpus.source,
                )
            yield [*dict.fromkeys(map(str.strip, texts))]


def _keys(corpus: Corpus) -> list[str]:
    return [*map(str, passage_keys(corpus).tolist())]


def _brought(corpus: Corpus) -> dict[str, Any]:
    fields = zip(_keys(corpus), corpus.metadata(), strict=True)
    return {key: metadata[_FIELD] for key, metadata in fields if metadata.get(_FIELD)}
