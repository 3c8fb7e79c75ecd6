"""From chains of hops to tensors with decisions, for causal and for sequence-to-sequence models.

Legend: b chains, t nodes of the largest tree, n nodes of a tree, N nodes of all trees, D decisions, A
allowed tokens of all of them together, T tokens taken, h inputs of a group, s longest input, p paths of a
stretch, u longest path.

For a causal model a chain is a tree of tokens: hops share their common prefix, and so do the passages
that are scored after a hop. For a sequence-to-sequence model each hop is a separate input. A passage is
fed up to its last decision, or to its end where it is rescored or, in a tree, evidence of the next hop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, tensor

from grls.index import ConstraintIndex
from grls.train.chains.decisions import Decisions, walk_paths
from grls.train.chains.examples import ChainExample, Teaching
from grls.train.chains.prior import OpenPriors
from grls.train.chains.rescoring import Proposals, Read
from grls.train.core.collate import pad


class DecisionTensors(NamedTuple):
    """:class:`~grls.train.chains.decisions.Decisions` as tensors; the other attributes are as there.

    Attributes:
        states: ``[D]`` index of the model's state at each decision, among the N nodes of trees or the
            states of a :data:`HopBatch`.
    """

    states: Tensor
    weights: Tensor
    owners: Tensor
    tokens: Tensor
    probabilities: Tensor
    gains: Tensor


class Rescored(NamedTuple):
    """Rescored passages as tensors.

    Attributes:
        states: ``[n]`` index of the model's state after the last token of each passage.
        hops: ``[n]`` the rescored hop of each passage, 0 to h - 1, ascending.
        within: ``[n]`` number of the passage within its hop.
        right: ``[n]`` whether the passage is right.
        tokens: ``[2]`` the two tokens whose logits are compared.
    """

    states: Tensor
    hops: Tensor
    within: Tensor
    right: Tensor
    tokens: Tensor

    @property
    def hop_count(self) -> int:
        return int(self.hops[-1]) + 1 if len(self.hops) else 0


class ChainBatch(NamedTuple):
    """A batch of chains: the tokens to read, the decisions whose loss is taken, and passages to rescore.

    ``labels [hops]`` are zeros; the loss is averaged over their number.
    """

    read: TreeBatch | HopBatch
    decisions: DecisionTensors
    labels: Tensor
    rescored_passages: Rescored | None = None


@dataclass(frozen=True)
class ChainCollator:
    """Makes batches of chains.

    Args:
        teaching: Makes the targets and paths of hops.
        decay: See :func:`grls.train.chains.decisions.walk_paths`.
        start_token: First token of the decoder; None for a causal model.
        prior: The prior beside which the model learns, if any.
        proposals: Draws the passages to rescore; None: no rescoring.
    """

    pad_token: int
    index: ConstraintIndex
    teaching: Teaching
    decay: float = 1.0
    start_token: int | None = None
    prior: OpenPriors | None = None
    proposals: Proposals | None = None

    def __call__(self, examples: Sequence[ChainExample]) -> ChainBatch:
        hops = [hop for example in examples for hop in example.hops]
        targets, paths = self.teaching(hops)
        gains = None if self.prior is None else self.prior.gains(self.index, hops)
        decisions = walk_paths(self.index, targets, paths, self.decay, gains)
        rescored = [] if self.proposals is None else self.proposals(examples)
        hops_before = [*(path.hop for path in paths), *(passage.hop for passage in rescored)]
        lengths = np.zeros(len(paths), dtype=np.int64)  # tokens of each path before its last decision
        np.maximum.at(lengths, decisions.paths, decisions.depths)
        paths_tokens = [
            self.index.tokens(path.passage)[:length].tolist()
            for path, length in zip(paths, lengths.tolist(), strict=True)
        ]
        paths_tokens += [list(passage.tokens) for passage in rescored]
        inputs: TreeBatch | HopBatch
        if self.start_token is None:  # a tree for each chain
            owner = [n for n, example in enumerate(examples) for _ in example.hops]
            trees = [TokenTree() for _ in examples]
            ends = [trees[n].insert(hop.source)[-1] for n, hop in zip(owner, hops, strict=True)]
            nodes = [  # of what is written after each hop, the hop's end first
                [ends[hop], *trees[owner[hop]].insert(tokens, ends[hop])]
                for hop, tokens in zip(hops_before, paths_tokens, strict=True)
            ]
            inputs = stack(trees)
            first = np.cumsum([0, *map(len, trees)]).tolist()
            nodes = [
                [first[owner[hop]] + node for node in path]
                for hop, path in zip(hops_before, nodes, strict=True)
            ]
        else:
            sources = [hop.source for hop in hops]
            inputs, nodes = group(sources, hops_before, paths_tokens, self.pad_token, self.start_token)
        states = [
            nodes[p][depth]
            for p, depth in zip(decisions.paths.tolist(), decisions.depths.tolist(), strict=True)
        ]
        batch = ChainBatch(inputs, decision_tensors(decisions, states), torch.zeros(len(hops)))
        if self.proposals is None:
            return batch
        last = [
            path[len(passage.tokens)] for path, passage in zip(nodes[len(paths) :], rescored, strict=True)
        ]
        return batch._replace(rescored_passages=as_tensors(rescored, last, self.proposals.readout))


def as_tensors(passages: Sequence[Read], states: Sequence[int], tokens: tuple[int, int]) -> Rescored:
    """The passages as tensors; those of a hop stand side by side.

    ``states [n]`` are indexes of the model's states behind them, ``tokens`` those of
    :func:`grls.models.head.readout`.
    """
    owners = np.array([passage.hop for passage in passages], dtype=np.int64)
    _, first, hops = np.unique(owners, return_index=True, return_inverse=True)
    within = np.arange(len(owners)) - first[hops] if len(owners) else owners
    return Rescored(
        torch.tensor(states, dtype=torch.long),
        torch.from_numpy(hops),
        torch.from_numpy(within),
        torch.tensor([passage.right for passage in passages], dtype=torch.bool),
        torch.tensor(tokens),
    )


def decision_tensors(decisions: Decisions, states: Sequence[int]) -> DecisionTensors:
    """Decisions as tensors; ``states [D]`` are indexes of the model's states."""
    return DecisionTensors(
        torch.tensor(states, dtype=torch.long),
        torch.from_numpy(decisions.weights).float(),
        torch.from_numpy(decisions.owners),
        torch.from_numpy(decisions.tokens.astype(np.int64)),
        torch.from_numpy(decisions.probabilities).float(),
        torch.from_numpy(decisions.gains).float(),
    )


class TokenTree:
    """A tree of tokens, built by inserting sequences; a node is a token, a path from the root a sequence.

    The input of a hop is a prefix of the next hop's input, and passages that compete for a hop branch off
    after it. A token sees its ancestors and itself, and positions are depths, so a causal model computes
    for each node what it would compute for its path alone.

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
    """Trees, one after the other.

    Attributes:
        input_ids: ``[N]``, as ``position_ids``.
        places: ``[N]`` the place of each node in ``[b * t]``, where trees are padded.
        visible: ``[b, t, t]``; padding sees itself.
        sizes: ``[b]`` nodes of each tree.
    """

    input_ids: Tensor
    position_ids: Tensor
    places: Tensor
    visible: Tensor
    sizes: Tensor

    def bias(self, dtype: torch.dtype) -> Tensor:
        """The attention bias, ``[b, 1, t, t]``: zero, or the lowest number where a node is hidden."""
        hidden = torch.zeros(self.visible.shape, dtype=dtype, device=self.visible.device)
        return hidden.masked_fill_(~self.visible, torch.finfo(dtype).min)[:, None]

    def padded(self, nodes: Tensor) -> Tensor:
        """``[N]`` to ``[b, t]``, zeros in the padding."""
        rows = nodes.new_zeros(self.visible.shape[:2])
        rows.view(-1)[self.places] = nodes
        return rows


def stack(trees: Sequence[TokenTree]) -> TreeBatch:
    sizes = [len(tree) for tree in trees]
    width = max(sizes)
    visible = torch.eye(width, dtype=torch.bool).repeat(len(trees), 1, 1)
    for row, tree in enumerate(trees):
        visible[row, : len(tree), : len(tree)] = torch.from_numpy(tree.visible())
    return TreeBatch(
        tensor([token for tree in trees for token in tree.tokens]),
        tensor([depth for tree in trees for depth in tree.depths]),
        torch.cat([torch.arange(size) + row * width for row, size in enumerate(sizes)]),
        visible,
        tensor(sizes),
    )


_GROUP = 16
"""Inputs of a group: smaller groups mean more calls of the model, larger ones more padding."""


class Stretch(NamedTuple):
    """Paths of similar length, ``[p, u]``; ``owners [p]``: the input of each, a number within its group."""

    owners: Tensor
    decoder_input_ids: Tensor


class HopGroup(NamedTuple):
    """Inputs of similar length, ``[h, s]``, and their paths."""

    input_ids: Tensor
    attention_mask: Tensor
    stretches: tuple[Stretch, ...]


HopBatch = tuple[HopGroup, ...]
"""Groups of inputs with their paths; states are numbered through all tokens of all stretches, in order."""


def group(
    sources: Sequence[Sequence[int]],
    hops: Sequence[int],
    written: Sequence[list[int]],
    pad_token: int,
    start_token: int,
) -> tuple[HopBatch, list[list[int]]]:
    """Group inputs of similar length, and the paths of a group into stretches of similar length.

    Most paths end after a few tokens, where a passage is unique, but a few are long. ``hops`` are those
    of the paths, ``written`` the decoder's tokens of each path after the start token. Returns the batch,
    and for each path the numbers of its states.
    """
    inputs = sorted({tuple(source) for source in sources}, key=lambda source: (len(source), source))
    number = {source: n for n, source in enumerate(inputs)}
    owner = [number[tuple(sources[hop])] for hop in hops]
    states: list[list[int]] = [[] for _ in hops]
    groups = []
    before = 0
    for low in range(0, len(inputs), _GROUP):
        members = inputs[low : low + _GROUP]
        alike: dict[int, list[int]] = {}  # paths of at most 1, 2, 4, 8, … tokens with the start token
        for path, row in enumerate(owner):
            if low <= row < low + len(members):
                alike.setdefault(len(written[path]).bit_length(), []).append(path)
        stretches = []
        for _, stretch in sorted(alike.items()):
            rows, _ = pad([[start_token, *written[path]] for path in stretch], pad_token)
            width = rows.shape[1]
            for path in stretch:
                states[path] = list(range(before, before + width))
                before += width
            stretches.append(Stretch(tensor([owner[path] - low for path in stretch]), rows))
        ids, mask = pad([list(source) for source in members], pad_token)
        groups.append(HopGroup(ids, mask, tuple(stretches)))
    return tuple(groups), states
