"""Ranking by what the generator says of passages once it has written them, beside how likely it was to.

Legend: Q queries, C candidates of a query.

The search gives the C best passages of a query scores s(x); the generator reads each to its end and gives it
log-odds a(x) (:mod:`grls.models.rescore_spec`). With w the weight,

    score(x)  =  s(x) + w a(x) + c,    c = log sum over candidates of exp s  -  log sum of exp (s + w a),

so candidates keep together the probability that they had. What was not rescored stands behind them, its score
no higher than theirs, so that a ranking is the same however many passages are asked for. In chains this holds
at every hop: scores stay log-probabilities, DONE is rescored as a passage is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.codec import Codec, TokenIds
from grls.decode import ScoredPassage
from grls.decode.rescore import rescore, rescore_plain
from grls.io.progress import Progress
from grls.models.base import Floats, TreeGenerator
from grls.models.causal.plain import CausalGenerator
from grls.models.rescore_spec import RescoreInput, readout
from grls.models.seq2seq.plain import Seq2SeqGenerator, check_positions

_TOGETHER = 256
"""Inputs whose passages are made tokens of and rescored together."""


@dataclass(frozen=True)
class Rescorer:
    """Lets a model read passages to their end.

    Args:
        codec: Its tokens.
        rescore_input: How much of a passage it reads.
        sequences: The target sequences of passages, by number.
        done: The number of DONE.
        generator: The model for the plain way.
        trees: For the fast one; None where it cannot be driven so.
    """

    codec: Codec
    rescore_input: RescoreInput
    sequences: Callable[[Sequence[int]], list[TokenIds]]
    done: int
    generator: Seq2SeqGenerator | CausalGenerator
    trees: TreeGenerator | None

    def __call__(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        """Log-odds of passages behind each model input; see :meth:`DecodedPassages.rescore`."""
        found: list[Floats] = []
        with Progress(len(inputs), "rescore", "inputs", shown=None) as bar:
            for start in range(0, len(inputs), _TOGETHER):
                part = slice(start, start + _TOGETHER)
                found += self._some(inputs[part], passages[part])
                bar.update(len(inputs[part]))
        return found

    def _some(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        wanted = sorted({number for some in passages for number in some} - {self.done})
        read = {self.done: self.rescore_input.read(self.codec.done_sequence, self.codec)}
        for number, sequence in zip(wanted, self.sequences(wanted), strict=True):
            read[number] = self.rescore_input.read(sequence, self.codec)
        check_positions(self.generator.model, max(map(len, inputs)), max(map(len, read.values())))
        given = inputs, [[read[number] for number in some] for some in passages], readout(self.codec)
        return rescore_plain(self.generator, *given) if self.trees is None else rescore(self.trees, *given)


def rescored(found: Sequence[ScoredPassage], odds: Floats, weight: float) -> list[ScoredPassage]:
    """Passages ranked by score and rescore.

    Args:
        found: What the search found for a query, best first.
        odds: ``[C]`` log-odds (nats) of the first C of them.
        weight: w.

    Returns:
        All of them, best first.
    """
    count = len(odds)
    if not count:
        return list(found)
    own = np.array([some.score for some in found[:count]])
    both = own + weight * odds
    both += np.logaddexp.reduce(own) - np.logaddexp.reduce(both)
    ranked = [ScoredPassage(some.passage, float(score)) for some, score in zip(found, both, strict=False)]
    ranked.sort(key=lambda some: -some.score)
    return ranked + [some._replace(score=min(some.score, ranked[-1].score)) for some in found[count:]]
