"""Hops for a sequence-to-sequence model: inputs and the paths behind them, with little padding.

Legend: h inputs of a group, s the longest of them, p paths of a stretch, u the longest of them.

Most paths end after a few tokens, where a passage is told apart, and some are long; so are inputs. A batch
is therefore cut into groups of inputs of like length, and the paths of each into stretches of like length.
Each input is encoded once, however many passages are scored for it and hops begin with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, tensor

from grls.train.core.collate import pad

_GROUP = 16
"""Inputs of a group: fewer make more calls of the model, more make more padding."""


class Stretch(NamedTuple):
    """Paths of like length.

    Attributes:
        owners: ``[p]`` the input of each, in its group.
        decoder_input_ids: ``[p, u]``.
    """

    owners: Tensor
    decoder_input_ids: Tensor


class HopGroup(NamedTuple):
    """Inputs of like length.

    Attributes:
        input_ids: ``[h, s]``.
        attention_mask: ``[h, s]``.
        stretches: The paths behind them.
    """

    input_ids: Tensor
    attention_mask: Tensor
    stretches: tuple[Stretch, ...]


class HopBatch(NamedTuple):
    """Hops and the paths behind them; the model's states are those of all places of all stretches, in order.

    Attributes:
        groups: Of inputs.
    """

    groups: tuple[HopGroup, ...]


def group(
    sources: Sequence[Sequence[int]],
    hops: Sequence[int],
    written: Sequence[list[int]],
    pad_token: int,
    start_token: int,
) -> tuple[HopBatch, list[list[int]]]:
    """Lay paths out.

    Args:
        sources: The input of each hop; equal ones are encoded once.
        hops: The hop of each path.
        written: What each path feeds to the decoder behind the start token.
        pad_token: Padding.
        start_token: What the decoder begins with.

    Returns:
        The batch, and for each path where the states of its places are among all.
    """
    inputs = sorted({tuple(source) for source in sources}, key=lambda source: (len(source), source))
    number = {source: n for n, source in enumerate(inputs)}
    owner = [number[tuple(sources[hop])] for hop in hops]
    places: list[list[int]] = [[] for _ in hops]
    groups = []
    before = 0
    for low in range(0, len(inputs), _GROUP):
        some = inputs[low : low + _GROUP]
        own = [path for path, at in enumerate(owner) if low <= at < low + len(some)]
        stretches = []
        for stretch in _alike(own, written):
            rows, _ = pad([[start_token, *written[path]] for path in stretch], pad_token)
            width = rows.shape[1]
            for path in stretch:
                places[path] = list(range(before, before + width))
                before += width
            stretches.append(Stretch(tensor([owner[path] - low for path in stretch]), rows))
        ids, mask = pad([list(source) for source in some], pad_token)
        groups.append(HopGroup(ids, mask, tuple(stretches)))
    return HopBatch(tuple(groups)), places


def _alike(paths: Sequence[int], written: Sequence[list[int]]) -> list[list[int]]:
    """Paths by length: with the start token at most 1, 2, 4, 8, … tokens."""
    found: dict[int, list[int]] = {}
    for path in paths:
        found.setdefault(len(written[path]).bit_length(), []).append(path)
    return [found[size] for size in sorted(found)]
