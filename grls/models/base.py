"""The protocols by which decoders use a model.

Legend: B inputs of a batch, R rows (live beams of all inputs together), A (row, token) pairs, V
vocabulary. They do not mention encoders, since a causal model reads its input as a prefix. The plain
search needs a :class:`GeneratorModel`; the searches in slots need a
:class:`grls.models.sessions.memory.SlotModel`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from inspect import signature
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from grls.errors import ConfigError, Option
from grls.index.rows import Ints

Floats = npt.NDArray[np.floating[Any]]
Input = TypeVar("Input", bound=Hashable)


def is_causal(model: Any) -> bool:
    """Whether a model reads its input as a prefix of its output."""
    return not model.config.is_encoder_decoder


def once_each(inputs: Sequence[Input]) -> tuple[list[Input], list[int]]:
    """The distinct inputs of a model in order, and for each input its number among them, ``[n]``.

    The last bits of an output depend on what shares the batch. So that equal inputs get equal outputs,
    and ties stay ties, a model reads each input once.
    """
    numbers_of: dict[Input, int] = {}
    numbers = [numbers_of.setdefault(item, len(numbers_of)) for item in inputs]
    return list(numbers_of), numbers


_PAIRS = 1 << 25
"""The most pairs of tokens of inputs that are read together: attention with a bias keeps a number for each
pair and head (1 GB for the 8 heads of t5-small: 32 inputs of 1,000 tokens, or one of 5,000)."""


def alike(lengths: Ints, padding: float = 2.0) -> Iterator[Ints]:
    """Groups of inputs to read together, as ascending numbers; padding may lengthen one ``padding`` times.

    Inputs are padded to the longest: one of 1,000 tokens among 31 short ones would take 31 times as long as
    alone. Inputs of up to 64 tokens count as equally long.
    """
    order = np.argsort(-lengths, kind="stable")
    sizes = np.maximum(lengths[order], 64)
    while len(order):
        count = int((sizes[0] * np.arange(1, len(sizes) + 1) <= padding * np.cumsum(sizes)).sum())
        count = min(count, max(1, _PAIRS // int(sizes[0]) ** 2))
        yield np.sort(order[:count])
        order, sizes = order[count:], sizes[count:]


class StepRows(Protocol):
    """R rows, each about to write a token."""

    def logits(self, rows: Ints, tokens: Ints) -> Floats:
        """Logit of ``tokens[a]`` as the next token of ``rows[a]``, ``[A]``; rows ascend."""

    def log_normalizer(self) -> Floats:
        """Log of the sum of exponentials of all V logits of each row, ``[R]``."""


class Session(StepRows, Protocol):
    """The decoding of one batch: the model's memory of R rows, one row for each live beam."""

    def first(self) -> None:
        """Read the inputs. Afterwards there are R = B rows, each about to write its first token."""

    def step(self, parents: Ints, tokens: Ints) -> None:
        """Replace the rows: new row r continues row ``parents[r]`` with ``tokens[r]``, both ``[R]``."""


class GeneratorModel(Protocol):
    """A model that writes token sequences for an input."""

    def open(self, inputs: Sequence[Sequence[int]]) -> Session:
        """Begin to decode a batch of B inputs (token ids)."""


class Room(NamedTuple):
    """How much of its memory a step of a grid reads.

    ``steps``: the most steps that a slot has written, with this one. ``longest``: the most tokens of an
    input.
    """

    steps: int
    longest: int


def start_token(model: Any) -> int:
    for config in (getattr(model, "generation_config", None), model.config):
        token = getattr(config, "decoder_start_token_id", None)
        if token is None:
            continue
        most = getattr(model.config, "decoder", model.config).vocab_size
        if type(token) is not int or not 0 <= token < most:
            raise ConfigError(
                f"decoder_start_token_id is {token!r} (of generation_config.json or config.json); "
                f"expected the number of a token, 0 to {most - 1}: correct it, or copy the file from the "
                "source of the model."
            )
        return token
    raise ConfigError(
        f"{type(model).__name__} names no decoder_start_token_id; set it in the model's config.json."
    )


def positions_in(config: Any) -> int | None:
    """The longest input of a model, or of a part, in tokens; None without a limit (XLNet has -1)."""
    most = getattr(config, "max_position_embeddings", None)
    return int(most) if most is not None and most > 0 else None


def check_positions(model: Any, input_length: int, target_length: int) -> None:
    """Refuse lengths, in tokens, beyond the positions of a model (T5 has relative ones, without a limit).

    A causal model needs positions for input and target together, with the end token.
    """
    config = model.config
    if not config.is_encoder_decoder:
        most = positions_in(config)
        if most is not None and input_length + target_length > most:
            raise ConfigError(
                f"inputs of {input_length} and passages of {target_length} tokens, but the model has {most} "
                f"positions; lower {Option('limits.input')} or {Option('limits.passage')} (in training "
                f"{Option('data.max_input_tokens')} or {Option('data.max_passage_tokens')})."
            )
        return
    for noun, part, length, option in (
        ("inputs", getattr(config, "encoder", config), input_length, "max_input_tokens"),
        ("passages", getattr(config, "decoder", config), target_length, "max_passage_tokens"),
    ):
        most = positions_in(part)
        if most is not None and length > most:
            raise ConfigError(
                f"{noun} of {length} tokens, but the model has {most} positions; set "
                f"{Option(option)} (in training {Option(f'data.{option}')}) to at most {most - 1}."
            )


def cache_argument(model: Any) -> str:
    """The argument of a transformers model, and of its ``generate``, that takes a cache.

    It is ``cache`` since transformers 5.24, and ``past_key_values`` before; 5.40 takes the new name alone.
    """
    return "cache" if "cache" in signature(type(model).forward).parameters else "past_key_values"
