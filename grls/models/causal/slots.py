"""Slots for a causal language model: an input is read as a prefix, behind a prompt that all inputs share.

Legend: S slots (queries in flight), R queries, T new tokens, m most new tokens of one slot, P places a slot,
H heads of the queries, h heads of keys and values, c width of a head, l tokens of the prompt.

How a model is made to work by slots is told in :mod:`grls.models.sessions.memory`, trees of tokens in
:mod:`grls.models.sessions.trees`. The tokens of an input are the first of its slot's tree, fed at once.
Keys and values of the prompt are computed once and kept until the weights change; every token attends to
them and to its own ancestors under one softmax, so the prompt is neither copied for a query nor moved with
a beam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache

from grls.errors import ConfigError, out_of_memory
from grls.index.rows import Ints
from grls.models.head import Head
from grls.models.positions import positions_in
from grls.models.sessions.forest import Branches
from grls.models.sessions.memory import (
    KeysValues,
    OwnCache,
    SlotModel,
    Version,
    agree,
    takes_positions,
    version,
)
from grls.models.sessions.trees import TreeMemory
from grls.models.turns import turn

_CACHED = 1 << 20
"""Attention scores that are computed together: 4 MB of them."""


class CausalTrees(SlotModel):
    """Drives an ``AutoModelForCausalLM`` for the fast search; see :func:`plant_causal`.

    Args:
        model: The model, in eval mode.
        prompt: Token ids that stand before every input.
    """

    def __init__(self, model: Any, prompt: Sequence[int] = ()):
        super().__init__(model, Head(model))
        self.model = model
        self.prompt = tuple(prompt)
        self._read: tuple[Version, list[KeysValues]] | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self.model.device
        return device

    def open_trees(self, slots: int, longest: int) -> CausalTreeSession:
        """Room for S queries in flight, whose inputs have at most ``longest`` tokens."""
        return CausalTreeSession(self, slots, longest)

    @torch.inference_mode()
    def read_prompt(self) -> list[KeysValues]:
        """Keys and values of the prompt by layer, ``[h, l, c]``; none without a prompt."""
        if not self.prompt:
            return []
        now = version(self.model)
        if self._read is None or self._read[0] != now:
            cache = DynamicCache()
            tokens = torch.tensor([self.prompt], device=self.device)
            with self.head.catch():  # which is this thread's turn, too
                self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
            layers: list[Any] = cache.layers
            self._read = now, [KeysValues(layer.keys[0], layer.values[0]) for layer in layers]
        return self._read[1]

    def forward(self, session: CausalTreeSession, tokens: Tensor, positions: Tensor) -> Tensor:
        """What the head sees, ``[T, d]``, for T tokens at their positions."""
        with self.attention(session), self.head.catch() as caught:
            self.model(
                input_ids=tokens[:, None],
                position_ids=positions[:, None],
                past_key_values=OwnCache(session),
                use_cache=True,
            )
        return caught[0][:, 0]


class CausalTreeSession(TreeMemory):
    """The decoding of S queries at a time; see :class:`grls.models.base.TreeSession`.

    Node 0 of a tree stands for the prompt, and is seen by nobody.

    Args:
        model: The model.
        slots: S.
        longest: The longest input that will come, in tokens.
    """

    _model: CausalTrees
    _root_is_seen = False

    def __init__(self, model: CausalTrees, slots: int, longest: int):
        super().__init__(model, slots, longest)
        self._prompt = model.read_prompt()
        self._layer = 0

    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots; returns the node of each one's last token.

        Raises:
            ValueError: An input has no token.
        """
        lengths = np.array([len(tokens) for tokens in inputs])
        if not lengths.all():
            raise ValueError("an input needs at least one token")
        self._forest.plant(slots, self._root_is_seen)
        tokens = np.concatenate([np.asarray(some, dtype=np.int64) for some in inputs])
        return self.feed(Branches(slots, np.zeros_like(slots), lengths, tokens))

    def keep(self, key: Tensor, value: Tensor, layer: int) -> KeysValues:
        """Put keys and values of T new tokens in their places, and return all."""
        self._layer = layer
        return super().keep(key, value, layer)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of T tokens ``[T, H, 1, c]`` over prompt and own slot's keys; ``[T, 1, H, c]``."""
        count, heads, _, width = query.shape
        laid = self._lay(query.reshape(count, -1)).view(self._slots, -1, heads, width)
        if not self._prompt and laid.dtype == torch.bfloat16 and laid.device.type == "cpu":
            found = grouped_attention(laid, key, value, self._own_bias, scale)
            return self._unlay(found.flatten(0, 1).flatten(1)).view(-1, 1, heads, width)
        if not self._prompt:
            found = functional.scaled_dot_product_attention(
                laid.transpose(1, 2),
                key,
                value,
                attn_mask=self._own_bias.to(laid.dtype),
                scale=scale,
                enable_gqa=True,
            )
            found = self._unlay(found.transpose(1, 2).reshape(-1, heads * width))
            return found.view(-1, 1, heads, width)
        prompt = self._prompt[self._layer]
        groups = key.shape[1]
        factor = width**-0.5 if scale is None else scale
        # Scores by row and head, [T, h, H / h, l + used], under one softmax.
        rows = query.reshape(count, groups, -1, width) * factor
        before = torch.einsum("thgc,hlc->thgl", rows, prompt.keys)
        own = torch.einsum("smhgc,shuc->smhgu", laid.unflatten(2, (groups, -1)) * factor, key)
        own = own + self._own_bias[:, 0, :, None, None]
        scores = torch.cat((before, self._unlay(own.flatten(0, 1))), -1)
        weights = scores.float().softmax(-1).to(query.dtype)
        length = prompt.keys.shape[1]
        found = torch.einsum("thgl,hlc->thgc", weights[..., :length], prompt.values)
        within = self._lay(weights[..., length:]).unflatten(0, (self._slots, -1))
        inside = torch.einsum("smhgu,shuc->smhgc", within, value)
        return (found + self._unlay(inside.flatten(0, 1))).reshape(count, 1, heads, width)

    def _advance(self, tokens: Tensor, depths: Tensor) -> Tensor:
        return self._model.forward(self, tokens, depths + (len(self._model.prompt) - 1))

    def _distances(self, deepest: int) -> Tensor | None:
        return None


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float | None) -> Tensor:
    """Attention of m tokens a slot, ``[S, m, H, c]``, by products of matrices, a few slots at a time.

    On a CPU, torch's own attention with a mask computes bfloat16 as slowly as float32. Products of bfloat16
    matrices are twice as fast where a few slots' scores stay in the cache of the processor.

    Args:
        query: ``[S, m, H, c]``.
        key: ``[S, h, u, c]``, h groups of heads.
        value: ``[S, h, u, c]``.
        bias: ``[S, 1, m, u]`` added to the scores.
        scale: What scores are multiplied by; None: one over the root of c.
    """
    slots, new, heads, width = query.shape
    groups, used = key.shape[1:3]
    factor = width**-0.5 if scale is None else scale
    some = max(1, _CACHED // (new * heads * used))
    found = torch.empty_like(query)
    for first in range(0, slots, some):
        part = slice(first, first + some)
        rows = query[part].unflatten(2, (groups, -1)).transpose(1, 2)  # [s, h, m, H / h, c]
        scores = torch.matmul(rows.flatten(2, 3), key[part].transpose(2, 3)).unflatten(2, (new, -1)).float()
        weights = scores.mul_(factor).add_(bias[part].unsqueeze(3)).softmax(-1).to(query.dtype)
        inside = torch.matmul(weights.flatten(2, 3), value[part]).unflatten(2, (new, -1))
        found[part] = inside.transpose(1, 2).flatten(2, 3)
    return found


def refuse_windows(model: Any) -> None:
    """Refuse a model whose attention is no plain causal one: a tree of tokens would be another thing to it.

    Raises:
        ConfigError: It attends within a window, or remembers instead.
    """
    kinds = set(getattr(model.config, "layer_types", None) or ())
    window = getattr(model.config, "sliding_window", None) is not None and not kinds
    if window or kinds - {"full_attention"}:
        raise ConfigError(
            f"{type(model).__name__} attends within a window, which trees of tokens do not support."
        )


def plant_causal(model: Any, prompt: Sequence[int] = ()) -> CausalTrees:
    """Trees of a causal language model, tried against the model's own forward pass.

    Args:
        model: The model; it is used in eval mode.
        prompt: Token ids that stand before every input.

    Raises:
        ConfigError: The model cannot be driven so (it attends within a window, or its positions
            cannot be told), or a prompt is too long for it.
    """
    name = type(model).__name__
    config = model.config
    refuse_windows(model)
    most = positions_in(config)
    if most is not None and len(prompt) >= most:
        raise ConfigError(f"a prompt of {len(prompt)} tokens, but {name} has {most} positions; shorten it.")
    with turn(model):  # the trial reads the model as it is, not as another thread drives it
        return _tried(model, prompt)


def _tried(model: Any, prompt: Sequence[int]) -> CausalTrees:
    """Trees that agree with the model; see :func:`plant_causal`."""
    name = type(model).__name__
    training = model.training
    model.eval()
    try:
        trees = CausalTrees(model, prompt)
        if not trees.head.linear:
            raise ConfigError(
                f"{name} changes its logits behind the head (scales, caps or masks them), which trees of "
                "tokens do not support; take another model."
            )
        if not _told(trees) or not _agrees(trees):
            raise ConfigError(f"{name} computes something else by trees of tokens; it is not supported.")
        return trees
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
        if out_of_memory(error):
            raise
        raise ConfigError(f"{name} cannot be driven by trees of tokens: {error}.") from error
    finally:
        model.train(training)


@torch.inference_mode()
def _told(trees: CausalTrees) -> bool:
    """Whether the model stands where it is told; full precision shows it where the logits are compared."""
    if trees.model.dtype == torch.float32:
        return True
    tokens = torch.tensor([[3, 4]], device=trees.device)
    near, far = (
        trees.head.read(
            input_ids=tokens, position_ids=torch.tensor([[0, place]], device=trees.device), use_cache=False
        )
        for place in (1, 3)
    )
    return takes_positions(near, far)


@torch.inference_mode()
def _agrees(trees: CausalTrees) -> bool:
    session = trees.open_trees(2, 3)
    first = session.load(np.arange(2), [[3, 4, 5], [5, 4]])
    slots = np.array([0, 0, 1])
    nodes = session.feed(Branches(slots, first[slots], np.array([1, 2, 1]), np.array([3, 4, 5, 4])))
    session.feed(Branches(slots, nodes, np.ones(3, int), np.array([5, 3, 5])))
    for row, written in enumerate(([3, 4, 5, 3, 5], [3, 4, 5, 4, 5, 3], [5, 4, 4, 5])):
        tokens = torch.tensor([[*trees.prompt, *written]], device=trees.device)
        expected = trees.model(input_ids=tokens).logits[0, -1].float()
        found = trees.head.all(session._hidden[row])
        if not agree(found, expected, session._hidden.dtype):
            return False
    return True
