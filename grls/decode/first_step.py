"""The first step of a search: the tokens that may begin a passage are the same for all queries.

Legend: B rows that begin, N tokens that may begin a passage, K beam width. With a million passages N is
in the tens of thousands, so the step is one dense product with a cached part of the head, and of its
``[B, N]`` scores only those that the beam can choose leave the device.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from grls.data.types import ScoreMode
from grls.decode.prior import PriorMasses
from grls.decode.scope import Mask, Scope, finished
from grls.decode.select import refuse_nan
from grls.index.base import ConstraintIndex
from grls.index.rows import Ints
from grls.models.base import Floats
from grls.models.sessions.memory import SlotMemory


class Best(NamedTuple):
    """The candidates of the first step that can be chosen, by row and then by token.

    ``scores`` are log-probabilities (nats) with those of priors, ``states`` are in the index.
    """

    rows: Ints
    tokens: Ints
    states: Ints
    scores: Floats
    complete: Mask


class FirstSteps:
    def __init__(self, index: ConstraintIndex, early_stop: bool):
        allowed = index.allowed(np.array([index.start()]))
        self._end = index.rows.end
        self._early_stop = early_stop
        low, high = self._spans = index.span(allowed.states)
        complete = finished(allowed.tokens, high - low, self._end, early_stop)
        self._order = np.argsort(complete, kind="stable")  # so that each kind is a slice
        self._live = int((~complete).sum())
        self.tokens = allowed.tokens[self._order]
        """``[N]`` first tokens; tokens that finish a passage come last."""
        self.states = allowed.states[self._order]

    def best(
        self,
        session: SlotMemory,
        slots: Ints,
        scope: Scope,
        mode: ScoreMode,
        beams: int,
        masses: PriorMasses | None,
    ) -> Best:
        """The K best finished and the K best unfinished candidates of each row.

        B queries have just been loaded into ``slots [B]`` of the session.
        """
        logits = session.shared(self.tokens)
        scoped = scope.concerns(slots)
        with torch.inference_mode():
            if scoped:
                remaining = scope.table(slots, *self._spans)[:, self._order]
                tokens, forbidden = np.broadcast_to(self.tokens, remaining.shape), remaining == 0
                complete = finished(tokens, remaining, self._end, self._early_stop)
                done = torch.from_numpy(complete).to(logits.device)
                logits = logits.masked_fill(torch.from_numpy(forbidden).to(logits.device), -torch.inf)
            normalizer = (
                logits.logsumexp(-1) if mode == "renormalized"
                else torch.from_numpy(session.log_normalizer()).to(logits.device)
            )  # fmt: skip
            if masses is not None:
                gains = masses.table(slots, *self._spans)[:, self._order]
                logits = logits.double() + torch.as_tensor(gains, device=logits.device)
                if masses.normalized:
                    normalizer = logits.logsumexp(-1)
            tables = [logits[:, : self._live], logits[:, self._live :]]
            if scoped:
                tables = [logits.masked_fill(other, -torch.inf) for other in (done, ~done)]
            parts = [table.topk(min(beams, table.shape[-1]), dim=-1) for table in tables]
            if not scoped:
                parts[1].indices.add_(self._live)
            values = torch.cat([part.values for part in parts], 1).double() - normalizer.double()[:, None]
            numbers = torch.cat([part.indices for part in parts], 1).cpu().numpy()
            scores: Floats = values.cpu().numpy()
        refuse_nan(scores)
        row, column = np.nonzero(scores > -np.inf)
        number, score = numbers[row, column], scores[row, column]
        order = np.lexsort((self.tokens[number], row))
        row, number, score = row[order], number[order], score[order]
        ends = complete[row, number] if scoped else number >= self._live
        return Best(row, self.tokens[number], self.states[number], score, ends)
