"""Log-probabilities of stretches of a text behind documents; shared computation is done once.

Legend: B sequences, L tokens of the longest, d model width, V vocabulary, R rows asked of the head.

Every sequence begins with the tokens that the tokenizer puts before a text. A causal model predicts a token
from the tokens before it, so one pass over ``document + text`` yields the predictions of *every* stretch of
the text behind that document. Stretches are therefore grouped by documents and start of the text, and each
group is one sequence, up to its last stretch: consecutive strides with the same document cost little more
than one, and so do the sixteen candidates that neighbouring strides share in reranking. The head, the most
expensive layer of a small model, sees only the positions whose prediction is asked for.

The module does not know of retrieval: documents are token ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from grls.answer.ralm.strides import Stride, WindowOptions
from grls.errors import ConfigError, Option
from grls.models.head import Head
from grls.models.load.language import refuse_foresight

Floats = npt.NDArray[np.float64]
_HEAD_ROWS = 256
"""Rows of logits at a time: 50 MB for a vocabulary of 50,000."""
_WHOLE_LOGITS = 1024
"""Tokens at a time for a model that changes logits behind its head: it needs the logits of all tokens."""


class Wanted(NamedTuple):
    """A stretch of a text to score.

    Attributes:
        documents: Names of the documents before it, in order; see :class:`TextScorer`.
        start: The first token of the text that the model sees.
        first: Its first token, behind ``start``, a document or the tokens that the tokenizer puts first.
        last: The token after its last.
    """

    documents: tuple[int, ...]
    start: int
    first: int
    last: int


class _Sequence(NamedTuple):
    """A sequence of one pass: tokens, and places ``[m]`` whose next token is a target."""

    tokens: list[int]
    places: list[int]
    targets: list[int]


class TextScorer:
    """Scores stretches of texts under a causal language model.

    Args:
        model: A transformers causal language model.
        document: Returns the token ids of a document by its name.
        window: How the text is cut to the window.
        begin: Token ids that stand before every input.
        batch_tokens: Tokens of a batch, padding included.

    Attributes:
        computed: Tokens computed so far, without padding.
    """

    def __init__(
        self,
        model: Any,
        document: Callable[[int], Sequence[int]],
        window: WindowOptions | None = None,
        begin: Sequence[int] = (),
        batch_tokens: int = 4096,
    ):
        if model.config.is_encoder_decoder:
            raise ConfigError(
                f"{type(model).__name__} is an encoder-decoder; perplexity needs a causal language model."
            )
        self.model = model.eval()
        refuse_foresight(self.model)
        self.document = document
        self.window = window or WindowOptions()
        self.begin = tuple(begin)
        self.computed = 0
        self._head = Head(model)
        self.batch_tokens = batch_tokens if self._head.linear else min(batch_tokens, _WHOLE_LOGITS)

    def before(self, documents: Sequence[int]) -> list[int]:
        """The tokens before the text: those that the tokenizer puts first, then the documents."""
        return [*self.begin, *(token for name in documents for token in self.document(name))]

    def start(self, documents: Sequence[int], last: int) -> int:
        """The first token of the text that the model sees behind documents, to predict up to ``last``."""
        length = len(self.begin) + sum(len(self.document(name)) for name in documents)
        return self.window.start(length, last)

    def wanted(self, documents: tuple[int, ...], stride: Stride) -> Wanted:
        """The stretch to score for a stride behind documents: every token that has a token before it."""
        alone = not stride.first and not documents and not self.begin
        return Wanted(documents, self.start(documents, stride.last), stride.first + alone, stride.last)

    def log_probabilities(self, text: Sequence[int], wanted: Sequence[Wanted]) -> list[Floats]:
        """Log-probability (nats) of each token of stretches.

        Args:
            text: Token ids.
            wanted: The stretches.

        Returns:
            ``[last - first]`` for each.

        Raises:
            ValueError: A stretch begins at a token that has no token before it.
        """
        groups: dict[tuple[tuple[int, ...], int], list[int]] = defaultdict(list)
        for n, stretch in enumerate(wanted):  # equal documents are read once, so that ties stay ties
            groups[tuple(self.before(stretch.documents)), stretch.start].append(n)
        laid: list[_Sequence] = []
        places: list[dict[int, int]] = []  # target -> its place among the targets of the sequence
        for (before, start), members in groups.items():
            targets = sorted({t for n in members for t in range(wanted[n].first, wanted[n].last)})
            if targets and targets[0] + len(before) <= start:
                raise ValueError(f"token {targets[0]} has nothing before it")
            tokens = [*before, *text[start : targets[-1]]] if targets else []
            asked = [len(before) + t - start - 1 for t in targets]
            laid.append(_Sequence(tokens, asked, [text[t] for t in targets]))
            places.append({target: n for n, target in enumerate(targets)})
        values: list[Floats] = [np.empty(0)] * len(laid)
        order = sorted((n for n in range(len(laid)) if laid[n].tokens), key=lambda n: -len(laid[n].tokens))
        while order:  # similar lengths together
            size = max(1, self.batch_tokens // len(laid[order[0]].tokens))
            batch, order = order[:size], order[size:]
            ends = np.cumsum([len(laid[n].targets) for n in batch])
            parts = np.split(self._batch([laid[n] for n in batch]), ends[:-1])
            for n, part in zip(batch, parts, strict=True):
                values[n] = part
        scores: list[Floats] = [np.empty(0)] * len(wanted)
        for members, place, row in zip(groups.values(), places, values, strict=True):
            for n in members:
                first, last = wanted[n].first, wanted[n].last
                if last > first:
                    scores[n] = row[place[first] : place[first] + last - first]
        return scores

    @torch.inference_mode()
    def _batch(self, laid: Sequence[_Sequence]) -> Floats:
        device = self.model.device
        tokens = torch.zeros((len(laid), len(laid[0].tokens)), dtype=torch.long)
        for row, sequence in enumerate(laid):  # padding stands behind, so a causal model does not see it
            tokens[row, : len(sequence.tokens)] = torch.tensor(sequence.tokens)
            self.computed += len(sequence.tokens)
        read = self._head.read(input_ids=tokens.to(device), use_cache=False)
        rows = torch.tensor(
            [row for row, sequence in enumerate(laid) for _ in sequence.places], device=device
        )
        places = torch.tensor([place for sequence in laid for place in sequence.places], device=device)
        targets = torch.tensor([target for sequence in laid for target in sequence.targets], device=device)
        hidden = read[rows, places]
        parts = []
        for n in range(0, len(hidden), _HEAD_ROWS):
            logits = self._head.all(hidden[n : n + _HEAD_ROWS])  # [R, V]
            chosen = logits.gather(1, targets[n : n + _HEAD_ROWS, None])[:, 0]
            parts.append(chosen - logits.logsumexp(-1))
        scores: Floats = torch.cat(parts).double().cpu().numpy()
        if not np.isfinite(scores).all():
            raise ConfigError(f"the model's logits are not numbers; try another {Option('precision')}.")
        return scores
