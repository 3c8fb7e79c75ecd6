"""A model's memory of several queries in flight, by an attention function and a cache of our own.

Legend: S slots (queries in flight), P places a slot, T new tokens, m most new tokens of one slot, R rows,
H heads, c width of a head, d model width, N tokens asked of every row.

transformers lets an attention function be registered and a cache be handed in, and that is all that has to
change. The new tokens of all beams of all queries go through the model's own code as T rows of one token, so
every linear layer is one product without padding; the cache keeps keys and values by slot and place; the
attention (:func:`_attend`) lays the T queries out by slot, and each sees its ancestors, and its slot's input.

Two things vary, and a session is put together from both. How an input is read:
:mod:`grls.models.seq2seq.slots` (by an encoder) and :mod:`grls.models.causal.slots` (as a prefix). And how
tokens are placed: :mod:`grls.models.sessions.trees` (any number of tokens a beam, by NumPy: for the CPU)
and :mod:`grls.models.sessions.grid` (one token of every beam, without a word from the device: for a GPU).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, Cache

from grls.index.rows import Ints
from grls.models.base import Floats
from grls.models.head import Cut, Head
from grls.models.precision import refuse_nan_logits
from grls.models.sessions.attention import attending, configs_of
from grls.models.turns import turn

_NAME = "grls_slots"
_SESSION = "grls_slot_session"
"""Where a config tells the attention function whose session it serves. (A context variable would do the same
per thread, but torch.compile cannot read one, and a model serves one thread at a time anyway.)"""


class KeysValues(NamedTuple):
    """Keys and values of a layer by slot, ``[S, H, P, c]`` each.

    As a session keeps them (its rooms) they are ``[S, P, H c]``, and tensors apart: of two spans of one
    tensor a compiled step would write neither in its place, but copy the whole.
    """

    keys: Tensor
    values: Tensor


def by_head(room: KeysValues, places: int, heads: int) -> KeysValues:
    """The first places of a room ``[S, P, H c]`` as attention wants them, ``[S, H, places, c]``; no copy."""
    keys, values = room
    return KeysValues(_by_head(keys, places, heads), _by_head(values, places, heads))


def _by_head(part: Tensor, places: int, heads: int) -> Tensor:
    laid: Tensor = part[:, :places].unflatten(-1, (heads, -1)).transpose(1, 2)
    return laid


class OwnCache(Cache):
    """Keys and values of the tokens fed, for the model's self-attention."""

    def __init__(self, session: SlotMemory):
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


class SlotModel:
    """Drives a transformers model by slots.

    Its attention is exchanged while tokens are fed and put back at once, so one model serves one thread at a
    time (:mod:`grls.models.turns`).

    Args:
        module: The part of the model that writes tokens.
        head: Its output head.
    """

    def __init__(self, module: nn.Module, head: Head):
        self.head = head
        self._configs = configs_of(module)
        self._cut: tuple[Version, Ints, Cut] | None = None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.head.module.weight.device

    def cut(self, tokens: Ints) -> Cut:
        """The part of the head that belongs to some tokens, kept until the head's weights change."""
        now = version(self.head.module)
        if self._cut is None or self._cut[0] != now or self._cut[1] is not tokens:
            self._cut = now, tokens, self.head.cut(torch.from_numpy(tokens).to(self.device))
        return self._cut[2]

    @contextmanager
    def attention(self, session: SlotMemory) -> Iterator[None]:
        """Within the block the model attends by slot, for this thread alone."""
        with turn(self.head.model):
            try:
                for config in self._configs:
                    setattr(config, _SESSION, session)
                with attending(self._configs, _NAME):
                    yield
            finally:
                for config in self._configs:
                    delattr(config, _SESSION)


_SAMPLE = 4096
Version = tuple[tuple[int, float], ...]


def version(module: nn.Module) -> Version:
    """Changes whenever a parameter is replaced or written to, told by where it lies and a sample of it.

    (Counters of writes do not see what is written through ``.data``.)
    """
    parameters = [p.detach() for p in module.parameters()]
    samples = [p.flatten()[:: max(1, p.numel() // _SAMPLE)].double().sum() for p in parameters]
    sums = torch.stack(samples).tolist() if samples else []
    return tuple((p.data_ptr(), total) for p, total in zip(parameters, sums, strict=True))


def takes_positions(near: Tensor, far: Tensor) -> bool:
    """Whether a model read the positions that it was told, given what it computed for two that differ.

    One that counts its tokens instead (BART, Marian) computes the same numbers to the last bit, in every
    precision; :func:`agree` alone would let its error pass for the rounding of a coarse one.
    """
    return not torch.equal(near, far)


def agree(found: Tensor, expected: Tensor, kind: torch.dtype) -> bool:
    """Whether two rows of logits are equal but for the rounding of a model that computes in ``kind``.

    Raises:
        ConfigError: What is expected, which the model's own forward pass gave, is not numbers.
    """
    refuse_nan_logits(expected)
    tolerance = max(1e-2, 32 * torch.finfo(kind).eps)
    spread = float(expected[expected.isfinite()].std().nan_to_num())
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance * spread)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention function; ``query [T, H, 1, c]``, result ``[T, 1, H, c]``."""
    session: SlotMemory = getattr(module.config, _SESSION)
    return session.attend(query, key, value, options.get("scaling")), None


AttentionInterface.register(_NAME, _attend)


class SlotMemory(ABC):
    """The decoding of S queries at a time.

    Args:
        model: The model.
        slots: S.
        longest: The longest input that will come, in tokens.
        places: P at first.
    """

    def __init__(self, model: Any, slots: int, longest: int, places: int):
        self._model = model
        self._device: torch.device = (
            model.device
        )  # asked once: a transformers model looks for it anew each time
        self._slots = slots
        self._longest = longest
        self._places = places
        self._own: list[KeysValues] = []  # of each layer, [S, P, H c]
        self._cut: tuple[Ints, Cut] | None = None  # asked of the model once: it looks whether weights changed
        # Set by whoever feeds:
        self._own_bias: Tensor  # [S, H or 1, m, used]
        self._write: Tensor  # [T] where _put writes the new tokens, in the flattened cache
        self._hidden: Tensor  # [R, d] what the head sees

    @abstractmethod
    def load(self, slots: Ints, inputs: Sequence[Sequence[int]]) -> Ints:
        """Read new queries into slots; returns the node that each writes on from."""

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Attention of T tokens ``[T, H, 1, c]``, each over its slot's keys; ``[T, 1, H, c]``."""

    @abstractmethod
    def _advance(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """Feed T tokens that have so many before them; returns what the head sees, ``[T, d]``."""

    @abstractmethod
    def _distances(self, deepest: int) -> Tensor | None:
        """Bias of attention scores by distance, ``[more than deepest, H]``, where the model has one."""

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

    @property
    def _rooms(self) -> list[KeysValues]:
        """Keys and values of each layer, of the places in use at least."""
        return self._own

    def _make_room(self, places: int) -> None:
        """Let P be as large."""
        self._own = [KeysValues(*(self._grown(part, places) for part in room)) for room in self._own]
        self._places = places

    def _grown(self, part: Tensor, places: int) -> Tensor:
        grown = self._empty(part, places, part.shape[-1])
        grown[:, : self._places] = part
        return grown

    def _empty(self, like: Tensor, places: int, width: int) -> Tensor:
        """Zeros for keys, or values, of a layer, ``[S, places, width]``."""
        return like.new_zeros((self._slots, places, width))

    def _new_room(self, like: Tensor, width: int) -> KeysValues:
        """What a layer keeps of the tokens, empty."""
        return KeysValues(*(self._empty(like, self._places, width) for _ in range(2)))

    def _put(self, part: Tensor, new: Tensor) -> None:
        """Write T rows ``new [T, H c]`` to their places in ``part [S, P, H c]``."""
        part.view(-1, part.shape[-1]).index_copy_(0, self._write, new)

    def keep(self, key: Tensor, value: Tensor, layer: int) -> KeysValues:
        """Put keys and values of T new tokens in their places, and return all."""
        if layer == len(self._own):
            self._own.append(self._new_room(key, key[0].numel()))
        room = self._rooms[layer]
        for part, new in zip(room, (key, value), strict=True):
            self._put(part, new.reshape(len(new), -1))
        return by_head(room, self._used, key.shape[1])

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        """Logits of (row, token) pairs, ``[A]``."""
        with torch.inference_mode():
            head = self._model.head
            found: Floats = head.pairs(self._hidden, self._tensor(rows), self._tensor(tokens)).cpu().numpy()
            return found

    def log_normalizer(self) -> Floats:
        """Log-sum-exp over the vocabulary, ``[R]``."""
        with torch.inference_mode():
            found: Floats = self._model.head.all(self._hidden).logsumexp(-1).cpu().numpy()
            return found

    def every(self) -> Tensor:
        """Logits of every token for every row, ``[R, V]`` in float32."""
        with torch.inference_mode():
            return self._model.head.all(self._hidden)  # type: ignore[no-any-return]

    def shared(self, tokens: Ints) -> Tensor:
        """Logits of the same tokens for every row, ``[R, N]``."""
        with torch.inference_mode():
            if self._cut is None or self._cut[0] is not tokens:
                self._cut = tokens, self._model.cut(tokens)
            return self._cut[1](self._hidden)

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(array).to(self._device)
