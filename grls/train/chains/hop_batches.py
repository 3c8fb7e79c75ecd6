"""Hops for a sequence-to-sequence model: inputs and their paths, with little padding.

Legend: h inputs of a group, s longest input, p paths of a stretch, u longest path.

Most paths end after a few tokens, where a passage is unique, but a few are long. Lengths of inputs vary as
well. So a batch is cut into groups of inputs of similar length, and the paths of a group into stretches of
similar length. Each distinct input is encoded once, for all its hops and paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, tensor

from grls.train.core.collate import pad

_GROUP = 16
"""Inputs of a group: smaller groups mean more calls of the model, larger ones more padding."""


class Stretch(NamedTuple):
    """Paths of similar length.

    Attributes:
        owners: ``[p]`` the input of each path, a number within its group.
        decoder_input_ids: ``[p, u]``.
    """

    owners: Tensor
    decoder_input_ids: Tensor


class HopGroup(NamedTuple):
    """Inputs of similar length.

    Attributes:
        input_ids: ``[h, s]``.
        attention_mask: ``[h, s]``.
        stretches: The paths of the inputs.
    """

    input_ids: Tensor
    attention_mask: Tensor
    stretches: tuple[Stretch, ...]


class HopBatch(NamedTuple):
    """Hops and their paths; states are numbered through all places of all stretches, in order.

    Attributes:
        groups: Groups of inputs with their paths.
    """

    groups: tuple[HopGroup, ...]


def group(
    sources: Sequence[Sequence[int]],
    hops: Sequence[int],
    written: Sequence[list[int]],
    pad_token: int,
    start_token: int,
) -> tuple[HopBatch, list[list[int]]]:
    """Group inputs and paths by length.

    Args:
        sources: The input of each hop; equal inputs are encoded once.
        hops: The hop of each path.
        written: Decoder tokens of each path, after the start token.
        pad_token: Padding.
        start_token: First token of the decoder.

    Returns:
        The batch, and for each path the numbers of its states.
    """
    inputs = sorted({tuple(source) for source in sources}, key=lambda source: (len(source), source))
    number = {source: n for n, source in enumerate(inputs)}
    owner = [number[tuple(sources[hop])] for hop in hops]
    places: list[list[int]] = [[] for _ in hops]
    groups = []
    before = 0
    for low in range(0, len(inputs), _GROUP):
        members = inputs[low : low + _GROUP]
        paths = [path for path, at in enumerate(owner) if low <= at < low + len(members)]
        stretches = []
        for stretch in _alike(paths, written):
            rows, _ = pad([[start_token, *written[path]] for path in stretch], pad_token)
            width = rows.shape[1]
            for path in stretch:
                places[path] = list(range(before, before + width))
                before += width
            stretches.append(Stretch(tensor([owner[path] - low for path in stretch]), rows))
        ids, mask = pad([list(source) for source in members], pad_token)
        groups.append(HopGroup(ids, mask, tuple(stretches)))
    return HopBatch(tuple(groups)), places


def _alike(paths: Sequence[int], written: Sequence[list[int]]) -> list[list[int]]:
    """Paths grouped by length: at most 1, 2, 4, 8, … tokens with the start token."""
    groups: dict[int, list[int]] = {}
    for path in paths:
        groups.setdefault(len(written[path]).bit_length(), []).append(path)
    return [groups[size] for size in sorted(groups)]
