"""Who was at fault: the beam, the model, or something else.

With s(p) the exact log-probability of passage p, a beam search that misses the gold passage g although
s(g) exceeds the score of the k-th passage returned has lost it (``pruned``); otherwise k passages do score
higher, which no search can help (``scored worse``). A lost passage may still be outranked by passages that
the beam lost as well: so wider beams are tried, until one finds it or returns k passages that score higher;
``exhaustive`` scores of every passage decide it outright.
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
"""Nats within which scores count as equal: the search and teacher forcing round differently."""


class Judgement(NamedTuple):
    """A verdict and what it rests on.

    Attributes:
        verdict: What happened.
        sufficient: A beam width that finds the passage (the smallest one tried); None where none did.
        widest: The widest beam tried.
        true_rank: Its rank among all passages by exact score, from 1; None where not every one was scored.
    """

    verdict: Verdict
    sufficient: int | None
    widest: int
    true_rank: int | None


def judge(searches: Searches, gold: int, done: int, widest: int, exhaustive: bool) -> Judgement:
    """Decide what became of one passage.

    Args:
        searches: Of the model input.
        gold: Number of the passage.
        done: Number of DONE.
        widest: Beam width up to which wider beams are tried.
        exhaustive: Score every passage.
    """
    width = searches.decoder.beams
    if searches.excluded(gold):
        return Judgement("excluded", None, width, None)
    rank = _true_rank(searches, gold) if exhaustive else None
    if _ends_before(searches, gold, done):
        return Judgement("done first", None, width, rank)
    found = {hit.passage for hit in searches.trace.found}
    if gold in found:
        return Judgement("found", width, width, rank)
    if found.intersection(searches.twins(gold)):
        return Judgement("duplicate", width, width, rank)
    if searches.score(gold).score > searches.last(searches.trace.found) + TOLERANCE:
        return _lost(searches, gold, widest, rank)
    if _misjudged(searches, gold) and (rank is None or rank <= searches.k):
        return Judgement("early stop", None, width, rank)
    return Judgement("scored worse", None, width, rank)


def _lost(searches: Searches, gold: int, widest: int, rank: int | None) -> Judgement:
    """The beam lost the passage: would a wider one have returned it?"""
    wanted = {gold, *searches.twins(gold)}
    score = searches.score(gold).score
    outranked = False
    sufficient = None
    width = searches.decoder.beams
    while width < widest and sufficient is None and not outranked:
        width = min(2 * width, widest)
        found = searches.at(width).found
        if wanted & {hit.passage for hit in found}:
            sufficient = width
        else:
            outranked = searches.last(found) >= score - TOLERANCE
    worse = outranked if rank is None else rank > searches.k
    return Judgement("scored worse" if worse else "pruned", sufficient, width, rank)


def _ends_before(searches: Searches, gold: int, done: int) -> bool:
    """Whether DONE is what keeps the passage out of the chain.

    A chain that DONE ends here then has a higher score than any chain through the passage, for scores never
    rise; so the passage cannot be in the best chain, even where it is among the hits. A DONE that the search
    did not find ends no chain, whatever its score.
    """
    found = {hit.passage for hit in searches.trace.found}
    if gold == done or done not in found:
        return False
    if searches.score(done).score <= searches.score(gold).score:
        return False
    hidden = (*searches.exclude, done)
    others = Searches(
        searches.decoder, searches.model_input, searches.k, hidden, searches.bias, searches.prior
    )
    return gold in found | {hit.passage for hit in others.trace.found}


def _misjudged(searches: Searches, gold: int) -> bool:
    """Whether scores that lack the tokens after the unique prefix put the passage below a worse one."""
    decoder = searches.decoder
    if decoder.mode == "renormalized" or not decoder.stops_early or not searches.trace.found:
        return False
    returned = searches.scores([hit.passage for hit in searches.trace.found])
    return searches.score(gold).complete > min(score.complete for score in returned) + TOLERANCE


def _true_rank(searches: Searches, gold: int) -> int:
    every = searches.every()
    return 1 + sum(score > every[gold] + TOLERANCE for score in every.values())
