"""Why a retriever finds a gold passage, or why not: one explanation for retrievers of any kind."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_qrels, read_queries, told_unknown
from grls.data.types import Query
from grls.errors import DataError, Option
from grls.explain.explain import Explanation, explainer_of, gold_by_hop
from grls.explain.options import TEXT_ALONE
from grls.explain.standing import DEPTH, GoldStanding, in_ranking, standing_parts, standings
from grls.explain.text import Part, explanation_parts, parts_text
from grls.retrieve.base import Retriever

log = logging.getLogger(__name__)

_GOLD = f"{Option('case.gold', 'ID', python='gold=[…]')}"


@dataclass(frozen=True, repr=False)
class ExplainedPassage:
    """Why a gold passage was found, or why not. Its text is a report.

    Attributes:
        details: All facts: an :class:`~grls.explain.explain.Explanation` of a search that decodes passages, a
            :class:`~grls.explain.standing.GoldStanding` of another one.
        standing: Of ranked hops whose hops are explained, where the passage stands in the ranking, with the
            rank and score of a search; None: ``details`` say it.
    """

    details: Explanation | GoldStanding
    standing: GoldStanding | None = None

    @property
    def gold(self) -> str:
        """Id of the gold passage; ``DONE`` if a chain should have ended."""
        return self.details.gold

    @property
    def hop(self) -> int:
        """The hop, from 1; a ranking of the query as a whole is hop 1."""
        return self.details.hop if isinstance(self.details, Explanation) else 1

    @property
    def rank(self) -> int | None:
        """Its rank among the results, from 1; None: it is not among them."""
        return (self.standing or self.details).rank

    @property
    def score(self) -> float | None:
        """Its score; None if it is not known."""
        return (self.standing or self.details).score

    @property
    def above(self) -> tuple[str, ...]:
        """Ids of the first passages that stand above it, best first."""
        details = self.standing or self.details
        if isinstance(details, GoldStanding):
            return tuple(passage.id for passage in details.above)
        end = None if details.rank is None else details.rank - 1
        return tuple(result.id for result in details.results[:end])

    @property
    def parts(self) -> list[Part]:
        """The report in parts: facts by name, sentences, and tables."""
        if isinstance(self.details, GoldStanding):
            return standing_parts(self.details)
        ranked = [] if self.standing is None else in_ranking(self.standing)
        return [*explanation_parts(self.details), *ranked]

    def __str__(self) -> str:
        return parts_text(self.parts)

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class ExplainedQuery(Sequence[ExplainedPassage]):
    """The explanations of a query, in the order of its gold passages. Its text is the report of all."""

    query: Query
    passages: tuple[ExplainedPassage, ...]

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # a passage, or several of a slice
        return self.passages[index]

    def __str__(self) -> str:
        parts = [part for passage in self.passages for part in passage.parts]
        return parts_text([part for n, part in enumerate(parts) if not _is_repeated(n, parts)])

    __repr__ = __str__


def _is_repeated(number: int, parts: Sequence[Part]) -> bool:
    """Whether a part is a table with which a longer one begins, or the same one later."""
    rows = parts[number].rows
    return parts[number].kind == "table" and any(
        other.rows[: len(rows)] == rows and (len(other.rows), n) > (len(rows), number)
        for n, other in enumerate(parts)
    )


def explain_query(
    retriever: Retriever,
    query: Query,
    gold: Sequence[str],
    depth: int = DEPTH,
    k: int | None = None,
) -> ExplainedQuery:
    """Explain why gold passages (ids, in their order where there are hops) are found, or why not.

    ``depth``: passages that are ranked. ``k``: passages of a hop; None: as many as it lists.
    """
    explaining = explainer_of(retriever, k)
    if explaining is None:
        ranked = standings(retriever, query, gold, depth)
        return ExplainedQuery(query, tuple(map(ExplainedPassage, ranked)))
    explainer, hops = explaining
    ranked = standings(retriever, query, gold, depth) if hops.steps == "ranked" else []
    by_gold = {standing.gold: standing for standing in ranked}
    passages = [
        ExplainedPassage(details, by_gold.get(details.gold))
        for hop in gold_by_hop(gold, hops.chained)
        for details in explainer.explain(query, *hop)
    ]
    return ExplainedQuery(query, tuple(passages))


def find_query(
    query: str, gold: list[str], data: Path | None, split: str | None, corpus: Corpus
) -> tuple[Query, list[str]]:
    """A query of a data set by its id, or by its text, with its gold passages.

    ``gold``: those that are named; empty: those of the split that judges the query, or its evidence.
    ``split``: None: any.
    """
    known = {} if data is None else {row.id: row for row in read_queries(data)}
    if query not in known:
        if gold:
            if data is not None:
                log.warning("%s: no query has the id %r, so it is taken as the text of a query.", data, query)
            return Query(TEXT_ALONE, query), gold
        close = get_close_matches(query, known, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else "."
        reason = f"no query of {data} has the id {query!r}{meant}"
        if data is None:
            reason = f"no data set with queries is known ({Option('data')}, or what `grls fit` leaves)."
        raise DataError(f"{reason} For the text of a query name gold passages: {_GOLD}.")
    row = known[query]
    if gold or data is None:
        return row, gold
    files = {file.stem: file for file in sorted((data / "qrels").glob("*.tsv"))}
    judging = [name for name, file in files.items() if query in read_qrels(file)]
    if split is not None and split not in judging:
        remedy = f"{Option('split', judging[0])} does: name it" if judging else "no split does: make qrels"
        raise DataError(
            f"{Option('split', split)} does not judge query {query!r}; {remedy}, or give {_GOLD}.", data
        )
    order = list(dict.fromkeys(row.evidence))
    if judging:
        file = files[split or judging[0]]
        grades = {query: read_qrels(file)[query]}
        (row,), judged = told_unknown([row], grades, [corpus], file, known=True)
        order = gold_passages(row, judged)
    if not order:
        raise DataError(f"no gold passage of query {query!r} is known; name them: {_GOLD}.", data)
    return row, order
