"""The probability of every passage for one input, by walking the whole index once.

Legend: R rows, S live states, A candidates.

All prefixes of a block of rows are walked together, one token at a time, each prefix once. A prefix with
one row left is finished, because with ``renormalized`` scores the rest has probability one. A million
passages still have a million prefixes, so use it for a single input (an empty prompt), not for every
query.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from grls.data.types import ScoreMode
from grls.decode.select import log_probabilities
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats, GeneratorModel
from grls.models.seq2seq.slots import Seq2SeqGenerator

BLOCK = 512
"""The number of rows that are walked together; it bounds the number of beams."""


def score_rows(
    generator: GeneratorModel, index: ConstraintIndex, model_input: Sequence[int], block: int = BLOCK
) -> Floats:
    """``[R]`` log-probability (nats, ``renormalized``) of every row of an index for one input (token ids)."""
    scores = np.zeros(len(index.rows))
    start: Ints = np.array([index.start()])
    first, last = index.span(start)
    if last[0] - first[0] == 1:
        return scores
    for low in range(0, len(scores), block):
        high, states, before = min(low + block, len(scores)), start, np.zeros(1)
        session = generator.open([model_input])
        session.first()
        while True:
            allowed = index.allowed(states)
            parents = np.repeat(np.arange(len(states)), np.diff(allowed.offsets))
            steps = log_probabilities(session, allowed.tokens, allowed.offsets, "renormalized")
            sums = before[parents] + steps
            first, last = index.span(allowed.states)
            inside = (first < high) & (last > low)
            single = last - first == 1
            scores[first[inside & single]] = sums[inside & single]
            live = np.flatnonzero(inside & ~single)
            if not len(live):
                break
            session.step(parents[live], allowed.tokens[live])
            states, before = allowed.states[live], sums[live]
    return scores


@torch.inference_mode()
def score_all(
    generator: Seq2SeqGenerator,
    index: ConstraintIndex,
    model_input: Sequence[int],
    mode: ScoreMode = "renormalized",
) -> Floats:
    """Log-probability (nats) of every passage of the index for one input, ``[N]``.

    The definition of what the beam search approximates: log p(passage | input) = sum over positions i of
    log p(token i | tokens before i, input), with p normalized according to the score mode. Each passage
    is fed separately and without a cache: for small corpora only.
    """
    index.rows.refuse_prefixes("the score of every passage")
    encoded, mask = generator.encode([model_input])
    scores = np.zeros(len(index))
    for passage in range(len(index)):
        tokens = index.tokens(passage)
        before = torch.tensor([[generator.start_token, *tokens[:-1].tolist()]], device=generator.device)
        logits = generator.head.all(generator.forward(encoded, mask, before)[0]).cpu().double()
        state = index.start()
        for position, token in enumerate(tokens):
            allowed = index.allowed(np.array([state]))
            pool = logits[position] if mode == "full" else logits[position][allowed.tokens]
            scores[passage] += float(logits[position, token] - pool.logsumexp(0))
            state = int(allowed.states[allowed.tokens == token][0])
    return scores
