"""Why a searcher finds a gold passage, or why not: one face for retrievers of any kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_qrels, read_queries
from grls.data.inputs.tables import id_list
from grls.data.types import Query
from grls.errors import ConfigError, DataError
from grls.explain.asks import explainable, hops_of
from grls.explain.explain import Explainer, Explanation
from grls.explain.options import TEXT_ALONE, candidates_listed
from grls.explain.standing import GoldStanding, in_ranking, standing_parts, standings
from grls.explain.text import Part, explanation_parts, parts_text
from grls.retrieve.base import Retriever, WrapsSingleSteps, single_steps
from grls.retrieve.hops.options import USUAL_HOPS, HopOptions
from grls.retrieve.hops.stop import stop_of_hop
from grls.retrieve.queries import queries_of
from grls.retrieve.spec import DATA, data_beside


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
        return "\n\n".join(map(str, self.passages))

    __repr__ = __str__


def explain_query(
    retriever: Retriever,
    folder: Path | None,
    query: str | Query,
    gold: str | int | Collection[str | int] | None,
    depth: int,
) -> ExplainedQuery:
    """Explain a query; see :meth:`grls.api.searcher.Searcher.explain`."""
    query, order = _query_and_gold(folder, query, gold, retriever.corpus)
    hops: HopOptions = retriever.hops if isinstance(retriever, WrapsSingleSteps) else USUAL_HOPS
    single = single_steps(retriever)
    decoding = explainable(single)
    if decoding is None:
        ranked = standings(retriever, query, order, depth)
        return ExplainedQuery(query, tuple(map(ExplainedPassage, ranked)))
    explainer = Explainer(decoding, candidates_listed(hops), stop=stop_of_hop(single, hops))
    ranked = standings(retriever, query, order, depth) if hops.steps == "ranked" else []
    by_gold = {standing.gold: standing for standing in ranked}
    passages = [
        ExplainedPassage(details, by_gold.get(details.gold))
        for hop in hops_of(order, (), None, None, hops.chained)
        for details in explainer.explain(query, *hop)
    ]
    return ExplainedQuery(query, tuple(passages))


def _query_and_gold(
    folder: Path | None, query: str | Query, gold: str | int | Collection[str | int] | None, corpus: Corpus
) -> tuple[Query, list[str]]:
    """The query, and its gold passages in order."""
    queries_of([query])
    named = [] if gold is None else list(dict.fromkeys(id_list(gold, "the query", "gold")))
    if gold is not None and not named:
        raise ConfigError("gold names no passage; leave it out, or give ids.")
    if isinstance(query, Query):
        order = named or list(dict.fromkeys(query.evidence))
        if not order:
            raise DataError(f"the query {query.id!r} has no evidence; name its gold passages: gold=[…].")
        return query, order
    data = None if folder is None else data_beside(folder)
    known = {} if data is None else {row.id: row for row in read_queries(data)}
    if data is not None and query in known:
        row = known[query]
        if not named:  # the split that judges it, or its evidence
            splits = map(read_qrels, sorted((data / "qrels").glob("*.tsv")))
            judged = (gold_passages(row, qrels) for qrels in splits if query in qrels)
            listed = next(filter(None, judged), list(dict.fromkeys(row.evidence)))
            numbers = corpus.numbers(listed)
            named = [name for name, number in zip(listed, numbers, strict=True) if number is not None]
        if not named:
            raise DataError(f"no gold passage of query {query!r} is known; name them: gold=[…].", data)
        return row, named
    if named:
        return Query(TEXT_ALONE, query), named
    if data is None:
        raise DataError(
            f"there is no folder {DATA} with queries in {folder or 'this retriever'} or beside it (`grls "
            f"fit` leaves one), so {query!r} is the text of a query, and no gold passage is known; name "
            "them: gold=[…]."
        )
    close = get_close_matches(query, known, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise DataError(f"no query of {data} has the id {query!r}.{hint} For the text of a query name gold=[…].")
