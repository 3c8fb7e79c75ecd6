"""The cause of a miss: the beam, the model, or something else.

Let s(p) be the exact log-probability of passage p. If a beam search misses the gold passage g although s(g)
exceeds the score of the k-th passage returned, the beam has lost it (``pruned``). Otherwise k passages score
higher, which no search can change (``scored worse``). Other passages that the beam lost may still outrank a
lost passage: so wider beams are tried, until one finds it or returns k passages that score higher. With
``exhaustive`` the scores of all passages decide.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from grls.explain.searches import Searches

Verdict = Literal["found", "duplicate", "excluded", "done first", "pruned", "early stop", "scored worse"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

MEANING: dict[Verdict, str] = {
    "found": "it is among the results",
    "duplicate": "a passage of equal tokens is among the results, under another id",
    "excluded": "it is evidence already, so it may not be found again",
    "done first": "the model ends the chain before it",
    "pruned": "the beam lost it: its score would have been enough",
    "early stop": "stopping at the unique prefix misjudged it: its whole score would have been enough",
    "scored worse": "the model gives enough other passages a higher score",
}

TOLERANCE = 1e-4
"""Scores that differ by less (nats) count as equal: search and teacher forcing round differently."""


class Judgement(NamedTuple):
    """A verdict with its reasons.

    Attributes:
        verdict: The verdict.
        sufficient: The smallest beam width tried that finds the passage; None if no beam did.
        widest: The widest beam tried.
        true_rank: Rank among all passages by exact score, from 1; None if not all were scored.
    """

    verdict: Verdict
    sufficient: int | None
    widest: int
    true_rank: int | None


def judge(searches: Searches, gold: int, done: int, widest: int, exhaustive: bool) -> Judgement:
    """Judge one passage.

    Args:
        searches: The searches of the model input.
        gold: Number of the passage.
        done: Number of DONE.
        widest: Widest beam to try.
        exhaustive: Score every passage.
    """
    width = searches.decoder.beams
    if searches.excluded(gold):
        return Judgement("excluded", None, width, None)
    rank = _true_rank(searches, gold) if exhaustive else None
    if _ends_before(searches, gold, done):
        return Judgement("done first", None, width, rank)
    results = {hit.passage for hit in searches.trace.found}
    if gold in results:
        return Judgement("found", width, width, rank)
    if results.intersection(searches.twins(gold)):
        return Judgement("duplicate", width, width, rank)
    if searches.score(gold).score > searches.last(searches.trace.found) + TOLERANCE:
        return _lost(searches, gold, widest, rank)
    if _misjudged(searches, gold) and (rank is None or rank <= searches.k):
        return Judgement("early stop", None, width, rank)
    return Judgement("scored worse", None, width, rank)


def _lost(searches: Searches, gold: int, widest: int, rank: int | None) -> Judgement:
    """Whether a wider beam would have returned a passage that the beam lost."""
    wanted = {gold, *searches.twins(gold)}
    score = searches.score(gold).score
    outranked = False
    sufficient = None
    width = searches.decoder.beams
    while width < widest and sufficient is None and not outranked:
        width = min(2 * width, widest)
        results = searches.at(width).found
        if wanted & {hit.passage for hit in results}:
            sufficient = width
        else:
            outranked = searches.last(results) >= score - TOLERANCE
    worse = outranked if rank is None else rank > searches.k
    return Judgement("scored worse" if worse else "pruned", sufficient, width, rank)


def _ends_before(searches: Searches, gold: int, done: int) -> bool:
    """Whether DONE keeps the passage out of the chain.

    Scores never rise, so if DONE scores higher, the chain that ends here beats every chain through the
    passage: the passage cannot be in the best chain, even if it is a hit. A DONE that the search did not
    find ends no chain, whatever its score.
    """
    results = {hit.passage for hit in searches.trace.found}
    if gold == done or done not in results:
        return False
    if searches.score(done).score <= searches.score(gold).score:
        return False
    hidden = (*searches.exclude, done)
    others = Searches(
        searches.decoder, searches.model_input, searches.k, hidden, searches.bias, searches.prior
    )
    return gold in results | {hit.passage for hit in others.trace.found}


def _misjudged(searches: Searches, gold: int) -> bool:
    """Whether scores up to the unique prefix rank the passage below one with a lower whole score."""
    decoder = searches.decoder
    if decoder.mode == "renormalized" or not decoder.stops_early or not searches.trace.found:
        return False
    returned = searches.scores([hit.passage for hit in searches.trace.found])
    return searches.score(gold).complete > min(score.complete for score in returned) + TOLERANCE


def _true_rank(searches: Searches, gold: int) -> int:
    every = searches.every()
    return 1 + sum(score > every[gold] + TOLERANCE for score in every.values())
