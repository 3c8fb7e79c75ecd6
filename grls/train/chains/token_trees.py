"""Trees of tokens to train on: what several sequences begin with alike goes through the model once.

Legend: b trees of a batch, t nodes of the largest, n nodes of one.

A node is a token, and a path from the root down a sequence. Under a mask that lets a token see its ancestors
and itself, and with depths as positions, a causal model computes for each node what it would compute for that
path alone. The hops of a query are such a tree: the input of a hop is the beginning of the next one's, and
passages that compete for a hop branch off behind it. The module knows nothing of models or of passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class TokenTree:
    """A tree of tokens that grows by sequences.

    Attributes:
        tokens: ``[n]`` the token of each node.
        parents: ``[n]`` the node before each, which always has a smaller number; -1: none.
        depths: ``[n]`` tokens before each.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def insert(self, sequence: Iterable[int], node: int = -1) -> list[int]:
        """Let a sequence continue a node (-1: begin the tree); returns the node of each of its tokens."""
        nodes = []
        for token in sequence:
            key = node, int(token)
            if key not in self._children:
                self._children[key] = len(self.tokens)
                self.tokens.append(key[1])
                self.parents.append(node)
                self.depths.append(0 if node < 0 else self.depths[node] + 1)
            node = self._children[key]
            nodes.append(node)
        return nodes

    def visible(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """``[n, n]``: whether node i sees node j: its ancestors and itself."""
        seen = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] = seen[parent]
            seen[node, node] = True
        return seen


class TreeBatch(NamedTuple):
    """Trees of one size.

    Attributes:
        input_ids: ``[b, t]``.
        position_ids: ``[b, t]``.
        visible: ``[b, t, t]``; padding sees itself.
    """

    input_ids: Tensor
    position_ids: Tensor
    visible: Tensor

    def bias(self, dtype: torch.dtype) -> Tensor:
        """What is added to the scores of attention, ``[b, 1, t, t]``: nothing, or all but minus infinity."""
        hidden = torch.zeros(self.visible.shape, dtype=dtype, device=self.visible.device)
        return hidden.masked_fill_(~self.visible, torch.finfo(dtype).min)[:, None]


def stack(trees: Sequence[TokenTree], pad_token: int) -> TreeBatch:
    """Pad trees into a batch."""
    width = max(len(tree) for tree in trees)
    tokens = torch.full((len(trees), width), pad_token)
    positions = torch.zeros((len(trees), width), dtype=torch.long)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(trees), 1, 1)
    for row, tree in enumerate(trees):
        size = len(tree)
        tokens[row, :size] = torch.tensor(tree.tokens)
        positions[row, :size] = torch.tensor(tree.depths)
        visible[row, :size, :size] = torch.from_numpy(tree.visible())
    return TreeBatch(tokens, positions, visible)
