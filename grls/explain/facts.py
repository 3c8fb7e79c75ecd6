"""The facts of an explanation about one query, hop and gold passage, as plain types."""

from __future__ import annotations

from typing import NamedTuple

from grls.data.types import Query
from grls.decode.scores import ScoreMode
from grls.decode.trace import Fate
from grls.explain.tree import Tree
from grls.explain.verdict import Judgement, Verdict


class Preferred(NamedTuple):
    """A token that the model preferred to the passage's token, and its log-probability (nats)."""

    text: str
    log_probability: float


class PathRow(NamedTuple):
    """One decoding step, seen from the gold passage; see :class:`grls.decode.trace.PathStep`.

    Attributes:
        step: The number of the step, from 1.
        token: Text of the passage's token.
        log_probability: Log-probability of that token (nats).
        score: Log-probability of the prefix (nats).
        allowed: Number of allowed tokens.
        fate: What the search did with the prefix; None for steps after the search dropped it.
        rank: Rank among the candidates of the step; for a dropped prefix the rank that it would have had.
        best: Score of the step's best candidate.
        bar: Score of the last candidate kept (or of the k-th result, if that beat the prefix).
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
    """One passage that the search returned.

    Attributes:
        rank: The rank, from 1.
        id: Passage id.
        text: Its text.
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
    """Everything known about one query, hop and gold passage.

    Attributes:
        query: The query.
        evidence: Ids of the passages before this hop.
        gold: Id of the gold passage.
        gold_text: Its text.
        mode: Score mode.
        early_stop: Whether a unique prefix ended a beam.
        beams: Beam width.
        k: Passages to return.
        done_bias: Bias added to DONE's score (nats).
        judgement: The verdict with its reasons.
        rank: Rank of the gold passage among the results, from 1; None if it is no result.
        score: Its score in the decoder (nats); None if it is excluded.
        complete: Log-probability (nats) of the whole passage; None if it is excluded.
        path: The decoding steps of the gold passage, up to its unique prefix if the search stops there.
        tokens: Number of its tokens, end token included.
        results: The passages that the search returned.
        done: Score and rank of DONE; None if the model may not write DONE.
        twins: Ids of other passages with equal tokens.
        cut_tokens: Number of its tokens that the length limit cut.
        tree: The beam tree.
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
    done_bias: float
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
    tree: Tree
    priors: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict on the passage."""
        return self.judgement.verdict

    @property
    def hop(self) -> int:
        """The hop, from 1."""
        return len(self.evidence) + 1

    @property
    def taken(self) -> int:
        """Number of passages that the search returns before DONE gets its bias and k are kept."""
        return max(self.k, self.beams) if self.done_bias else self.k

    @property
    def left(self) -> PathRow | None:
        """The step at which the passage's prefix left the beam; None if it did not."""
        return next((row for row in self.path if row.fate in ("pruned", "beaten")), None)
