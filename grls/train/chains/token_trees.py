"""Trees of tokens for training: the common prefix of several sequences goes through the model once.

Legend: b trees of a batch, t nodes of the largest, n nodes of one.

A node is a token, and a path from the root is a sequence. The mask lets a token see its ancestors and itself,
and positions are depths. So a causal model computes for each node what it would compute for its path alone.
The hops of a query form such a tree: the input of a hop is a prefix of the next hop's input, and passages
that compete for a hop branch off after it. The module knows nothing of models or of passages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class TokenTree:
    """A tree of tokens, built by inserting sequences.

    Attributes:
        tokens: ``[n]`` the token of each node.
        parents: ``[n]`` the parent of each node, which has a smaller number; -1: none.
        depths: ``[n]`` number of tokens before each node.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def insert(self, sequence: Iterable[int], node: int = -1) -> list[int]:
        """Insert a sequence after a node (-1: at the root); returns the node of each of its tokens."""
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
        """``[n, n]``: whether node i sees node j, an ancestor or itself."""
        seen = np.zeros((len(self), len(self)), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen[node] = seen[parent]
            seen[node, node] = True
        return seen


class TreeBatch(NamedTuple):
    """Padded trees.

    Attributes:
        input_ids: ``[b, t]``.
        position_ids: ``[b, t]``.
        visible: ``[b, t, t]``; padding sees itself.
    """

    input_ids: Tensor
    position_ids: Tensor
    visible: Tensor

    def bias(self, dtype: torch.dtype) -> Tensor:
        """The attention bias, ``[b, 1, t, t]``: zero, or the lowest number where a node is hidden."""
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
