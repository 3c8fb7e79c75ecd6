"""Pseudo-queries as identifiers: a passage is written as any query that it answers.

MINDER (arXiv 2305.16675) has them beside titles and substrings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Self

from grls.data.corpus import Corpus
from grls.data.dataset import read_queries
from grls.data.identifiers import Identifier, IdentifierKind
from grls.errors import DataError
from grls.io.arguments import options

_FIELD = "queries"


@options("options")
class PseudoQueries(IdentifierKind):
    """The queries of each passage. A passage that is added brings its own, in the field ``queries`` of its
    metadata (a list of texts).

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
        self.state["queries"] = queries

    def knowing(self, corpus: Corpus) -> Self:
        fields = zip(corpus, corpus.metadata(), strict=True)
        brought = {passage.id: metadata[_FIELD] for passage, metadata in fields if metadata.get(_FIELD)}
        known = copy(self)
        known.__dict__["state"] = {"queries": self.state["queries"] | brought}
        return known

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        for passage in corpus:
            queries = self.state["queries"].get(passage.id, ())
            if isinstance(queries, str) or not (texts := [*dict.fromkeys(map(str.strip, queries))]):
                raise DataError(
                    f"the passage {passage.id!r} has no pseudo-query: write one for each into the "
                    f"file of queries, or texts as {_FIELD!r} into the metadata of an added passage.",
                    corpus.source,
                )
            yield texts
