"""Texts that join a generator's search while it runs: each is read, filtered and decoded when a slot is free.

A text that cannot be searched fails alone. What a text gets is what it gets from
:meth:`grls.retrieve.generative.retriever.GenerativeRetriever.retrieve`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grls.data.filters import Filter
from grls.data.types import Query
from grls.decode import FastDecoder, ScoredPassage
from grls.decode.joining import JoiningQuery
from grls.errors import ConfigError, GrlsError
from grls.index import Subset
from grls.models.seq2seq.plain import check_positions
from grls.models.turns import turn
from grls.retrieve.generative.search import DecodedPassages
from grls.retrieve.joins import JoiningText, TextSource
from grls.retrieve.queries import queries_of


def lets_join(generator: DecodedPassages) -> bool:
    """Whether texts can join its search: it decodes whole passages in slots, and rescores none."""
    plain = generator.spans is None and not generator.options.rescore
    return plain and generator.takes_queries()


def search_joined(generator: DecodedPassages, source: TextSource, k: int, slots: int) -> None:
    """Search for the texts of a source, which join while the search runs, until none is left.

    Args:
        generator: The generator.
        source: Where texts come from, and where their hits go.
        k: The most hits of a text; it sets the beam width.
        slots: Queries in flight, at most.

    Raises:
        ConfigError: Texts cannot join its search.
    """
    decoder = generator.joining_decoder(k)
    if decoder is None or not lets_join(generator):
        raise ConfigError("queries cannot join the search of this retriever: call retrieve instead.")
    around = len(generator.codec.model_input([]))
    with turn(generator.model):
        generator.model.eval()
        _join(decoder, _Texts(generator, source), around + generator.codec.limits.query, slots)


def _join(decoder: FastDecoder, texts: _Texts, longest: int, slots: int) -> None:
    decoder.join(texts, longest, min(slots, decoder.slots))


class _Texts:
    """The texts of a source as queries of the decoder."""

    def __init__(self, generator: DecodedPassages, source: TextSource):
        self._generator, self._source = generator, source
        self._subsets: dict[Filter, Subset | None] = {}

    def waiting(self) -> int:
        """The number of texts that may join now."""
        return self._source.waiting()

    def take(self, most: int) -> list[JoiningQuery]:
        """At most so many queries; texts that cannot be searched fail."""
        queries = []
        for text in self._source.take(most):
            try:
                queries.append(self._query(text))
            except GrlsError as error:
                self._source.fail(text.owner, error)
        return queries

    def gone(self, owner: Any) -> bool:
        """Whether nobody wants the hits of a text any more."""
        return self._source.gone(owner)

    def answer(self, owner: Any, passages: list[ScoredPassage]) -> None:
        """The result of a query, as hits."""
        self._source.answer(owner, self._generator.hits(passages))

    def _query(self, text: JoiningText) -> JoiningQuery:
        generator = self._generator
        queries = queries_of([text.query])
        (tokens,) = generator.encode(queries)
        model_input = generator.codec.model_input(tokens)
        check_positions(generator.model, len(model_input), generator.index.rows.longest)
        subset = self._allowed(queries, text.allow)
        return JoiningQuery(model_input, text.k, (generator.done,), subset, text.owner)

    def _allowed(self, queries: Sequence[Query], allow: Filter | None) -> Subset | None:
        if allow is None:
            return self._generator.subsets(queries, None)[0]
        if allow not in self._subsets:
            self._subsets[allow] = self._generator.subsets(queries, allow)[0]
        return self._subsets[allow]
