"""Slots for a causal language model: an input is read as a prefix, after a prompt that all inputs share.

Legend: S slots (queries in flight), B inputs, R rows (live beams), T new tokens, m most new tokens of one
slot, P entries a slot, H heads of the queries, h heads of keys and values, c width of a head, l tokens of
the prompt.

How slots work: :mod:`grls.models.sessions.memory`. Inputs are read in batches of like lengths; their keys
and values go to the first nodes of the trees, or the first entries of the grid. Those of the prompt are
computed once and kept until the weights change. Every token attends to them and to its ancestors under
one softmax, so the prompt is neither copied for a query nor moved with a beam.

Keys and values of the last inputs are kept, too (:class:`Prefixes`): an input that continues one of them
reads only what it adds. So a hop reads its newest passage, and the chains of a query share their
question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache

from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.models.base import alike, cache_argument, positions_in
from grls.models.head import Head, HeadRows
from grls.models.sessions.forest import Branches
from grls.models.sessions.grid import GridMemory
from grls.models.sessions.memory import (
    KeysValues,
    OwnCache,
    PlainGenerator,
    SlotMemory,
    SlotModel,
    TreeMemory,
    Version,
    attending,
    by_entry,
    planted,
    version,
)

_CACHED = 1 << 20
"""The number of attention scores that are computed together: 4 MB."""

_PADDING = {"cpu": 1.1}
"""The factor by which padding at most lengthens the inputs of a batch, where it is not 2: a GPU waits for
launches rather than for products."""

PREFIX_BYTES = 1 << 28
"""The most memory of kept keys and values: 5,800 tokens of a model of 135 million parameters in float32."""


class Prefix(NamedTuple):
    """An input that was read: keys and values of each layer, ``[n, h c]``, from token ``start`` on."""

    start: int
    parts: list[Tensor]

    @property
    def size(self) -> int:
        return sum(part.nbytes for part in self.parts)


class Prefixes:
    """Keys and values of the inputs that were read last, :data:`PREFIX_BYTES` at most.

    Each holds only the tokens that it adds to the one that it continues.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()  # the last used one last
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def longest(self, tokens: Sequence[int]) -> tuple[list[Prefix], int]:
        """The longest known input that an input continues, as its parts in order, and its length.

        An input that is known as a whole is read again. So a search computes the same in the same way
        whatever was searched before.
        """
        row = tuple(tokens)
        for length in sorted({len(kept) for kept in self._kept if len(kept) < len(row)}, reverse=True):
            parts, end = list[Prefix](), length
            while end and (prefix := self._kept.get(row[:end])) is not None:
                parts.append(prefix)
                end = prefix.start
            if end:  # not known, or without its beginning
                continue
            end = length
            for prefix in parts:  # what others continue is dropped last
                self._kept.move_to_end(row[:end])
                end = prefix.start
            return parts[::-1], length
        return [], 0

    def add(self, tokens: Sequence[int], prefix: Prefix) -> None:
        """Keep an input; the least recently used ones go where they need too much memory."""
        row = tuple(tokens)
        if row in self._kept:
            self._size -= self._kept.pop(row).size
        self._kept[row] = prefix
        self._size += prefix.size
        while self._size > PREFIX_BYTES:
            self._size -= self._kept.popitem(last=False)[1].size


class CausalTrees(SlotModel):
    """Runs an ``AutoModelForCausalLM`` in eval mode for the fast searches; see :func:`plant_causal`."""

    def __init__(self, model: Any, prompt: Sequence[int] = (), tried: bool = False):
        super().__init__(model, Head(model, tried or None))
        self.model = model
        self.cache_name = cache_argument(model)
        self.prompt = tuple(prompt)
        self.heads = 0  # h, known once a token was fed
        self._known: tuple[Version, tuple[list[KeysValues], Prefixes]] | None = None

    def open_trees(self, slots: int, longest: int) -> CausalTreeSession:
        return CausalTreeSession(self, slots, longest)

    def open_grid(self, slots: int, beams: int, longest: int, fixed: bool = False) -> CausalGridSession:
        return CausalGridSession(self, slots, longest, beams, fixed)

    def read_at(self, position: int) -> Tensor:
        tokens, positions = torch.tensor([[[3, 4]], [[0, position]]], device=self.device)
        return self.head.read(input_ids=tokens, position_ids=positions, use_cache=False)

    def logits_after(self, tokens: list[int], written: list[int]) -> Tensor:
        row = torch.tensor([[*self.prompt, *tokens, *written]], device=self.device)
        logits: Tensor = self.model(input_ids=row).logits[0, -1].float()
        return logits

    @torch.inference_mode()
    def known(self, now: Version) -> tuple[list[KeysValues], Prefixes]:
        """Keys and values of the prompt by layer, ``[h, l, c]`` (empty: no prompt), and of the last
        inputs, computed with this version of the weights.
        """
        if self._known is None or self._known[0] != now:
            cache = DynamicCache()
            if self.prompt:
                tokens = torch.tensor([self.prompt], device=self.device)
                with self.head.catch():  # this also takes the lock of the model
                    self.model(input_ids=tokens, use_cache=True, **{self.cache_name: cache})
            layers: list[Any] = cache.layers
            prompt = [KeysValues(layer.keys[0], layer.values[0]) for layer in layers]
            self._known = now, (prompt, Prefixes())
        return self._known[1]


class _Reading(SlotMemory):
    _model: CausalTrees

    def __init__(self, model: CausalTrees, *arguments: Any):
        super().__init__(model, *arguments)
        self._prompt, self._prefixes = model.known(version(model.model))

    @torch.inference_mode()
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        lengths = np.array([len(tokens) for tokens in inputs])
        if not lengths.all():
            raise ValueError("an input needs at least one token")
        known = [self._prefixes.longest(row) for row in inputs]
        counts = np.array([count for _, count in known])
        new = lengths - counts
        read: dict[int, tuple[Tensor, Sequence[Tensor]]] = {}
        padding = _PADDING.get(self._device.type, 2.0)
        groups = [group[part] for group in alike(new, padding) for part in alike(counts[group])]
        for group in groups:  # what is known is padded, too
            every = group.tolist()
            ends, parts = self._forward([inputs[n] for n in every], [known[n] for n in every], new[group])
            read |= zip(every, zip(ends, parts, strict=True), strict=True)
        for n, (row, (_, count)) in enumerate(zip(inputs, known, strict=True)):
            self._prefixes.add(row, Prefix(count, [part[count:].clone() for part in read[n][1]]))
        hidden, pieces = zip(*[read[n] for n in range(len(inputs))], strict=True)
        self._hidden = torch.stack(hidden)
        self._lengths[slots] = lengths
        nodes = self._enter(slots, lengths)
        tokens = [torch.cat(part) for part in zip(*pieces, strict=True)]
        if not self._own:
            self._own = [self._new_room(part, part.shape[1]) for part in tokens[::2]]
        for part, values in zip(chain.from_iterable(self._own), tokens, strict=True):
            part.index_put_(self._write, values)
        return nodes

    def _forward(
        self, inputs: Sequence[Sequence[int]], known: Sequence[tuple[list[Prefix], int]], new: Ints
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """Read B inputs as a batch, from their last ``new [B]`` tokens on; the rest is known.

        Returns the inputs of the head at their ends, ``[B, d]``, and keys and values of each layer for
        all tokens of each input, ``[n, h c]`` each.
        """
        counts = np.array([count for _, count in known])
        held = int(counts.max())
        ids = np.zeros((len(inputs), int(new.max())), dtype=np.int64)
        for row, (tokens, count) in enumerate(zip(inputs, counts.tolist(), strict=True)):
            ids[row, : len(tokens) - count] = tokens[count:]
        # The columns of keys: the prompt, what is known of an input (padded on the left), its other tokens.
        first = len(self._model.prompt) + held
        begins = first - counts[:, None, None]
        columns, rows = np.arange(first + ids.shape[1]), np.arange(ids.shape[1])[:, None]
        seen = (columns < first - held) | (columns >= begins)
        cache = DynamicCache()
        for layer, pair in enumerate(self._prompt):
            keys, values = (part.expand(len(known), -1, -1, -1) for part in pair)
            cache.update(keys, values, layer)
        if held:
            some = next(prefixes[0].parts for prefixes, _ in known if prefixes)
            tables = [part.new_zeros((len(known), held, part.shape[1])) for part in some]
            for row, (prefixes, count) in enumerate(known):
                for n, table in enumerate(tables if count else ()):
                    table[row, held - count :] = torch.cat([prefix.parts[n] for prefix in prefixes])
            shaped = [table.unflatten(-1, (self._model.heads, -1)).transpose(1, 2) for table in tables]
            for layer in range(len(shaped) // 2):
                cache.update(shaped[2 * layer], shaped[2 * layer + 1], layer)
        layers: list[Any] = cache.layers
        mask = None  # the plain causal mask
        if layers:
            visible = self._tensor(seen & (columns <= first + rows))[:, None]
            mask = torch.zeros(visible.shape, dtype=layers[0].keys.dtype, device=self._device)
            mask.masked_fill_(~visible, torch.finfo(mask.dtype).min)
        # Not every attention that a model may be opened with takes such a mask.
        with self._model.head.catch() as caught, attending(self._model.configs, "sdpa"):
            self._model.model(
                input_ids=self._tensor(ids),
                position_ids=self._tensor(
                    first - held + counts[:, None] + np.minimum(rows.T, new[:, None] - 1)
                ),
                attention_mask=mask,
                use_cache=True,
                **{self._model.cache_name: cache},
            )
        self._model.heads = layers[0].keys.shape[1]
        own = (columns >= begins[:, 0]) & (columns < first + new[:, None])  # all tokens of an input
        chosen, lengths = self._tensor(own), (counts + new).tolist()
        parts = [part[chosen].split(lengths) for layer in layers for part in by_entry(layer)]
        return caught[0][np.arange(len(inputs)), new - 1], list(zip(*parts, strict=True))

    def _distances(self, deepest: int) -> Tensor | None:
        return None

    def _run(self, tokens: Tensor, depths: Tensor, longest: int) -> Any:
        return self._model.model(
            input_ids=tokens[:, None],
            position_ids=depths[:, None] + len(self._model.prompt),
            use_cache=True,
            **{self._model.cache_name: OwnCache(self)},
        )

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of T tokens ``[T, H, 1, c]`` over the keys of prompt and slot; ``[T, 1, H, c]``."""
        count, heads, _, width = query.shape
        laid = self._lay(query.reshape(count, -1)).view(len(self._own_bias), -1, heads, width)
        if not self._prompt:
            if laid.dtype == torch.bfloat16 and laid.device.type == "cpu":
                output = grouped_attention(laid, key, value, self._own_bias, scale)
            else:
                mask = self._own_bias.to(laid.dtype)
                output = functional.scaled_dot_product_attention(
                    laid.transpose(1, 2), key, value, attn_mask=mask, scale=scale, enable_gqa=True
                ).transpose(1, 2)
            return self._unlay(output.reshape(-1, heads * width)).view(-1, 1, heads, width)
        prompt = self._prompt[self._layer]
        groups = key.shape[1]
        factor = width**-0.5 if scale is None else scale
        # Scores by row and head, [T, h, H / h, l + used], under one softmax.
        rows = query.reshape(count, groups, -1, width) * factor
        before = torch.einsum("thgc,hlc->thgl", rows, prompt.keys)
        in_slot = torch.einsum("smhgc,shuc->smhgu", laid.unflatten(2, (groups, -1)) * factor, key)
        in_slot = in_slot + self._own_bias[:, 0, :, None, None]
        scores = torch.cat((before, self._unlay(in_slot.flatten(0, 1))), -1)
        weights = scores.float().softmax(-1).to(query.dtype)
        length = prompt.keys.shape[1]
        of_prompt = torch.einsum("thgl,hlc->thgc", weights[..., :length], prompt.values)
        within = self._lay(weights[..., length:]).unflatten(0, (len(laid), -1))
        inside = torch.einsum("smhgu,shuc->smhgc", within, value)
        return (of_prompt + self._unlay(inside.flatten(0, 1))).reshape(count, 1, heads, width)


class CausalTreeSession(TreeMemory, _Reading):
    """The decoding of S queries at a time, each a tree of tokens.

    Node 0 of a tree stands for the prompt; no token attends to it.
    """

    _root_is_seen = False

    def _enter(self, slots: Ints, lengths: Ints) -> Ints:
        tokens = np.zeros(int(lengths.sum()), dtype=np.int64)  # they are not fed
        placed = self._place(Branches(slots, super()._enter(slots, lengths), lengths, tokens))
        return placed.nodes[placed.last]


class CausalGridSession(GridMemory, _Reading):
    def begin(self) -> None:
        super().begin()
        prompt, self._prefixes = self._model.known(version(self._model.model))
        for pair, new in zip(self._prompt, prompt, strict=True):
            for part, value in zip(pair, new, strict=True):
                part.copy_(value)  # a captured step reads it where it is

    def _enter(self, slots: Ints, lengths: Ints) -> Ints:
        nodes = super()._enter(slots, lengths)
        rows, entries = np.nonzero(np.arange(self._first) >= self._first - lengths[:, None])
        self._write = self._tensor(slots[rows]), self._tensor(entries)
        return nodes

    def _entries_of(self, length: int) -> int:
        return length


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float | None) -> Tensor:
    """Attention of m tokens a slot, ``[S, m, H, c]``, by matrix products, a few slots at a time.

    On a CPU, torch's attention with a mask is as slow in bfloat16 as in float32; matrix products are
    twice as fast if the scores of a few slots fit into the processor's cache. ``key`` and ``value``:
    ``[S, h, u, c]``, h groups of heads; ``bias [S, 1, m, u]`` is added to the scores; ``scale`` is their
    factor, None: one over the root of c.
    """
    slots, new, heads, width = query.shape
    groups, used = key.shape[1:3]
    factor = width**-0.5 if scale is None else scale
    together = max(1, _CACHED // (new * heads * used))
    output = torch.empty_like(query)
    for first in range(0, slots, together):
        part = slice(first, first + together)
        rows = query[part].unflatten(2, (groups, -1)).transpose(1, 2)  # [s, h, m, H / h, c]
        scores = torch.matmul(rows.flatten(2, 3), key[part].transpose(2, 3)).unflatten(2, (new, -1)).float()
        weights = scores.mul_(factor).add_(bias[part].unsqueeze(3)).softmax(-1).to(query.dtype)
        inside = torch.matmul(weights.flatten(2, 3), value[part]).unflatten(2, (new, -1))
        output[part] = inside.transpose(1, 2).flatten(2, 3)
    return output


def refuse_windows(model: Any) -> None:
    """Refuse a model without plain causal attention, which cannot read a tree of tokens."""
    kinds = set(getattr(model.config, "layer_types", None) or ())
    window = getattr(model.config, "sliding_window", None) is not None and not kinds
    if window or kinds - {"full_attention"}:
        raise ConfigError(
            f"{type(model).__name__} attends within a window or keeps states, which trees of tokens do not "
            "support."
        )


def plant_causal(model: Any, prompt: Sequence[int] = ()) -> CausalTrees:
    """Trees of a causal language model, which is tested; ``prompt``: token ids before every input."""
    refuse_windows(model)
    most = positions_in(model.config)
    if most is not None and len(prompt) >= most:
        name = type(model).__name__
        raise ConfigError(f"a prompt of {len(prompt)} tokens, but {name} has {most} positions; shorten it.")
    return planted(model, lambda: CausalTrees(model, prompt))


class CausalGenerator(PlainGenerator):
    """Runs an ``AutoModelForCausalLM`` for the plain search."""

    def open(self, inputs: Sequence[Sequence[int]]) -> CausalSession:
        return CausalSession(self, inputs)

    def _one_pass(self) -> Tensor:
        paths = torch.tensor([[5, 6, 3], [5, 6, 4]], device=self.device)
        logits: Tensor = self.model(input_ids=paths).logits[:, -1]
        return logits


class CausalSession(HeadRows):
    """The decoding of one batch; see :class:`grls.models.base.Session`.

    The last token of an input opens the output, like the start token of a decoder. Inputs are padded on
    the left, so that the next token of every row is at the same position.
    """

    def __init__(self, generator: CausalGenerator, inputs: Sequence[Sequence[int]]):
        longest = max(len(row) for row in inputs)
        tokens = np.zeros((len(inputs), longest), dtype=np.int64)
        mask = np.zeros_like(tokens)
        for i, row in enumerate(inputs):
            tokens[i, longest - len(row) :] = row
            mask[i, longest - len(row) :] = 1
        self._generator = generator
        self._head = generator.head
        self._inputs = torch.from_numpy(tokens).to(generator.device)
        self._mask = torch.from_numpy(mask).to(generator.device)
        self._cache = DynamicCache(config=generator.model.config)  # some layers keep states instead of tokens

    def first(self) -> None:
        self._feed(self._inputs, (self._mask.cumsum(1) - 1).clamp(min=0))

    def step(self, parents: Ints, tokens: Ints) -> None:
        device = self._generator.device
        chosen = torch.from_numpy(parents).to(device)
        with torch.inference_mode():
            if not np.array_equal(parents, np.arange(len(self._mask))):
                self._cache.reorder_cache(chosen)  # type: ignore[arg-type]
            self._mask = self._mask[chosen]
        positions = self._mask.sum(1, keepdim=True)
        self._mask = torch.cat((self._mask, torch.ones_like(positions)), dim=1)
        self._feed(torch.from_numpy(tokens).to(device)[:, None], positions)

    def _feed(self, tokens: Tensor, positions: Tensor) -> None:
        arguments = {
            "input_ids": tokens,
            "attention_mask": self._mask,
            "position_ids": positions,
            self._generator.cache_name: self._cache,
            "use_cache": True,
        }
        with torch.inference_mode():
            self._hidden = self._head.read(**arguments)[:, -1]
