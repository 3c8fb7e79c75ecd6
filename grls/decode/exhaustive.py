"""The score of every passage, computed plainly: the definition of what the beam search approximates.

Legend: N passages, V vocabulary. log p(passage | input) = sum over positions i of
log p(token i | tokens before i, input), where p is normalized according to the score mode. Each passage is
fed to the model separately and without a cache, so use it only for small corpora.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from grls.decode.scores import ScoreMode
from grls.index import ConstraintIndex
from grls.models.base import Floats
from grls.models.seq2seq.plain import Seq2SeqGenerator


@torch.inference_mode()
def score_all(
    generator: Seq2SeqGenerator,
    index: ConstraintIndex,
    model_input: Sequence[int],
    mode: ScoreMode = "renormalized",
) -> Floats:
    """Log-probability (nats) of every passage of the index for one input, ``[N]``."""
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
