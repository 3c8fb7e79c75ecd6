"""Where a gold passage stands in a ranking, for retrievers of any kind: what is above it, and by how much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from grls.data.filters import Filter
from grls.data.links import Naming, as_written
from grls.data.types import IN_CHAINS, Hit, NameLink, Query
from grls.errors import Option
from grls.explain.beams import passage_numbers
from grls.explain.text import Part, facts_part, hits_part, plain_values, query_line, text_part, with_id
from grls.io.progress import counted, visible
from grls.retrieve.base import MatchesWords, Retriever, ScoresAll
from grls.retrieve.hops.linked import LinkPrior
from grls.retrieve.hops.retriever import RankedHops

_SHOWN = 5
"""Passages above the gold passage that are kept."""


class Above(NamedTuple):
    """A passage that stands above the gold passage.

    Attributes:
        rank: Its rank, from 1.
        text: Title and text.
        ahead: By how much it is ahead; None: the score of the gold passage is not known.
    """

    rank: int
    id: str
    text: str
    score: float
    ahead: float | None


class GoldNames(NamedTuple):
    """How ranked hops are led to a gold passage by its names.

    Attributes:
        names: Its names.
        links: The names in the question and in passages of a chain; where ``chain`` is None, those in ranked
            passages, from which no chain goes on. Empty: neither the question nor a ranked passage names it.
        chain: Ids of the passages of that chain, of those from which the search goes on: after them the
            passage is likeliest.
        probability: That of the chain.
        share: The part of the probability of its next hop that goes to the passage.
        ahead: The first passages with a larger share, each with it.
    """

    names: tuple[str, ...]
    links: tuple[NameLink, ...] = ()
    chain: tuple[str, ...] | None = None
    probability: float = 0.0
    share: float = 0.0
    ahead: tuple[tuple[str, float], ...] = ()


class GoldStanding(NamedTuple):
    """Where a gold passage stands in the ranking of a query.

    Attributes:
        gold: Id of the gold passage.
        gold_text: Its title and text.
        system: The name of the retriever.
        mode: The meaning of scores.
        rank: Its rank, from 1; None if it is not among the passages that were ranked.
        score: Its score; None if it is not known.
        ranked: The number of passages that were ranked.
        depth: The number of passages that could be ranked.
        above: The first passages above it.
        words: What each word of the query adds to the score, for a retriever that matches words.
        naming: Which names lead to it, for ranked hops with links.
    """

    query: Query
    gold: str
    gold_text: str
    system: str
    mode: str
    rank: int | None
    score: float | None
    ranked: int
    depth: int
    above: tuple[Above, ...]
    words: dict[str, float] | None
    naming: GoldNames | None = None


def standings(
    retriever: Retriever, query: Query, gold: Sequence[str], depth: int, links: bool = True
) -> list[GoldStanding]:
    """Where each gold passage (by its id) stands in the ranking that a search gives, among ``depth``
    passages.

    ``links``: also say which names lead to it, where ranked hops have links; these search once more.
    """
    numbers = passage_numbers(retriever.corpus, gold)
    (hits,) = retriever.retrieve([query], min(depth, len(retriever.corpus)))
    ranks = {hit.id: rank for rank, hit in enumerate(hits, 1)}
    missing = [number for name, number in zip(gold, numbers, strict=True) if name not in ranks]
    scores: dict[int, float] = {}  # of passages that were not ranked
    if missing and isinstance(retriever, ScoresAll):
        every = retriever.scores([query])(np.array([0]))[0]
        scores = {passage: float(every[passage]) for passage in missing}
    described = retriever.describe()
    first = [hit.id for hit in hits[:_SHOWN]]
    passages = retriever.corpus.passages(passage_numbers(retriever.corpus, first)) if first else []
    texts = {passage.id: passage.titled for passage in passages}
    by_hops = retriever if links and isinstance(retriever, RankedHops) else None
    steps = _recorded(by_hops, query) if by_hops else []
    standings = []
    for name, number in zip(gold, numbers, strict=True):
        own_rank = ranks.get(name)
        score = scores.get(number) if own_rank is None else hits[own_rank - 1].score
        above = [
            Above(rank, hit.id, texts[hit.id], hit.score, None if score is None else hit.score - score)
            for rank, hit in enumerate(hits[:_SHOWN], 1)
            if own_rank is None or rank < own_rank
        ]
        words = retriever.word_scores(query.text, number) if isinstance(retriever, MatchesWords) else None
        standings.append(
            GoldStanding(
                query=query,
                gold=name,
                gold_text=retriever.corpus[number].titled,
                system=described.name,
                mode=described.score_mode,
                rank=own_rank,
                score=score,
                ranked=len(hits),
                depth=depth,
                above=tuple(above),
                words=words,
                naming=_naming(by_hops, steps, number, hits) if by_hops and steps else None,
            )
        )
    return standings


class _Step(NamedTuple):
    """A hop of a chain: its probability, the names before it, and the shares of what may come next."""

    chain: tuple[int, ...]
    probability: float
    names: Sequence[tuple[Naming, Sequence[int | None]]]
    shares: dict[int, float]


@dataclass(frozen=True)
class _Recorder(LinkPrior):
    steps: list[_Step] = field(default_factory=list)

    def weighed(
        self, query: str, passages: Sequence[int], hits: Sequence[Hit], allow: Filter | None
    ) -> list[Hit]:
        weighed = super().weighed(query, passages, hits, allow)
        logits = np.array([hit.score for hit in weighed], dtype=np.float64) / self.temperature
        shares = np.exp(logits - np.logaddexp.reduce(logits)).tolist() if weighed else []
        numbers = passage_numbers(self.retriever.corpus, [hit.id for hit in weighed])
        way = next((step for step in self.steps if [*step.chain] == [*passages[:-1]]), None)
        self.steps.append(
            _Step(
                chain=tuple(passages),
                probability=1.0 if way is None else way.probability * way.shares[passages[-1]],
                names=self.names(query, passages),
                shares=dict(zip(numbers, shares, strict=True)),
            )
        )
        return weighed


def _recorded(retriever: RankedHops, query: Query) -> list[_Step]:
    """The hops of a search that are weighed by links; none without links."""
    search = retriever.hop_search
    if search.prior is None:
        return []
    options = {part.name: getattr(search.prior, part.name) for part in fields(search.prior)}
    recorder = _Recorder(**options)
    combiner = retriever.make_combiner(1, allowed_counts=[len(retriever.corpus)])
    for _ in replace(search, prior=recorder).walk([query], combiner=combiner):
        pass
    return recorder.steps


def _naming(retriever: RankedHops, steps: Sequence[_Step], number: int, hits: Sequence[Hit]) -> GoldNames:
    corpus = retriever.corpus
    passage, of_corpus = corpus[number], corpus.links(retriever.hops.names)
    known = GoldNames(tuple(as_written(passage, words) for words in of_corpus.names(number)))

    def links(names: Iterable[tuple[Naming, Sequence[int | None]]]) -> tuple[NameLink, ...]:
        found = (
            NameLink(as_written(passage, name.words), None if n is None else corpus.ids([n])[0])
            for name, holders in names
            if number in name.passages
            for n in holders
        )
        return tuple(dict.fromkeys(found))  # a name may be a link, too

    naming = [(step, linked) for step in steps if number not in step.chain and (linked := links(step.names))]
    if not naming:
        ranked = passage_numbers(corpus, [hit.id for hit in hits])
        return known._replace(links=links((name, [n]) for n in ranked for name in of_corpus.of(n)))
    step, linked = max(
        naming, key=lambda pair: (pair[0].probability * pair[0].shares.get(number, 0.0), pair[0].probability)
    )
    share = step.shares.get(number, 0.0)
    ahead = sorted((n for n, other in step.shares.items() if other > share), key=lambda n: -step.shares[n])
    return known._replace(
        links=linked,
        chain=tuple(corpus.ids(list(step.chain))),
        probability=step.probability,
        share=share,
        ahead=tuple((corpus.ids([n])[0], step.shares[n]) for n in ahead[:_SHOWN]),
    )


def why_named(naming: GoldNames) -> str:
    if not naming.names:
        return "NO LINK: it has no title, and begins with no name."
    names = ", ".join(f'"{name}"' for name in naming.names)
    if not naming.links:
        return f"NO LINK: neither the question nor a passage that was ranked names it ({names})."
    by = ", ".join(map(str, naming.links[:_SHOWN]))
    if naming.chain is None:
        return f"NOT FOLLOWED: named by {by}, and no chain goes on from there (more hops or chains may)."
    after = "in the first hop"
    if naming.chain:
        after = f"after {' > '.join(naming.chain)} (probability {_figure(naming.probability)})"
    others = ", ".join(f"{name} {share:.1%}" for name, share in naming.ahead)
    place = f"OUTWEIGHED by {others}" if others else "the largest"
    return f"NAMED by {by}: {after} its share of the hop is {naming.share:.1%}, {place}."


def standing_parts(s: GoldStanding) -> list[Part]:
    query, passage = ("query", query_line(s.query)), ("passage", with_id(s.gold, s.gold_text))
    parts = [facts_part(query, passage, _search("search", s)), _why(s)]
    if s.words is not None:
        words = s.words
        common = sorted((word for word in words if words[word]), key=lambda word: -words[word])
        lacking = [word for word in words if not words[word]]
        listed = ", ".join(f"{word} {_figure(words[word])}" for word in common) or "none in common"
        lines = [("words", listed)]
        lines += [("lacking", ", ".join(lacking))] if lacking and common else []
        parts.append(facts_part(*lines))
    if s.above:
        parts.append(hits_part(s.above, _figure))
    return parts


def _search(name: str, s: GoldStanding) -> tuple[str, str]:
    scale = f"{s.mode} scores"
    if s.mode == IN_CHAINS:
        scale = "scores: the probability that a chain of hops holds the passage, in whatever hop"
    return name, s.system if s.mode == s.system else f"{s.system}, {scale}"


def why_there(s: GoldStanding) -> str:
    if s.rank is None:
        reason = f"it is not among the {s.ranked:,} ranked" if s.ranked else "no passage was found"
        more, remedy = 10 * s.depth, ""
        if s.ranked == s.depth and (s.words is None or any(s.words.values())):
            larger = Option("k", more, python=f"depth={more}")
            remedy = f" Ask for a larger depth ({larger!s}) to see where it stands."
        score = "" if s.score is None else f" Its score is {_figure(s.score)}."
        return f"NOT FOUND: {reason}.{score}{remedy}"
    if s.rank == 1:
        return f"RANK 1 with score {_figure(s.score)}: nothing stands above it."
    higher = counted(s.rank - 1, "passage stands", "passages stand")
    return (
        f"RANK {s.rank:,} with score {_figure(s.score)}: {higher} above it, the first is ahead by "
        f"{_figure(s.above[0].ahead)}."
    )


def in_ranking(s: GoldStanding) -> list[Part]:
    """Where a passage stands in a ranking by hops, for the end of an explanation of a hop."""
    return [facts_part(_search("ranking", s)), _why(s)]


def _why(s: GoldStanding) -> Part:
    if s.naming is None or (s.rank is not None and s.naming.chain is None):  # a found passage misses no link
        return text_part(why_there(s))
    return text_part(why_there(s), why_named(s.naming))


def _figure(value: float | None) -> str:
    """A dash for None."""
    return "–" if value is None else f"{value:.4g}"


DEPTH = 100
"""The default number of passages that are ranked."""

_RANKS = (1, 5, 10, 20, 100, 1000)
"""The ranks up to which the summary counts gold passages."""


def line_of(standings: Sequence[GoldStanding]) -> str:
    ranks = [f"{s.gold} {'not found' if s.rank is None else f'rank {s.rank:,}'}" for s in standings]
    return visible(f"{standings[0].query.id}: {', '.join(ranks)}")


def format_ranks(counts: Mapping[str, Any]) -> str:
    """What :func:`rank_counts` counted, in lines."""
    total = counts["gold_passages"]
    rows = {f"rank 1 to {int(top):,}" if top != "1" else "rank 1": n for top, n in counts["found_to"].items()}
    rows["not found"] = counts["not_found"]
    lines = [
        f"{total:,} gold passages, {counts['ranked']:,} passages ranked for each query; shares are of all "
        "gold passages, while recall is a mean over queries"
    ]
    return "\n".join([*lines, *(f"  {name:<16}{n:>7,}  {n / total:.1%}" for name, n in rows.items())])


def standing_record(s: GoldStanding) -> dict[str, Any]:
    """A score that is no finite number is null."""
    return {"query_id": s.query.id, **plain_values(s), "query": s.query.text}


def rank_record(standings: Sequence[GoldStanding]) -> dict[str, Any]:
    gold = [{"id": s.gold, "rank": s.rank, "score": plain_values(s.score)} for s in standings]
    return {"query_id": standings[0].query.id, "gold": gold}


def rank_counts(ranks: Sequence[int | None], depth: int) -> dict[str, Any]:
    """How many gold passages have which ranks; ``found_to``: rank -> gold passages up to it."""
    tops = [*(top for top in _RANKS if top < depth), depth]
    counts = {str(top): sum(rank is not None and rank <= top for rank in ranks) for top in tops}
    lost = sum(rank is None for rank in ranks)
    return {"gold_passages": len(ranks), "ranked": depth, "found_to": counts, "not_found": lost}
