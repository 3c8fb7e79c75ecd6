"""A model's memory of several queries in flight, by an attention function and a cache of our own.

Legend: S slots (queries in flight), P places a slot, T new tokens, m most new tokens of one slot, R rows,
H heads, c width of a head, d model width, L longest input, N tokens asked of every row.

transformers lets an attention function be registered and a cache be handed in, and that is all that has to
change. The new tokens of all beams of all queries go through the model's own code as T rows of one token, so
every linear layer is one product without padding; the cache (:class:`_SlotCache`) keeps keys and values by
slot and place; the attention (:func:`_attend`) lays the T queries out by slot, and each sees its ancestors,
or its slot's input. A token's position is given as ``decoder_position_ids`` or by T5's relative bias.

How tokens are placed and who sees whom is the business of two kinds of session: :mod:`grls.models.trees`
(any number of tokens a beam, by NumPy: for the CPU) and :mod:`grls.models.grid` (one token of every beam,
without a word from the device: for a GPU).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, Cache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from grls.index.rows import Ints
from grls.models.base import Floats
from grls.models.generator import Seq2SeqGenerator
from grls.models.head import Cut

_NAME = "grls_slots"
_LEAST_DISTANCES = 64
_session: ContextVar[SlotSession] = ContextVar("grls_slot_session")


class _KeysValues(NamedTuple):
    """What a model asks a layer of its cross-attention cache for, ``[S, H, L, c]`` each."""

    keys: Tensor
    values: Tensor


class _OwnCache(Cache):
    """Keys and values of the tokens written."""

    def __init__(self, session: SlotSession):
        super().__init__(layers=[])
        self._session = session

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep those of T new tokens, ``[T, H, 1, c]``; returns all of them, ``[S, H, P, c]``."""
        return self._session.keep(key_states, value_states, layer_idx)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: where a token stands is told by its position, not by the length of a cache."""
        return 0


class _InputCache(Cache):
    """Keys and values of the inputs."""

    def __init__(self, layers: list[Any]):
        super().__init__(layers=[])
        self.layers = layers


class _LoadCache(Cache):
    """Takes keys and values of new queries straight to their slots.

    Args:
        rooms: Of each layer, ``[2, S, P, H c]``; made where they are missing.
        slots: ``[B]`` where each query goes.
        shape: S and P.
    """

    def __init__(self, rooms: list[Tensor], slots: Tensor, shape: tuple[int, int]):
        super().__init__(layers=[])
        self._rooms, self._slots, self._shape = rooms, slots, shape
        self.heads = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Keep those of B queries, ``[B, H, L, c]``; returns the same."""
        _, self.heads, length, width = key_states.shape
        if layer_idx == len(self._rooms):
            self._rooms.append(key_states.new_zeros((2, *self._shape, self.heads * width)))
        for room, new in zip(self._rooms[layer_idx], (key_states, value_states), strict=True):
            room[:, :length].index_copy_(0, self._slots, new.transpose(1, 2).flatten(2))
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: what is loaded is the start."""
        return 0


class _SlotCache(EncoderDecoderCache):
    """What the model's decoder takes for its cache."""

    def __init__(self, session: SlotSession, inputs: list[Any]):
        super().__init__(_OwnCache(session), _InputCache([]))
        self.cross_attention_cache.layers = inputs
        self.is_updated = dict.fromkeys(range(len(inputs)), True)


class SlotModel:
    """Drives an ``AutoModelForSeq2SeqLM`` by slots.

    The model's attention is exchanged while tokens are fed and put back at once, so one model serves one
    thread at a time.

    Args:
        generator: The model.
    """

    def __init__(self, generator: Seq2SeqGenerator):
        self.generator = generator
        decoder = generator.model.get_decoder()
        configs = [module.config for module in decoder.modules() if hasattr(module, "config")]
        self._configs = list({id(config): config for config in configs}.values())
        biased = (module for module in decoder.modules() if hasattr(module, "relative_attention_bias"))
        self._biased: Any = next(biased, None)
        self._cut: tuple[Version, Ints, Cut] | None = None

    def distances(self, length: int) -> Tensor | None:
        """T5's bias of attention scores by the distance to the attended token, ``[length, H]``."""
        if self._biased is None:
            return None
        bias: Tensor = self._biased.compute_bias(1, length, past_seen_tokens=length - 1)
        return bias[0, :, 0].flip(-1).T.contiguous()

    def cut(self, tokens: Ints) -> Cut:
        """The part of the head that belongs to some tokens, kept until the head's weights change."""
        head = self.generator.head
        version = _version(head.module)
        if self._cut is None or self._cut[0] != version or self._cut[1] is not tokens:
            self._cut = version, tokens, head.cut(torch.from_numpy(tokens).to(self.generator.device))
        return self._cut[2]

    def forward(self, session: SlotSession, tokens: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """What the head sees, ``[T, d]``, for T decoder inputs at their positions."""
        arguments = {
            # The cache has the inputs; the model wants to see some.
            "encoder_outputs": BaseModelOutput(last_hidden_state=tokens.new_empty((len(tokens), 0, 1))),
            "decoder_input_ids": tokens[:, None],
            "past_key_values": cache,
            "use_cache": True,
        }
        if self._biased is None:
            arguments["decoder_position_ids"] = positions[:, None]
        with self._attention(session), self.generator.head.catch() as caught:
            self.generator.model(**arguments)
        return caught[0][:, 0]

    @contextmanager
    def _attention(self, session: SlotSession) -> Iterator[None]:
        """Within the block the model's decoder attends by slot."""
        before = [config._attn_implementation for config in self._configs]
        token = _session.set(session)
        try:
            for config in self._configs:
                config._attn_implementation = _NAME
            yield
        finally:
            _session.reset(token)
            for config, name in zip(self._configs, before, strict=True):
                config._attn_implementation = name


Version = tuple[tuple[int, int], ...]


def _version(module: nn.Module) -> Version:
    """Changes whenever a parameter is replaced or written to."""
    return tuple((p.data_ptr(), 0 if p.is_inference() else p._version) for p in module.parameters())


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention function; ``query [T, H, 1, c]``, result ``[T, 1, H, c]``."""
    return _session.get().attend(query, key, value, options.get("scaling")), None


AttentionInterface.register(_NAME, _attend)


class SlotSession(ABC):
    """The decoding of S queries at a time.

    Args:
        model: The model.
        slots: S.
        longest: L, the longest input that will come.
        places: P at first.
    """

    def __init__(self, model: SlotModel, slots: int, longest: int, places: int):
        self._model = model
        self._slots = slots
        self._longest = longest
        self._places = places
        self._lengths = np.zeros(slots, dtype=np.int64)
        self._table: Tensor | None = None  # T5's bias by distance
        self._own: list[Tensor] = []  # keys and values of each layer, [2, S, P, H c]
        self._inputs: list[Tensor] = []  # the same of the inputs, [2, S, L, H c]
        # Set by load, and by whoever feeds:
        self._heads: int  # H of the cross-attention
        self._input_bias: Tensor  # [S, 1, 1, L]
        self._own_bias: Tensor  # [S, H or 1, m, used]
        self._own_keys: Tensor
        self._write: Tensor  # [T] places of the new tokens in the flattened cache
        self._hidden: Tensor  # [R, d] what the head sees

    @property
    @abstractmethod
    def _used(self) -> int:
        """Places of the fullest slot."""

    @abstractmethod
    def _lay(self, rows: Tensor) -> Tensor:
        """T rows by slot, ``[T, …]`` to ``[S m, …]``."""

    @abstractmethod
    def _unlay(self, rows: Tensor) -> Tensor:
        """The inverse of :meth:`_lay`."""

    @torch.inference_mode()
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> None:
        """Read new queries into slots and feed the start token at place 0."""
        generator = self._model.generator
        states, mask = generator.encode(inputs)
        start = torch.full((len(inputs), 1), generator.start_token, device=states.device)
        into = torch.from_numpy(slots).to(states.device)
        own = _LoadCache(self._own, into, (self._slots, self._places))
        crossed = _LoadCache(self._inputs, into, (self._slots, self._longest))
        first = not self._own
        self._hidden = generator.forward(states, mask, start, EncoderDecoderCache(own, crossed))[:, -1]
        if first:
            self._input_bias = self._hidden.new_zeros((self._slots, 1, 1, self._longest))
        self._heads = crossed.heads
        bias = self._hidden.new_full((len(inputs), self._longest), -torch.inf)
        bias[:, : mask.shape[1]].masked_fill_(mask.bool(), 0.0)
        self._input_bias[into, 0, 0] = bias
        self._lengths[slots] = mask.shape[1]

    def _advance(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Feed T tokens at their positions; returns what the head sees, ``[T, d]``."""
        reach = int(self._lengths.max())
        laid = [room[:, :, :reach].unflatten(-1, (self._heads, -1)).transpose(2, 3) for room in self._inputs]
        cache = _SlotCache(self, [_KeysValues(*both) for both in laid])
        return self._model.forward(self, tokens, positions, cache)

    def _distances(self, deepest: int) -> Tensor | None:
        """T5's bias by distance, ``[more than deepest, H]``."""
        if self._table is None or deepest >= len(self._table):
            self._table = self._model.distances(max(_LEAST_DISTANCES, 2 * deepest))
        return self._table

    def _make_room(self, places: int) -> None:
        """Let P be as large."""
        missing = places - self._places
        self._own = [functional.pad(room, (0, 0, 0, missing)) for room in self._own]
        self._places = places

    def keep(self, key: Tensor, value: Tensor, layer: int) -> _KeysValues:
        """Put keys and values of the new tokens in their places, and return all."""
        room = self._own[layer]
        for part, new in zip(room, (key, value), strict=True):
            part.view(-1, part.shape[-1]).index_copy_(0, self._write, new.reshape(len(new), -1))
        laid = room[:, :, : self._used].unflatten(-1, (key.shape[1], -1)).transpose(2, 3)
        found = _KeysValues(laid[0], laid[1])
        self._own_keys = found.keys
        return found

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of T tokens ``[T, H, 1, c]``, each over its slot's keys; ``[T, 1, H, c]``."""
        heads, width = query.shape[1], query.shape[3]
        laid = self._lay(query.reshape(len(query), -1))
        laid = laid.view(self._slots, -1, heads, width).transpose(1, 2)
        bias = self._own_bias if key is self._own_keys else self._input_bias[..., : key.shape[2]]
        found = functional.scaled_dot_product_attention(
            laid, key, value, attn_mask=bias.expand(-1, heads, laid.shape[2], -1), scale=scale
        )
        found = self._unlay(found.transpose(1, 2).reshape(-1, heads * width))
        return found.view(-1, 1, heads, width)

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        """Logits of (row, token) pairs, ``[A]``."""
        with torch.inference_mode():
            head = self._model.generator.head
            found: Floats = head.pairs(self._hidden, self._tensor(rows), self._tensor(tokens)).cpu().numpy()
            return found

    def log_normalizer(self) -> Floats:
        """Log-sum-exp over the vocabulary, ``[R]``."""
        with torch.inference_mode():
            found: Floats = self._model.generator.head.all(self._hidden).logsumexp(-1).cpu().numpy()
            return found

    def shared(self, tokens: Ints) -> Tensor:
        """Logits of the same tokens for every row, ``[R, N]``."""
        with torch.inference_mode():
            logits: Tensor = self._model.cut(tokens)(self._hidden)
            return logits

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self._hidden.device)
