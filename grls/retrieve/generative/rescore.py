"""Rescoring by the generator: it reads the best passages to their end and ranks them anew.

Legend: Q queries, C candidates of a query.

The search gives the C best passages of a query scores s(x). The generator reads each to its end and gives it
log-odds a(x) (:mod:`grls.models.rescore_spec`). With w the weight,

    score(x)  =  s(x) + w a(x) + c,    c = log sum over candidates of exp s  -  log sum of exp (s + w a),

so the total probability of the candidates does not change. Other passages follow, with scores no higher than
those of the candidates, so that a ranking does not depend on the number of hits. In chains this holds at
every hop: scores stay log-probabilities, and DONE is rescored like a passage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grls.data.codec import Codec, TokenIds
from grls.decode import ScoredPassage
from grls.decode.rescore import rescore, rescore_plain
from grls.io.progress import Progress
from grls.models.base import Floats, TreeGenerator, once_each
from grls.models.causal.plain import CausalGenerator
from grls.models.rescore_spec import RescoreInput, readout
from grls.models.seq2seq.plain import Seq2SeqGenerator, check_positions

_TOGETHER = 256
"""Inputs whose passages are tokenised and rescored together."""


@dataclass(frozen=True)
class Rescorer:
    """Computes log-odds of passages, which a model reads to their end.

    Args:
        codec: Text to tokens.
        rescore_input: How much of a passage the model reads.
        sequences: Gives the target sequences of passages, by number.
        done: The number of DONE.
        generator: The model for plain rescoring.
        trees: The model for fast rescoring; None: it cannot run in slots.
    """

    codec: Codec
    rescore_input: RescoreInput
    sequences: Callable[[Sequence[int]], list[TokenIds]]
    done: int
    generator: Seq2SeqGenerator | CausalGenerator
    trees: TreeGenerator | None

    def __call__(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        """Log-odds of passages after each model input; see :meth:`DecodedPassages.rescore`."""
        odds: list[Floats] = []
        with Progress(len(inputs), "rescore", "inputs", shown=None) as bar:
            for start in range(0, len(inputs), _TOGETHER):
                part, asked = inputs[start : start + _TOGETHER], passages[start : start + _TOGETHER]
                wanted = sorted({number for numbers in asked for number in numbers} - {self.done})
                read = {self.done: self.rescore_input.read(self.codec.done_sequence, self.codec)}
                for number, sequence in zip(wanted, self.sequences(wanted), strict=True):
                    read[number] = self.rescore_input.read(sequence, self.codec)
                check_positions(self.generator.model, max(map(len, part)), max(map(len, read.values())))
                each = [once_each([tuple(read[number]) for number in numbers]) for numbers in asked]
                rows = [[list(row) for row in distinct] for distinct, _ in each]
                if self.trees is None:
                    distinct_odds = rescore_plain(self.generator, part, rows, readout(self.codec))
                else:
                    distinct_odds = rescore(self.trees, part, rows, readout(self.codec))
                odds += [values[places] for values, (_, places) in zip(distinct_odds, each, strict=True)]
                bar.update(len(part))
        return odds


def rescored(ranking: Sequence[ScoredPassage], odds: Floats, weight: float) -> list[ScoredPassage]:
    """Rank passages by score and log-odds.

    Args:
        ranking: The passages of a query by the search, best first.
        odds: ``[C]`` log-odds (nats) of the first C passages.
        weight: The weight w.

    Returns:
        All passages, best first.
    """
    count = len(odds)
    if not count:
        return list(ranking)
    scores = np.array([one.score for one in ranking[:count]])
    sums = scores + weight * odds
    sums += np.logaddexp.reduce(scores) - np.logaddexp.reduce(sums)
    again = [ScoredPassage(one.passage, float(score)) for one, score in zip(ranking, sums, strict=False)]
    again.sort(key=lambda one: -one.score)
    return again + [one._replace(score=min(one.score, again[-1].score)) for one in ranking[count:]]
