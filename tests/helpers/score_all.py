"""The score of every passage by its definition, which the beam search approximates."""

from collections.abc import Sequence

import numpy as np
import torch

from grls.data.types import ScoreMode
from grls.index.base import ConstraintIndex
from grls.models.base import Floats
from grls.models.seq2seq.slots import Seq2SeqGenerator


@torch.inference_mode()
def score_all(
    generator: Seq2SeqGenerator,
    index: ConstraintIndex,
    model_input: Sequence[int],
    mode: ScoreMode = "renormalized",
) -> Floats:
    """Log-probability (nats) of every passage of the index for one input (token ids), ``[N]``.

    Each passage is fed separately and without a cache.
    """
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
