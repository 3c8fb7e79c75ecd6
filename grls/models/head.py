"""Logits of selected tokens without the whole vocabulary.

Legend: R rows, d model width, V vocabulary, A (row, token) pairs, U distinct tokens among them.

The output head maps ``[R, d]`` to ``[R, V]``. At V = 32,000 this is the most expensive step of decoding
with a small model, though a constraint allows only a few tokens. So the input of the head is captured,
and only the products that are needed are computed.

Some models change the output of the head (Gemma 2 caps it, Cohere and Granite scale it, others mask it).
:attr:`Head.linear` says whether the logits of a model really are ``W h + b``. Real logits may be too
small to show a cap, so the test replaces the output of the head by numbers of all sizes, which the model
must return unchanged. If it does not, whole logits take the place of hidden states (:meth:`Head.read`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from grls.data.codec import Codec
from grls.index.rows import Ints
from grls.io.files import read_count
from grls.io.locks import exclusive
from grls.models.base import Floats

Cut = Callable[[Tensor], Tensor]

_DENSE_GAIN = 4
"""Above this number of pairs per distinct token, one matrix product is faster than a weight row per pair."""

_SIZES = (-3.0, 4.0)
"""The range of the tested logits, as powers of ten. Caps in use are 5 to 100, far below the largest one."""


class Head:
    """The output head of a transformers model: captures its input and computes logits from it."""

    def __init__(self, model: Any, linear: bool | None = None):
        self.module: nn.Linear = model.get_output_embeddings()
        self.model = model
        self._linear = linear

    @property
    def linear(self) -> bool:
        """Whether the logits of the model are ``W h + b`` for the head input h; tested at first use."""
        if self._linear is None:
            self._linear = _is_linear(self.module) and self._passes_on()
        return self._linear

    def read(self, **arguments: Any) -> Tensor:
        """Run the model and return the input of the head, or whole logits if the head is not linear.

        :meth:`all`, :meth:`some`, :meth:`cut` and :meth:`pairs` accept both.
        """
        with exclusive(self.model):
            if not self.linear:
                logits: Tensor = self.model(**arguments).logits
                return logits
            with self.catch() as caught:
                self.model(**arguments)
            return caught[0]

    @torch.no_grad()
    def _passes_on(self) -> bool:
        """Whether the model returns the output of its head unchanged, except for BART's bias."""
        device = self.model.device
        tokens = torch.tensor([[3, 4, 5]], device=device)
        arguments: dict[str, Any] = {"input_ids": tokens, "use_cache": False}
        if self.model.config.is_encoder_decoder:
            arguments["decoder_input_ids"] = tokens
        width = self.module.out_features
        sizes = torch.logspace(*_SIZES, width, device=device)
        signed = torch.where(torch.arange(width, device=device) % 2 == 0, sizes, -sizes)
        probes: list[Tensor] = []

        def answer(hidden: Tensor) -> Tensor:
            rows = [signed.roll(n * width // 3) for n in range(hidden.shape[-2])]
            probes.append(torch.stack(rows).expand(*hidden.shape[:-1], -1).to(hidden.dtype))
            return probes[-1].clone()  # some models change it in place

        modes = [(part, part.training) for part in self.model.modules()]
        self.model.eval()
        try:
            with self._answering(answer):
                logits = self.model(**arguments).logits
        finally:
            for part, training in modes:
                part.training = training
        if len(probes) != 1 or logits.shape != probes[0].shape:
            return False
        expected = probes[0] if self._final_bias is None else probes[0] + self._final_bias
        return torch.equal(logits.float(), expected.float())

    @property
    def _final_bias(self) -> Tensor | None:
        """BART's bias, read at each use, because moving the model replaces the buffer."""
        bias: Tensor | None = getattr(self.model, "final_logits_bias", None)
        return bias

    @contextmanager
    def catch(self) -> Iterator[list[Tensor]]:
        """A context in which the head stores its input and returns one column of zeros."""
        caught: list[Tensor] = []

        def store(hidden: Tensor) -> Tensor:
            caught.append(hidden)
            return hidden.new_zeros((*hidden.shape[:-1], 1))

        with self._answering(store):
            yield caught

    @contextmanager
    def _answering(self, answer: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """A context in which ``answer`` replaces the head, for this thread only."""
        with exclusive(self.model):
            before = self.module.__dict__.get("forward")  # accelerate keeps its hooks there
            self.module.forward = answer  # type: ignore[method-assign, assignment]
            try:
                yield
            finally:
                del self.module.forward
                if before is not None:
                    self.module.forward = before  # type: ignore[method-assign]

    def all(self, hidden: Tensor) -> Tensor:
        """All logits, ``[R, V]``, from hidden states ``[R, d]`` or whole logits."""
        if not self.linear:
            return hidden.float()
        with exclusive(self.model):  # otherwise another thread might have replaced the head
            logits: Tensor = self.module(hidden).float()
        return logits if self._final_bias is None else logits + self._final_bias.float()

    def some(self, hidden: Tensor, tokens: Tensor) -> Tensor:
        """Logits ``[R, U]`` in float32 of the same U tokens for every row of ``hidden [R, d]``."""
        if not self.linear:
            return hidden[:, tokens].float()
        logits = (hidden @ self.module.weight[tokens].T).float()
        return logits + self._bias(tokens)

    def cut(self, tokens: Tensor) -> Cut:
        """A function for the logits of U tokens, from ``[R, d]`` to ``[R, U]`` in float32."""
        if not self.linear:
            return lambda hidden: self.some(hidden, tokens)
        weight, bias = self.module.weight[tokens].T.contiguous(), self._bias(tokens)
        return lambda hidden: (hidden @ weight).float() + bias

    def _bias(self, tokens: Tensor) -> Tensor | float:
        bias: Tensor | float = 0.0
        if self.module.bias is not None:
            bias = self.module.bias[tokens].float()
        return bias if self._final_bias is None else bias + self._final_bias[0, tokens].float()

    def pairs(self, hidden: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
        """Logits ``[A]`` in float32 for pairs of row and token, both ``[A]``.

        ``hidden``: ``[R, d]``, or whole logits ``[R, V]`` if the head is not linear.
        """
        if not self.linear:
            return hidden[rows, tokens].float()
        seen = torch.zeros(self.module.out_features, dtype=torch.long, device=tokens.device)
        seen[tokens] = 1
        distinct = seen.nonzero().squeeze(1)
        if len(tokens) > _DENSE_GAIN * len(distinct):
            column = seen.cumsum(0) - 1
            logits = (hidden @ self.module.weight[distinct].T)[rows, column[tokens]].float()
        else:
            logits = torch.linalg.vecdot(hidden[rows], self.module.weight[tokens]).float()
        return logits + self._bias(tokens)


class HeadRows:
    """R rows of a session whose logits a head computes; see :class:`grls.models.base.StepRows`."""

    _head: Head
    _hidden: Tensor
    """``[R, d]`` the input of the head."""

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        device = self._hidden.device
        with torch.inference_mode():
            pairs = torch.from_numpy(rows).to(device), torch.from_numpy(tokens).to(device)
            logits: Floats = self._head.pairs(self._hidden, *pairs).cpu().numpy()
            return logits

    def log_normalizer(self) -> Floats:
        with torch.inference_mode():
            normalizer: Floats = self._head.all(self._hidden).logsumexp(-1).cpu().numpy()
            return normalizer


@torch.no_grad()
def _is_linear(module: Any) -> bool:
    """Whether a module computes ``W h + b``: a subclass of ``nn.Linear`` may compute something else."""
    if not isinstance(module, nn.Linear):
        return False
    if type(module).forward is nn.Linear.forward:
        return True
    weight = module.weight
    if not weight.is_floating_point() or weight.shape != (module.out_features, module.in_features):
        return False
    hidden = torch.linspace(-1, 1, 3 * module.in_features, device=weight.device, dtype=weight.dtype)
    hidden = hidden.view(3, -1) * torch.tensor([[1.0], [10.0], [100.0]]).to(hidden)
    output, expected = module(hidden).float(), functional.linear(hidden, weight, module.bias).float()
    close = 4 * torch.finfo(weight.dtype).eps
    return torch.allclose(output, expected, rtol=close, atol=close * float(expected.abs().max()))


RESCORE = "rescore.json"
"""The file beside a trained model with the settings of rescoring in its training."""


class RescoreInput(NamedTuple):
    """The part of a passage that is read to rescore it: its first tokens, and the end token."""

    tokens: int

    def read(self, sequence: Sequence[int] | npt.NDArray[Any], codec: Codec) -> list[int]:
        body = [int(token) for token in sequence if token != codec.end]
        return [*body[: self.tokens], codec.end]


def readout(codec: Codec) -> tuple[int, int]:
    """The two tokens whose logits z rescore a passage: the marker that keeps it, and the other marker.

    A generator decides token by token, so a passage that was never an answer in training loses at its
    first words. After the end token of passage x the same model judges it with the whole query, as in the
    "self-assessment" of Self-Retrieval (arXiv 2403.00801):

        a(x) = z(<EVIDENCE>) - z(<QUESTION>)   (nats).

    Training: :mod:`grls.train.generator.module`. Score: :mod:`grls.retrieve.generative.retriever`.
    """
    return codec.evidence, codec.question


def read_rescore_input(value: Any, file: Path) -> RescoreInput | None:
    """The value ``{"tokens": 128}`` of a JSON file; None for null."""
    tokens = read_count(value, "tokens", "how much is read to rescore", 128, file)
    return None if tokens is None else RescoreInput(tokens)
