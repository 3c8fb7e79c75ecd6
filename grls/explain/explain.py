"""Why one gold passage of one query was found, or why not: its searches, its facts, and the verdict.

The retriever's decoder searches once more, and a trace records the search. The evidence before the hop is
fixed (gold evidence, or the passages of a chain), so one hop is explained at a time, as in teacher-forced
retrieval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from grls.data.types import Query, ScoreMode, Steps
from grls.decode.beam import Decoder, ScoredPassage
from grls.decode.prior import Prior
from grls.decode.trace import (
    Fate,
    PassageScore,
    PathStep,
    SearchTrace,
    TokenScore,
    follow,
    score_passages,
    trace,
)
from grls.explain.beams import passage_numbers, passage_or_done, prepared_hop
from grls.explain.options import candidates_listed, hops_of
from grls.io.locks import exclusive
from grls.retrieve.base import DecodesPassages, Retriever, no_beam, single_steps
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.stop import Never, StopRule, stop_of_hop

if TYPE_CHECKING:
    from grls.retrieve.generative.retriever import GenerativeRetriever


def explainer_of(retriever: Retriever, k: int | None) -> tuple[Explainer, HopOptions] | None:
    """What explains the hops of a retriever step by step, and these hops; None if its passages have ranks."""
    if no_beam(retriever) is not None:
        return None
    single, hops = single_steps(retriever), hops_of(retriever)
    assert isinstance(single, DecodesPassages)
    listed = k or candidates_listed(hops)
    return Explainer(single, listed, stop_of_hop(single, hops), hops.repeat), hops


def gold_by_hop(gold: Sequence[str], steps: Steps) -> list[tuple[Sequence[str], Sequence[str]]]:
    """The gold passages of each hop, with the evidence before them."""
    if steps == "single":
        return [(gold, ())]
    return [((passage,), gold[:n]) for n, passage in enumerate(gold)]


@dataclass
class Explainer:
    """Explains misses of a retriever that decodes passages, alone or with priors.

    Args:
        retriever: The retriever, with its options (beam width, score mode).
        k: Passages a hop.
        stop: Says from which hop on DONE may be written, and has its bias.
        repeat: Whether a chain may hold a passage twice.
    """

    retriever: DecodesPassages
    k: int = 10
    stop: StopRule = field(default_factory=Never)
    repeat: bool = False

    @property
    def generator(self) -> GenerativeRetriever:
        generator: GenerativeRetriever = self.retriever.generator
        return generator

    def explain(self, query: Query, gold: Sequence[str], evidence: Sequence[str] = ()) -> list[Explanation]:
        """Explain one hop of a query, one gold passage after the other (``DONE`` if the chain should have
        ended).

        ``evidence`` are the ids of the passages of the hops before.
        """
        generator, done, explanations = self.generator, self.generator.done, []
        numbers = passage_numbers(generator.corpus, [*gold, *evidence], done)
        with exclusive(generator.model):
            searches = self._searches(query, numbers[: len(gold)], numbers[len(gold) :])
            decoder, hits = searches.decoder, searches.trace.found
            returned = [hit.passage for hit in hits]
            texts = [passage_or_done(generator, found) for found in returned]
            columns = hits, texts, searches.scores(returned)
            for number in numbers[: len(gold)]:
                judgement = judge(searches, number, done)
                score = None if searches.excluded(number) else searches.score(number)
                path = searches.path(number)
                bar = float("-inf") if score is None else score.score
                results = [
                    Result(rank, found.id, found.titled, hit.score, exact.complete, hit.score >= bar)
                    for rank, (hit, found, exact) in enumerate(zip(*columns, strict=True), start=1)
                ]
                ending = None
                if number != done and not searches.excluded(done):
                    worth = searches.score(done).score
                    rank_of_done = returned.index(done) + 1 if done in returned else None
                    ending = Ending(worth, rank_of_done, score is not None and worth > score.score)
                rows = []
                for n, step in enumerate(path, start=1):
                    token: TokenScore = step.token
                    rivals = [Preferred(self._token(r.token), r.log_probability) for r in token.rivals]
                    rows.append(PathRow(
                        n, self._token(token.token), token.log_probability, step.score, token.allowed,
                        step.fate, step.rank, step.best, step.bar, step.margin, tuple(rivals),
                    ))  # fmt: skip
                cut, passage = 0, passage_or_done(generator, number)
                if number != done:
                    codec = generator.codec
                    parts = [text for text in (passage.title, passage.text) if text]
                    tokens = sum(map(len, codec.texts(parts))) + bool(passage.title)
                    cut = max(0, tokens - codec.limits.passage)
                explanations.append(
                    Explanation(
                        query=query,
                        evidence=tuple(evidence),
                        gold=passage.id,
                        gold_text=passage.titled,
                        mode=decoder.mode,
                        early_stop=decoder.stops_early,
                        beams=decoder.beams,
                        k=self.k,
                        taken=searches.taken(decoder.beams),
                        stop=self.stop,
                        judgement=judgement,
                        rank=returned.index(number) + 1 if number in returned else None,
                        score=None if score is None else score.score,
                        complete=None if score is None else score.complete,
                        path=tuple(rows),
                        tokens=len(generator.index.tokens(number)),
                        results=tuple(results),
                        done=ending,
                        twins=tuple(passage_or_done(generator, twin).id for twin in searches.twins(number)),
                        cut_tokens=cut,
                        priors=searches.prior is not None,
                    )
                )
        return explanations

    def judge(
        self, query: Query, gold: Sequence[str], evidence: Sequence[str] = ()
    ) -> list[tuple[Judgement, int | None]]:
        """The verdicts of :meth:`explain` alone, which cost less; and the step (from 1) at which the prefix
        left the beam, or None.
        """
        generator, judged = self.generator, []
        numbers = passage_numbers(generator.corpus, [*gold, *evidence], generator.done)
        with exclusive(generator.model):
            searches = self._searches(query, numbers[: len(gold)], numbers[len(gold) :])
            for number in numbers[: len(gold)]:
                left = next((n for n, step in enumerate(searches.path(number), 1) if step.fate in LOST), None)
                judged.append((judge(searches, number, generator.done), left))
        return judged

    def _searches(self, query: Query, gold: Sequence[int], evidence: Sequence[int]) -> Searches:
        may_end = self.stop.may_end(len(evidence))
        model_input, hidden, prior = prepared_hop(self.retriever, query, evidence, may_end, self.repeat)
        bias = {self.generator.done: self.stop.bias} if self.stop.bias else {}
        searches = Searches(self.generator.decoder(self.k), model_input, self.k, hidden, bias, prior)
        searches.forced([n for n in gold if not searches.excluded(n)])  # one pass for all passages
        return searches

    def _token(self, token: int) -> str:
        return str(self.generator.codec.tokenizer.convert_ids_to_tokens(token))


LOST: tuple[Fate, ...] = ("pruned", "beaten")
"""What the search did with a prefix that left the beam."""


class Preferred(NamedTuple):
    """A token that the model preferred to the passage's token, and its log-probability (nats)."""

    text: str
    log_probability: float


class PathRow(NamedTuple):
    """A decoding step, seen from the gold passage; see :class:`grls.decode.trace.PathStep`.

    Attributes:
        step: From 1.
        log_probability: That of the passage's token (nats).
        score: Log-probability of the prefix (nats).
        allowed: Number of allowed tokens.
        fate: What the search did with the prefix; None for steps after the search dropped it.
        rank: Rank among the candidates of the step; for a dropped prefix the rank that it would have had.
        best: Score of the step's best candidate.
        bar: Score of the last candidate in the beam (or of the k-th result, if that beat the prefix).
        margin: Score minus bar.
        preferred: Tokens that the model preferred after the same prefix.
    """

    step: int
    token: str
    log_probability: float
    score: float
    allowed: int
    fate: Fate | None
    rank: int | None
    best: float | None
    bar: float | None
    margin: float | None
    preferred: tuple[Preferred, ...]


class Result(NamedTuple):
    """A passage that the search returned.

    Attributes:
        score: Score in the search (nats); for DONE with its bias.
        complete: Log-probability (nats) of the whole passage; for DONE with its bias.
        above: Whether it scores at least as high as the gold passage.
    """

    rank: int
    id: str
    text: str
    score: float
    complete: float
    above: bool


class Ending(NamedTuple):
    """Score and rank of DONE at a hop where the model may write it.

    Attributes:
        score: Log-probability (nats), with the bias.
        rank: Rank among the results; None if DONE is not a result.
        above: Whether DONE scores higher than the gold passage.
    """

    score: float
    rank: int | None
    above: bool


class Explanation(NamedTuple):
    """The facts about one query, hop and gold passage.

    Attributes:
        evidence: Ids of the passages before this hop.
        gold: Id of the gold passage.
        early_stop: Whether a unique prefix ended a beam.
        beams: Beam width.
        k: Passages to return.
        taken: Number of passages that the search returns before DONE gets its bias.
        stop: The stop rule. The scores of DONE here include its bias (nats). Where that shifts log-odds, the
            normalizer, which lowers all scores alike, is left out.
        rank: Rank of the gold passage among the results, from 1; None if it is no result.
        score: Its score in the decoder (nats); None if it is excluded.
        complete: Log-probability (nats) of the whole passage; None if it is excluded.
        path: The decoding steps of the gold passage, up to its unique prefix if the search stops there.
        tokens: Number of its tokens, end token included.
        done: Score and rank of DONE; None if the model may not write DONE.
        twins: Ids of other passages with equal tokens.
        cut_tokens: Number of its tokens that the length limit cut.
        priors: Whether priors look ahead for the generator; all scores include them.
    """

    query: Query
    evidence: tuple[str, ...]
    gold: str
    gold_text: str
    mode: ScoreMode
    early_stop: bool
    beams: int
    k: int
    taken: int
    stop: StopRule
    judgement: Judgement
    rank: int | None
    score: float | None
    complete: float | None
    path: tuple[PathRow, ...]
    tokens: int
    results: tuple[Result, ...]
    done: Ending | None
    twins: tuple[str, ...]
    cut_tokens: int
    priors: bool = False

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def hop(self) -> int:
        """From 1."""
        return len(self.evidence) + 1

    @property
    def left(self) -> PathRow | None:
        """The step at which the passage's prefix left the beam; None if it did not."""
        return next((row for row in self.path if row.fate in LOST), None)


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


_WIDEST = 128
"""The widest beam that is tried for a passage that the beam lost."""


class Judgement(NamedTuple):
    """A verdict with its reasons.

    Attributes:
        sufficient: The smallest beam width tried that finds the passage; None if no beam did.
        widest: The widest beam tried.
    """

    verdict: Verdict
    sufficient: int | None
    widest: int


def judge(searches: Searches, gold: int, done: int) -> Judgement:
    """The cause of a miss: the beam, the model, or something else.

    Let s(p) be the exact log-probability of passage p. If a beam search misses the gold passage g although
    s(g) exceeds the score of the k-th passage returned, the beam has lost it (``pruned``). Otherwise k
    passages score higher, which no search can change (``scored worse``). Other passages that the beam lost
    may still outrank a lost passage: so wider beams are tried until one finds it or
    returns k passages that score higher.
    """
    width = searches.decoder.beams
    if searches.excluded(gold):
        return Judgement("excluded", None, width)
    if _ends_before(searches, gold, done):
        return Judgement("done first", None, width)
    results = {hit.passage for hit in searches.trace.found}
    if gold in results:
        return Judgement("found", width, width)
    if results.intersection(searches.twins(gold)):
        return Judgement("duplicate", width, width)
    decoder, exact = searches.decoder, searches.score(gold)
    if exact.score > searches.last(searches.trace.found) + TOLERANCE:  # would a wider beam return it?
        wanted, outranked = {gold, *searches.twins(gold)}, False
        sufficient = None
        while width < _WIDEST and sufficient is None and not outranked:
            width = min(2 * width, _WIDEST)
            hits = searches.at(width).found
            if wanted & {hit.passage for hit in hits}:
                sufficient = width
            else:
                outranked = searches.last(hits) >= exact.score - TOLERANCE
        return Judgement("scored worse" if outranked else "pruned", sufficient, width)
    if decoder.mode != "renormalized" and decoder.stops_early and results:
        # Scores up to the unique prefix may rank it below a passage with a lower whole score.
        returned = searches.scores([hit.passage for hit in searches.trace.found])
        lowest = min(score.complete for score in returned)
        if exact.complete > lowest + TOLERANCE:
            return Judgement("early stop", None, width)
    return Judgement("scored worse", None, width)


def _ends_before(searches: Searches, gold: int, done: int) -> bool:
    """Whether DONE keeps the passage out of the chain: it was found, and DONE scores higher, which no later
    hop can change.
    """
    results = {hit.passage for hit in searches.trace.found}
    if gold == done or done not in results:
        return False
    if searches.score(done).score <= searches.score(gold).score:
        return False
    without_done = replace(searches, exclude=(*searches.exclude, done))
    return gold in results | {hit.passage for hit in without_done.trace.found}


class Score(NamedTuple):
    """Score in the decoder, and log-probability of the whole passage (nats), bias included."""

    score: float
    complete: float


@dataclass
class Searches:
    """Searches and exact scores of one model input, each computed once; passages are numbers.

    A bias b of DONE shifts its log-odds, as in :class:`grls.retrieve.hops.stop.DoneByLogOdds`: DONE's score
    is then s + b - log Z, the score of every other passage s - log Z. Z is the same for all, so it is left
    out here: DONE's score is s + b, and other scores stay s. Orders and differences equal those of the
    biased search.

    As in dynamic retrieval, a search with a bias takes all ``beams`` passages, adds the bias and returns the
    best k. ``bias``: passage -> bias added to its score (nats), of DONE alone. ``exclude`` are numbers of
    passages.
    """

    decoder: Decoder
    model_input: Sequence[int]
    k: int
    exclude: Sequence[int]
    bias: Mapping[int, float]
    prior: Prior | None

    def __post_init__(self) -> None:
        self._traces: dict[int, SearchTrace] = {}
        self._scores: dict[int, PassageScore] = {}

    def at(self, beams: int) -> SearchTrace:
        """The search with this beam width; its results include the bias."""
        if beams not in self._traces:
            decoder = replace(self.decoder, beams=beams)
            search = trace(decoder, self.model_input, self.taken(beams), self.exclude, self.prior)
            bias, hits = self.bias, search.found
            weighed = [hit._replace(score=hit.score + bias.get(hit.passage, 0.0)) for hit in hits]
            weighed.sort(key=lambda hit: -hit.score)
            self._traces[beams] = search._replace(found=tuple(weighed[: self.k]))
        return self._traces[beams]

    def taken(self, beams: int) -> int:
        """The number of passages that a search returns before DONE gets its bias and k are kept."""
        return max(self.k, beams) if self.bias else self.k

    @property
    def trace(self) -> SearchTrace:
        return self.at(self.decoder.beams)

    def score(self, passage: int) -> Score:
        return self.scores([passage])[0]

    def scores(self, passages: Sequence[int]) -> list[Score]:
        """The exact scores of passages that are not excluded."""
        shifts = [self.bias.get(p, 0.0) for p in passages]
        exact = self.forced(passages)
        return [Score(e.score + b, e.complete + b) for e, b in zip(exact, shifts, strict=True)]

    def forced(self, passages: Sequence[int]) -> list[PassageScore]:
        """The model's token scores of passages that are not excluded, without a bias."""
        unknown = [p for p in dict.fromkeys(passages) if p not in self._scores]
        if unknown:
            scored = score_passages(self.decoder, self.model_input, unknown, self.exclude, prior=self.prior)
            self._scores.update(zip(unknown, scored, strict=True))
        return [self._scores[p] for p in passages]

    def path(self, passage: int) -> tuple[PathStep, ...]:
        """The steps of the search, seen from a passage; none if it is excluded."""
        return () if self.excluded(passage) else follow(self.trace, self.forced([passage])[0])

    def excluded(self, passage: int) -> bool:
        """Whether a passage, or another one with equal tokens, is excluded."""
        rows = self.decoder.index.rows.row_of
        return int(rows[passage]) in {int(rows[p]) for p in self.exclude}

    def twins(self, passage: int) -> list[int]:
        rows = self.decoder.index.rows.row_of
        return [int(p) for p in np.flatnonzero(rows == rows[passage]) if p != passage]

    def last(self, hits: Sequence[ScoredPassage]) -> float:
        """The score to exceed for a place among the results: the k-th score, ``-inf`` for fewer results."""
        return hits[-1].score if len(hits) == self.k else -np.inf
