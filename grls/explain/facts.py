"""What an explanation says: the facts about one query, hop and gold passage, as plain types."""

from __future__ import annotations

from typing import NamedTuple

from grls.data.types import Query
from grls.decode.scores import ScoreMode
from grls.decode.trace import Fate
from grls.explain.tree import Tree
from grls.explain.verdict import Judgement, Verdict


class Preferred(NamedTuple):
    """A token that the model preferred to the passage's own, and its log-probability (nats)."""

    text: str
    log_probability: float


class PathRow(NamedTuple):
    """One decoding step, seen from the gold passage; see :class:`grls.decode.trace.PathStep`.

    Attributes:
        step: From 1.
        token: Text of the passage's token.
        log_probability: Of that token (nats).
        score: Log-probability of the prefix (nats).
        allowed: How many tokens might have stood here.
        fate: What the search did with the prefix; None once it was gone.
        rank: Its place among the candidates it competed with, or would have competed with.
        best: Score of the step's best candidate.
        bar: Score of the last candidate kept (of the k-th result, where that is what beat it).
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
        rank: From 1.
        id: Passage id.
        text: Its text.
        score: What the search gave it (nats); DONE's with its bias.
        complete: Log-probability (nats) of the whole passage; DONE's with its bias.
        above: Whether it scores at least as high as the gold passage does.
    """

    rank: int
    id: str
    text: str
    score: float
    complete: float
    above: bool


class Ending(NamedTuple):
    """The place of DONE at a hop where it may be written.

    Attributes:
        score: Its log-probability (nats), with its bias.
        rank: Its place among the results; None where it is not among them.
        above: Whether it scores higher than the gold passage.
    """

    score: float
    rank: int | None
    above: bool


class Explanation(NamedTuple):
    """Everything known about one query, hop and gold passage.

    Attributes:
        query: The query.
        evidence: Ids of the passages before this hop.
        gold: Id of the passage asked about.
        gold_text: Its text.
        mode: Score mode.
        early_stop: Whether a unique prefix ended a beam.
        beams: Beam width.
        k: Passages asked for.
        done_bias: Added to DONE's score (nats).
        judgement: The verdict.
        rank: Its place among the results, from 1; None where it is not among them.
        score: What the decoder gives it (nats); None where it is excluded.
        complete: Log-probability (nats) of the whole passage; None where it is excluded.
        path: Its steps; those after the unique prefix are forced where the search stops there.
        tokens: How many tokens it has, end token included.
        results: What the search returned.
        done: The place of DONE; None where it may not be written.
        twins: Ids of other passages of equal tokens.
        cut_tokens: How many of its tokens the length limit cut.
        tree: The beam tree.
        priors: Whether other retrievers looked ahead for the generator; what they add is in all scores.
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
        """What became of the passage."""
        return self.judgement.verdict

    @property
    def hop(self) -> int:
        """The hop, from 1."""
        return len(self.evidence) + 1

    @property
    def taken(self) -> int:
        """Passages the search takes before DONE is weighed and k are kept."""
        return max(self.k, self.beams) if self.done_bias else self.k

    @property
    def left(self) -> PathRow | None:
        """The step at which the passage's prefix left the beam; None where it did not."""
        return next((row for row in self.path if row.fate in ("pruned", "beaten")), None)
