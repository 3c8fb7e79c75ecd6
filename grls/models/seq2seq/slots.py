"""Slots for an encoder-decoder model: the encoder reads an input, and the decoder attends to it.

Legend: S slots (queries in flight), P entries a slot, T new tokens, m most new tokens of one slot, H
heads, c width of a head, d model width, B inputs, R rows (live beams), L longest input, V vocabulary.

How slots work: :mod:`grls.models.sessions.memory`. Keys and values of an input are computed once a query.
The position of a token is passed as ``decoder_position_ids`` or by T5's relative bias. A model that
accepts neither is refused by :func:`plant` (BART counts the tokens of its cache).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from grls.index.rows import Ints
from grls.io.locks import exclusive
from grls.models.base import start_token
from grls.models.head import HeadRows
from grls.models.sessions.grid import GridMemory
from grls.models.sessions.memory import (
    KeysValues,
    OwnCache,
    PlainGenerator,
    SlotMemory,
    SlotModel,
    TreeMemory,
    by_entry,
    by_head,
    planted,
)

_LEAST_DISTANCES = 64
_INPUTS = 16
"""The memory of inputs grows by a multiple of so many tokens."""


class _SlotCache(EncoderDecoderCache):
    def __init__(self, session: SlotMemory, inputs: list[Any]):
        super().__init__(OwnCache(session), Cache(layers=[]))
        self.cross_attention_cache.layers = inputs
        self.is_updated = dict.fromkeys(range(len(inputs)), True)


class Seq2SeqTrees(SlotModel):
    """Runs an ``AutoModelForSeq2SeqLM`` for the fast searches; see :func:`plant`."""

    def __init__(self, generator: Seq2SeqGenerator):
        decoder = generator.model.get_decoder()
        super().__init__(decoder, generator.head)
        self.generator = generator
        biased = (module for module in decoder.modules() if hasattr(module, "relative_attention_bias"))
        self._biased: Any = next(biased, None)
        self.positioned = self._biased is None

    def read_at(self, position: int) -> Tensor:
        states, _ = self.generator.encode([[3, 4, 5]])
        return self.head.read(
            encoder_outputs=encoded(states),
            decoder_input_ids=torch.tensor([[self.generator.start_token, 4]], device=self.device),
            decoder_position_ids=torch.tensor([[0, position]], device=self.device),
            use_cache=False,
        )

    def logits_after(self, tokens: list[int], written: list[int]) -> Tensor:
        before = torch.tensor([[self.generator.start_token, *written]], device=self.device)
        return self.head.all(self.generator.forward(*self.generator.encode([tokens]), before)[:, -1])[0]

    def open_trees(self, slots: int, longest: int) -> Seq2SeqTreeSession:
        return Seq2SeqTreeSession(self, slots, longest)

    def open_grid(self, slots: int, beams: int, longest: int, fixed: bool = False) -> Seq2SeqGridSession:
        return Seq2SeqGridSession(self, slots, longest, beams, fixed)

    def distances(self, length: int) -> Tensor | None:
        """T5's bias of attention scores by the distance to the attended token, ``[length, H]``."""
        if self._biased is None:
            return None
        bias: Tensor = self._biased.compute_bias(1, length, past_seen_tokens=length - 1)
        return bias[0, :, 0].flip(-1).T.contiguous()


class _Reading(SlotMemory):
    _model: Seq2SeqTrees

    def __init__(self, model: Seq2SeqTrees, slots: int, longest: int, capacity: int):
        super().__init__(model, slots, longest, capacity)
        self._table: Tensor | None = None  # T5's bias by distance
        self._inputs: list[KeysValues] = []  # of the inputs by layer, [S, held, H c]
        self._held = 0  # tokens of an input for which there is room
        self._heads: int  # H of the cross-attention
        self._input_bias: Tensor  # [S, 1, 1, L]
        self._own_keys: Tensor

    @torch.inference_mode()
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots and feed the start token at entry 0; returns zeros."""
        generator = self._model.generator
        nodes = self._enter(slots, np.array([len(tokens) for tokens in inputs]))
        with exclusive(generator.model):
            states, mask = generator.encode(inputs)
            self._hold(mask.shape[1])
            start = torch.full((len(inputs), 1), generator.start_token, device=states.device)
            cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
            self._hidden = generator.forward(states, mask, start, cache)[:, -1]
        own: list[Any] = cache.self_attention_cache.layers
        crossed: list[Any] = cache.cross_attention_cache.layers
        self._heads = crossed[0].keys.shape[1]
        if not self._own:
            wide = [(layer.keys, layer.keys.shape[1] * layer.keys.shape[3]) for layer in (*own, *crossed)]
            self._own = [self._new_room(*each) for each in wide[: len(own)]]
            self._inputs = [
                KeysValues(*(like.new_zeros((self._slots, self._held, width)) for _ in range(2)))
                for like, width in wide[len(own) :]
            ]
            self._input_bias = self._hidden.new_zeros((self._slots, 1, 1, self._held))
        into = torch.from_numpy(slots).to(states.device)
        for rooms, layers in ((self._own, own), (self._inputs, crossed)):
            for room in rooms:  # a layer at a time, and read ones are dropped: inputs take much memory
                for part, new in zip(room, by_entry(layers.pop(0)), strict=True):
                    part[:, : new.shape[1]].index_copy_(0, into, new)
        bias = self._hidden.new_full((len(inputs), self._held), -torch.inf)
        bias[:, : mask.shape[1]].masked_fill_(mask.bool(), 0.0)
        self._input_bias[into, 0, 0] = bias
        self._lengths[slots] = mask.shape[1]
        return nodes

    def _hold(self, length: int) -> None:
        """Make room for inputs of this length, if there is too little.

        A search that queries join opens a session for the longest possible input. To zero the memory of
        that would take longer than to answer short ones, so it grows.
        """
        if length <= self._held:
            return
        held = self._held
        self._held = max(length, min(self._longest, -(-length // _INPUTS) * _INPUTS))
        if not self._inputs:
            return
        more = self._held - held
        self._inputs = [
            KeysValues(*(functional.pad(part, (0, 0, 0, more)) for part in room)) for room in self._inputs
        ]
        self._input_bias = functional.pad(self._input_bias, (0, more), value=-torch.inf)

    def _run(self, tokens: Tensor, depths: Tensor, longest: int) -> Any:
        inputs = [by_head(room, longest, self._heads, self._laid) for room in self._inputs]
        arguments = {
            # The cache holds the inputs, but the model requires this argument.
            "encoder_outputs": encoded(tokens.new_empty((len(tokens), 0, 1))),
            "decoder_input_ids": tokens[:, None],
            self._model.generator.cache_name: _SlotCache(self, inputs),
            "use_cache": True,
        }
        if self._model.positioned:
            arguments["decoder_position_ids"] = depths[:, None]
        return self._model.generator.model(**arguments)

    def _distances(self, deepest: int) -> Tensor | None:
        if self._table is None or deepest >= len(self._table):
            self._table = self._model.distances(max(_LEAST_DISTANCES, 2 * deepest))
        return self._table

    def keep(self, key: Tensor, value: Tensor, layer: int) -> KeysValues:
        stored = super().keep(key, value, layer)
        self._own_keys = stored.keys
        return stored

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        heads, width = query.shape[1], query.shape[3]
        laid = self._lay(query.reshape(len(query), -1))
        laid = laid.view(len(self._own_bias), -1, heads, width).transpose(1, 2)
        bias = self._own_bias
        if key is not self._own_keys:
            bias = self._input_bias if self._laid is None else self._input_bias[self._laid]
            bias = bias[..., : key.shape[2]]
        output = functional.scaled_dot_product_attention(
            laid, key, value, attn_mask=bias.to(laid.dtype).expand(-1, heads, laid.shape[2], -1), scale=scale
        )
        output = self._unlay(output.transpose(1, 2).reshape(-1, heads * width))
        return output.view(-1, 1, heads, width)


class Seq2SeqTreeSession(TreeMemory, _Reading):
    """The decoding of S queries at a time, each a tree of tokens."""


class Seq2SeqGridSession(GridMemory, _Reading):
    def _entries_of(self, length: int) -> int:
        return 1  # the start token

    def _hold(self, length: int) -> None:
        super()._hold(self._longest if self._fixed else length)

    def _distances(self, deepest: int) -> Tensor | None:
        return self._model.distances(deepest + 1)


def encoded(states: Tensor) -> BaseModelOutput:
    output = BaseModelOutput(last_hidden_state=states)
    output.router_logits = None  # mixtures of experts read it
    return output


def plant(generator: Seq2SeqGenerator) -> Seq2SeqTrees:
    return planted(generator.model, lambda: Seq2SeqTrees(generator))


class Seq2SeqGenerator(PlainGenerator):
    """Runs an ``AutoModelForSeq2SeqLM`` for the plain search.

    Its config must name ``decoder_start_token_id`` and ``pad_token_id``.
    """

    def __init__(self, model: Any, tried: bool = False):
        self.start_token = start_token(model)
        self.pad_token = int(model.config.pad_token_id or 0)
        super().__init__(model, tried)

    def open(self, inputs: Sequence[Sequence[int]]) -> Seq2SeqSession:
        return Seq2SeqSession(self, inputs)

    def _one_pass(self) -> Tensor:
        tokens = torch.tensor([[5], [5]], device=self.device)
        written = torch.tensor([[self.start_token, 6, end] for end in (3, 4)], device=self.device)
        logits: Tensor = self.model(input_ids=tokens, decoder_input_ids=written).logits
        return logits[:, -1]

    @torch.inference_mode()
    def encode(self, inputs: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Encoder states ``[B, L, d]`` and attention mask ``[B, L]``."""
        longest = max(len(row) for row in inputs)
        ids = np.full((len(inputs), longest), self.pad_token, dtype=np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(inputs):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        tokens = torch.from_numpy(ids).to(self.device)
        attention = torch.from_numpy(mask).to(self.device)
        output = self.model.get_encoder()(input_ids=tokens, attention_mask=attention)
        return output.last_hidden_state, attention

    def forward(self, states: Tensor, mask: Tensor, tokens: Tensor, cache: Any = None) -> Tensor:
        """The input of the head, ``[R, length, d]``, for decoder inputs ``tokens [R, length]``."""
        arguments = {
            "encoder_outputs": encoded(states),
            "attention_mask": mask,
            "decoder_input_ids": tokens,
            self.cache_name: cache,
            "use_cache": cache is not None,
        }
        return self.head.read(**arguments)


class Seq2SeqSession(HeadRows):
    """The decoding of one batch; see :class:`grls.models.base.Session`.

    Cross-attention keys and values belong to an input: they are computed once, and gathered again only if
    the rows of an input change in number or order. Self-attention is gathered by parent row at every
    step.
    """

    def __init__(self, generator: Seq2SeqGenerator, inputs: Sequence[Sequence[int]]):
        self._generator = generator
        self._head = generator.head
        self._encoded, self._encoded_mask = generator.encode(inputs)
        self._states, self._mask = self._encoded, self._encoded_mask
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._owner = np.arange(len(inputs))
        self._hidden = self._encoded

    def first(self) -> None:
        self._feed(np.full(len(self._owner), self._generator.start_token))

    def step(self, parents: Ints, tokens: Ints) -> None:
        chosen = torch.from_numpy(parents).to(self._generator.device)
        with torch.inference_mode():
            if not np.array_equal(parents, np.arange(len(self._owner))):
                self._cache.self_attention_cache.batch_select_indices(chosen)
            owner = self._owner[parents]
            if not np.array_equal(owner, self._owner):
                self._cache.cross_attention_cache.batch_select_indices(chosen)
                chosen_inputs = torch.from_numpy(owner).to(self._generator.device)
                self._states = self._encoded[chosen_inputs]
                self._mask = self._encoded_mask[chosen_inputs]
                self._owner = owner
        self._feed(tokens)

    def _feed(self, tokens: Ints) -> None:
        column = torch.from_numpy(tokens).to(self._generator.device)[:, None]
        with torch.inference_mode():
            hidden = self._generator.forward(self._states, self._mask, column, self._cache)
            self._hidden = hidden[:, -1]
