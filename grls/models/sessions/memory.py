"""The memory of a model for several queries in flight, by an attention function and a cache.

Legend: S slots (queries in flight), P entries a slot, T new tokens, m most new tokens of one slot, R
rows, H heads, c width of a head, d model width, N tokens whose logits are read for all rows.

transformers accepts a registered attention function and a cache, and nothing else has to change. The new
tokens of all beams of all queries go through the model as T rows of one token, so every linear layer is
one product without padding. The cache keeps keys and values by slot and entry. The attention
(:func:`_attend`) arranges the T queries by slot; each attends to its ancestors and to the input of its
slot.

A session combines a way to read inputs, by an encoder (:mod:`grls.models.seq2seq.slots`) or as a prefix
(:mod:`grls.models.causal.slots`), with a way to keep tokens: in trees, any number a beam, with NumPy, for
a CPU (:class:`TreeMemory`), or in a grid, one token of every beam, without waiting for the device, for a
GPU (:mod:`grls.models.sessions.grid`).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, Cache

from grls.errors import ConfigError, out_of_memory
from grls.index.rows import Ints
from grls.io.locks import exclusive
from grls.models.base import cache_argument
from grls.models.head import Cut, Head, HeadRows
from grls.models.precision import refuse_nan_logits
from grls.models.sessions.forest import Branches, Forest, Placed

_NAME = "grls_slots"
_SESSION = "grls_slot_session"
"""The attribute of a config that gives the attention function its session. (A context variable would separate
threads, but torch.compile cannot read one, and a model serves one thread at a time anyway.)"""


class KeysValues(NamedTuple):
    """Keys and values of a layer by slot, ``[S, H, P, c]`` each.

    A session keeps them as ``[S, P, H c]``, in two separate tensors: for two views of one tensor, a
    compiled step would copy the whole tensor instead of writing in place.
    """

    keys: Tensor
    values: Tensor


def by_head(room: KeysValues, used: int, heads: int, slots: Tensor | None = None) -> KeysValues:
    """The first entries of a room ``[S, P, H c]`` shaped for attention, ``[S, H, used, c]``.

    ``slots``: those that are copied; None: all, without a copy.
    """
    rows = slice(None) if slots is None else slots
    return KeysValues(*[part[rows, :used].unflatten(-1, (heads, -1)).transpose(1, 2) for part in room])


def by_entry(layer: Any) -> KeysValues:
    """Keys and values of a cache's layer, ``[B, H, L, c]`` each, as a room has them: ``[B, L, H c]``."""
    return KeysValues(layer.keys.transpose(1, 2).flatten(2), layer.values.transpose(1, 2).flatten(2))


class OwnCache(Cache):
    """Keys and values of the tokens fed so far, for the self-attention of the model."""

    def __init__(self, session: SlotMemory):
        super().__init__(layers=[])
        self._session = session

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values of T new tokens, ``[T, H, 1, c]``; returns all, ``[S, H, P, c]``."""
        return self._session.keep(key_states, value_states, layer_idx)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Zero: the entry of a token follows from its position, not from the length of the cache."""
        return 0


class SlotModel(ABC):
    """Runs a transformers model with slots: the part of it that writes tokens, and its output head.

    The attention of the model is replaced while tokens are fed. So a model serves one thread at a time
    (:func:`grls.io.locks.exclusive`). ``positioned``: it is given the positions of tokens; T5 has a bias
    by distance instead.
    """

    positioned = True

    def __init__(self, module: nn.Module, head: Head):
        self.head = head
        self.configs = configs_of(module)
        self._cut: tuple[Version, Ints, Cut] | None = None

    @property
    def device(self) -> torch.device:
        return self.head.module.weight.device

    @abstractmethod
    def open_trees(self, slots: int, longest: int) -> TreeMemory:
        """Memory for S queries in flight, whose inputs have at most ``longest`` tokens."""

    @abstractmethod
    def open_grid(self, slots: int, beams: int, longest: int, fixed: bool = False) -> Any:
        """Memory for S queries in flight with K beams each (:class:`grls.models.sessions.grid.GridMemory`).

        ``fixed``: a step reads all of the allocated memory, so that there are few different shapes.
        """

    @abstractmethod
    def read_at(self, position: int) -> Tensor:
        """The input of the head for two tokens, at position 0 and at this position."""

    @abstractmethod
    def logits_after(self, tokens: list[int], written: list[int]) -> Tensor:
        """``[V]`` logits after an input and written tokens, by the model's forward pass."""

    def cut(self, tokens: Ints) -> Cut:
        """The part of the head for these tokens; it is cached until the weights of the head change."""
        now = version(self.head.module)
        if self._cut is None or self._cut[0] != now or self._cut[1] is not tokens:
            self._cut = now, tokens, self.head.cut(torch.from_numpy(tokens).to(self.device))
        return self._cut[2]

    def addresses(self) -> tuple[Hashable, ...]:
        """The addresses of the weights, and the adapters; a captured step is valid until they change."""
        model = self.head.model
        weights = itertools.chain(model.parameters(), model.buffers())
        return (*(weight.data_ptr() for weight in weights), *adapters(model))

    @contextmanager
    def attention(self, session: SlotMemory) -> Iterator[None]:
        """A context in which the model attends by slot, for this thread only."""
        with exclusive(self.head.model):
            try:
                for config in self.configs:
                    setattr(config, _SESSION, session)
                with attending(self.configs, _NAME):
                    yield
            finally:
                for config in self.configs:
                    delattr(config, _SESSION)


_SAMPLE = 4096
Version = tuple[Any, ...]


def version(module: nn.Module) -> Version:
    """A value that changes if a weight is replaced or written to, or an adapter is switched.

    Addresses, samples and version counters of parameters and buffers: the counters miss writes through
    ``.data``, and the samples some numbers. A device is waited for once.
    """
    samples: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    states: list[tuple[int, int]] = []
    for weight in (*module.parameters(), *module.buffers()):
        tensor = weight.detach()
        stride = max(1, tensor.numel() // _SAMPLE)
        while tensor.dim() and math.gcd(stride, tensor.shape[-1]) > 1:  # samples of every column of a matrix
            stride += 1
        samples.setdefault((tensor.device, tensor.dtype), []).append(tensor.flatten()[::stride])
        states.append((tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version))
    sums: list[float] = []
    for some in samples.values():
        values = torch.cat(some).double()
        places = torch.arange(1, 1 + len(values), dtype=torch.float64, device=values.device)
        sums += torch.stack((values.sum(), values @ places)).tolist()
    return (*states, *sums, *adapters(module))


def adapters(module: nn.Module) -> Iterator[tuple[Any, ...]]:
    """The adapters of a model: whether each is off, which of it are active, and which merged."""
    for part in module.modules():
        if hasattr(part, "merged_adapters"):
            yield part.disable_adapters, str(part.active_adapters), str(part.merged_adapters)


@contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """A context in which a model is tested: in eval mode, while no other thread replaces parts of it."""
    with exclusive(model):
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def refuse_other_steps(model: nn.Module, agrees: Callable[[], bool]) -> None:
    """Refuse a model whose steps differ from its one pass; ``agrees`` tries it."""
    name = type(model).__name__
    try:
        with trial(model):
            if agrees():
                return
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if out_of_memory(error):
            raise
        raise ConfigError(f"{name} cannot be used as a generator: {error}.") from error
    raise ConfigError(f"{name} computes something else step by step; it is not supported.")


class PlainGenerator(ABC):
    """Runs a model of transformers for the plain search, against which the fast search is tested.

    The model is not changed: set its device, precision and mode (eval or train) first. ``tried``: its steps
    are known to give the logits of one pass.
    """

    def __init__(self, model: Any, tried: bool = False):
        self.model = model
        self.cache_name = cache_argument(model)
        if model.get_output_embeddings() is None:
            raise ConfigError(f"{type(model).__name__} has no output head; load it as a model that writes.")
        self.head = Head(model, tried or None)
        if not tried:
            refuse_other_steps(model, self._agrees)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.model.device
        return device

    @abstractmethod
    def open(self, inputs: Sequence[Sequence[int]]) -> Any:
        """Begin to decode a batch; see :class:`grls.models.base.GeneratorModel`."""

    @abstractmethod
    def _one_pass(self) -> Tensor:
        """Logits of the model after the input 5 and the tokens 6 3, and after 6 4, ``[2, V]``."""

    @torch.inference_mode()
    def _agrees(self) -> bool:
        """Whether single steps give the logits of one pass, on a small batch."""
        _ = self.head.linear  # tested now, before searches share the model
        session = self.open([[3, 4], [5]])
        session.first()
        session.step(np.array([1, 1, 0]), np.array([6, 6, 5]))
        session.step(np.array([0, 1]), np.array([3, 4]))
        hidden = session._hidden
        return agree(self.head.all(hidden), self._one_pass().float(), hidden.dtype)


def agree(logits: Tensor, expected: Tensor, kind: torch.dtype) -> bool:
    """Whether logits are equal, except for the rounding of a model that computes in ``kind``."""
    refuse_nan_logits(expected)
    tolerance = max(1e-2, 32 * torch.finfo(kind).eps)
    spread = float(expected[expected.isfinite()].std().nan_to_num())
    return torch.allclose(logits, expected, rtol=tolerance, atol=tolerance * spread)


@torch.inference_mode()
def trees_agree(trees: Any) -> bool:
    """Whether trees compute what the model computes: two inputs and three branches, one of two tokens.

    A model that counts its tokens instead of taking their positions (BART, Marian) has equal outputs for
    different positions, to the last bit. Its error alone could be taken for the rounding of a coarse
    precision.
    """
    if trees.positioned and torch.equal(trees.read_at(1), trees.read_at(3)):
        return False
    inputs, slots = [[3, 4, 5], [5, 4]], np.array([0, 0, 1])
    session = trees.open_trees(2, 3)
    first = session.load(np.arange(2), inputs)
    nodes = session.feed(Branches(slots, first[slots], np.array([1, 2, 1]), np.array([3, 4, 5, 4])))
    session.feed(Branches(slots, nodes, np.ones(3, int), np.array([5, 3, 5])))
    logits = trees.head.all(session._hidden)
    rows = zip(logits, slots.tolist(), ([3, 5], [4, 5, 3], [4, 5]), strict=True)
    return all(
        agree(row, trees.logits_after(inputs[slot], written), session._hidden.dtype)
        for row, slot, written in rows
    )


Trees = TypeVar("Trees", bound="SlotModel")


def planted(model: Any, make: Callable[[], Trees]) -> Trees:
    """Trees of a model, made by ``make`` and tested against its forward pass in eval mode."""
    name = type(model).__name__
    try:
        with trial(model):
            trees = make()
            if not trees.head.linear:
                raise ConfigError(
                    f"{name} changes its logits after the head (scales, caps or masks them), which trees of "
                    "tokens do not support; use another model."
                )
            if not trees_agree(trees):
                raise ConfigError(f"{name} computes something else by trees of tokens; it is not supported.")
            return trees
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if out_of_memory(error):
            raise
        raise ConfigError(f"{name} does not support trees of tokens: {error}.") from error


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention function; ``query [T, H, 1, c]``, result ``[T, 1, H, c]``."""
    session: SlotMemory = getattr(module.config, _SESSION)
    return session.attend(query, key, value, options.get("scaling")), None


AttentionInterface.register(_NAME, _attend)


class SlotMemory(HeadRows, ABC):
    """The decoding of S queries at a time, whose inputs have at most ``longest`` tokens; P grows."""

    def __init__(self, model: Any, slots: int, longest: int, capacity: int):
        self._model = model
        self._head = model.head
        # Read once: a transformers model searches for it at each access.
        self._device: torch.device = model.device
        self._slots = slots
        self._longest = longest
        self._capacity = capacity
        self._lengths = np.zeros(slots, dtype=np.int64)  # tokens of the input of each slot
        self._own: list[KeysValues] = []  # of each layer, [S, P, H c]
        self._cut: tuple[Ints, Cut] | None = None  # cached here: the model would check its weights each time
        self._laid: Tensor | None = None  # the slots that attend; None: all
        self._layer = 0  # the layer that keeps its tokens now
        # Set before tokens are fed:
        self._used: int  # entries of the fullest slot
        self._own_bias: Tensor  # [S, H or 1, m, used]
        self._write: tuple[Tensor, Tensor]  # [T] each, the slots and the entries of the new tokens

    @abstractmethod
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots; returns the node that each query continues, ``[R]``.

        Afterwards row r is the query of ``slots[r]``, about to write its first token.
        """

    @abstractmethod
    def _enter(self, slots: Ints, lengths: Ints) -> Ints:
        """Empty these slots for inputs of these lengths; returns the nodes that they continue."""

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of T tokens ``[T, H, 1, c]``, each over the keys of its slot; ``[T, 1, H, c]``."""

    @abstractmethod
    def _run(self, tokens: Tensor, depths: Tensor, longest: int) -> Any:
        """The output of the model for T tokens, each after ``depths`` tokens; ``longest`` input."""

    @abstractmethod
    def _distances(self, deepest: int) -> Tensor | None:
        """Bias of attention scores by distance, ``[more than deepest, H]``; None if the model has none."""

    def _lay(self, rows: Tensor) -> Tensor:
        """Arrange T rows by slot, ``[T, …]`` to ``[S m, …]``; in a grid, they are arranged so."""
        return rows

    def _unlay(self, rows: Tensor) -> Tensor:
        return rows

    @property
    def _rooms(self) -> list[KeysValues]:
        return self._own

    def _make_room(self, capacity: int, ahead: int = 0) -> None:
        """Grow the memory to P = ``capacity``, with ``ahead`` entries before those in use."""
        for layer, room in enumerate(self._own):
            grown = KeysValues(*(self._empty(part, capacity, part.shape[-1]) for part in room))
            for new, part in zip(grown, room, strict=True):
                new[:, ahead : ahead + self._capacity] = part
            self._own[layer] = grown
        self._capacity = capacity

    def _empty(self, like: Tensor, capacity: int, width: int) -> Tensor:
        return like.new_zeros((self._slots, capacity, width))

    def _new_room(self, like: Tensor, width: int) -> KeysValues:
        return KeysValues(self._empty(like, self._capacity, width), self._empty(like, self._capacity, width))

    def keep(self, key: Tensor, value: Tensor, layer: int) -> KeysValues:
        """Store keys and values of T new tokens; returns all keys and values."""
        self._layer, room = layer, self._rooms[layer]
        for part, new in zip(room, (key, value), strict=True):
            part.index_put_(self._write, new.reshape(len(new), -1))  # [T, H c] into [S, P, H c]
        return by_head(room, self._used, key.shape[1], self._laid)

    def every(self) -> Tensor:
        """Logits of every token for every row, ``[R, V]`` in float32, on the device of the model."""
        with torch.inference_mode():
            return self._head.all(self._hidden)

    def shared(self, tokens: Ints) -> Tensor:
        """Logits of the same N tokens for every row, ``[R, N]`` in float32, on the device of the model.

        The part of the head for ``tokens`` is cached for the next call with the same array object.
        """
        with torch.inference_mode():
            if self._cut is None or self._cut[0] is not tokens:
                self._cut = tokens, self._model.cut(tokens)
            return self._cut[1](self._hidden)

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self._device)


@contextmanager
def attending(configs: list[Any], name: str) -> Iterator[None]:
    """A context in which these configs (:func:`configs_of`) name another implementation of attention."""
    before = [config._attn_implementation for config in configs]
    try:
        for config in configs:
            config._attn_implementation = name
        yield
    finally:
        for config, implementation in zip(configs, before, strict=True):
            config._attn_implementation = implementation


def configs_of(module: nn.Module) -> list[Any]:
    every: list[Any] = [getattr(part, "config", None) for part in module.modules()]
    return list({id(config): config for config in every if config is not None}.values())


SHORT = 256
"""The longest input, in tokens, for plain products: they store a number per head for each pair of tokens."""


@contextmanager
def plain_attention(model: nn.Module, length: int) -> Iterator[None]:
    """A context in which a model on a CPU attends by plain matrix products, if the inputs are short.

    For short inputs with a mask, as in training, they are faster on a CPU than the fused kernel. The
    longest input has ``length`` tokens.
    """
    if length > SHORT or not may_attend_plainly(model):
        yield
        return
    with attending(configs_of(model), "eager"):
        yield


def may_attend_plainly(model: nn.Module) -> bool:
    """Whether a model is on a CPU, without gradient checkpointing.

    Checkpointed parts are computed again outside of a context of attention, and must not change then.
    """
    recomputed = any(getattr(part, "gradient_checkpointing", False) for part in model.modules())
    return not recomputed and next(model.parameters()).device.type == "cpu"


class TreeMemory(SlotMemory):
    """S queries at a time, each with a tree of tokens (:mod:`grls.models.sessions.forest`).

    Any number of tokens can be fed to any beam at once.
    """

    _root_is_seen = True

    def __init__(self, model: SlotModel, slots: int, longest: int):
        self._forest = Forest(slots)
        super().__init__(model, slots, longest, self._forest.capacity)
        self._gather: Tensor  # [S m], see Placed.by_slot
        self._scatter: Tensor  # [T]

    def _enter(self, slots: Ints, lengths: Ints) -> Ints:
        self._forest.plant(slots, self._root_is_seen)
        return np.zeros_like(slots)

    @torch.inference_mode()
    def feed(self, branches: Branches) -> Ints:
        """Feed the tokens of R branches; returns the node of each branch's last token, ``[R]``.

        Afterwards row r is branch r, about to write its next token.
        """
        placed = self._place(branches)
        gather, scatter, laid = placed.by_slot(self._slots)
        self._gather, self._scatter = self._tensor(gather), self._tensor(scatter)
        self._laid = None if laid is None else self._tensor(laid)
        # Position bias at entries that a token attends to, else minus infinity, [S, H or 1, m, used].
        visible = self._tensor(placed.visible[:, : self._used, None])
        table = self._distances(int(placed.depths.max()))
        if table is None:
            bias = torch.zeros(visible.shape, device=visible.device)
        else:
            distance = placed.depths[:, None] - self._forest.depths[placed.slots, : self._used]
            bias = table[self._tensor(np.maximum(distance, 0))]
        bias = self._lay(bias.masked_fill(~visible, -torch.inf))
        rows = self._slots if laid is None else len(laid)
        self._own_bias = bias.unflatten(0, (rows, -1)).permute(0, 3, 1, 2).contiguous()
        depths = placed.depths if self._root_is_seen else placed.depths - 1  # else node 0 is no token
        with self._model.attention(self), self._head.catch() as caught:
            self._run(self._tensor(branches.tokens), self._tensor(depths), int(self._lengths.max()))
        self._hidden = caught[0][:, 0][self._tensor(placed.last)]
        return placed.nodes[placed.last]

    def _place(self, branches: Branches) -> Placed:
        placed = self._forest.grow(branches)
        self._used = int(self._forest.counts.max())
        if self._forest.capacity > self._capacity:
            self._make_room(self._forest.capacity)
        self._write = self._tensor(placed.slots), self._tensor(placed.nodes)
        return placed

    def _lay(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._gather)

    def _unlay(self, rows: Tensor) -> Tensor:
        return rows.index_select(0, self._scatter)
