"""From hops to tensors, for causal and for sequence-to-sequence models.

Legend: b chains, t nodes of the largest tree, n nodes of a tree, N nodes of all trees, h inputs of a group,
s longest input, p paths of a stretch, u longest path.

Hops alone are padded pairs of input and path, as in the paper. Chains share what they have in common: for a
causal model a chain is a tree of tokens, where hops share their prefix, and so do the passages that are
scored after a hop; for a sequence-to-sequence model each distinct input of a hop is encoded once. Under the
``allowed`` loss a passage is fed up to its last decision, or to its end where it is rescored or, in a tree,
evidence of the next hop: on sentences that saves 60 % of the decoder's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, tensor

from grls.index.base import ConstraintIndex
from grls.train.core.module import Batch, DecisionTensors, Labels, pad, pairs
from grls.train.generator.candidates import RunCandidates
from grls.train.generator.decisions import walk_paths
from grls.train.generator.examples import Hops
from grls.train.generator.prior import OpenPriors
from grls.train.generator.rescoring import Proposals, Read
from grls.train.generator.targets import Teaching


class Rescored(NamedTuple):
    """Rescored passages as tensors.

    Attributes:
        states: ``[n]`` index of the model's state after the last token of each passage.
        hops: ``[n]`` the rescored hop of each passage, 0 to h - 1, ascending.
        right: ``[n]`` whether the passage is right.
        tokens: ``[2]`` the two tokens whose logits are compared.
    """

    states: Tensor
    hops: Tensor
    right: Tensor
    tokens: Tensor

    @property
    def hop_count(self) -> int:
        return int(self.hops[-1]) + 1 if len(self.hops) else 0


@dataclass(frozen=True)
class HopCollator:
    """Makes batches of hops.

    Args:
        teaching: Makes the targets and paths of hops.
        start_token: First token of the decoder; None for a causal model.
        full: Take the loss over the vocabulary, along whole paths.
        together: The hops of an example are a chain; else all hops are alone.
        decay: See :func:`grls.train.generator.decisions.walk_paths`.
        prior: The prior beside which the model learns, if any.
        proposals: Draws the passages to rescore; None: no rescoring.
        candidates: The candidates that the model learns to order, if any.
    """

    pad_token: int
    index: ConstraintIndex
    teaching: Teaching
    start_token: int | None = None
    full: bool = False
    together: bool = True
    decay: float = 1.0
    prior: OpenPriors | None = None
    proposals: Proposals | None = None
    candidates: RunCandidates | None = None

    def __call__(self, examples: Sequence[Hops]) -> Batch:
        hops = [hop for example in examples for hop in example]
        targets, paths = self.teaching(hops)
        taught, ranked = len(paths), None
        if self.candidates is not None:
            ranked = self.candidates(hops)
            paths += ranked.paths
        rows = [self.index.tokens(path.passage)[hops[path.hop].front :].tolist() for path in paths]
        if self.full:
            written = [row[:-1] for row in rows]
        else:
            gains = None if self.prior is None else self.prior.gains(self.index, hops)
            walked = walk_paths(self.index, targets, paths, self.decay, gains)
            lengths = np.zeros(len(paths), dtype=np.int64)  # tokens of each path before its last decision
            np.maximum.at(lengths, walked.paths, walked.depths)
            written = [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
        rescored = [] if self.proposals is None else self.proposals(examples)
        written += [list(passage.tokens) for passage in rescored]
        owners = [*(path.hop for path in paths), *(passage.hop for passage in rescored)]
        read: Any
        states: Sequence[Sequence[int]]
        if not self.together:
            read, states = pairs([hops[n].source for n in owners], written, self.pad_token, self.start_token)
        elif self.start_token is None:
            read, states = trees(examples, owners, written)
        else:
            sources = [hop.source for hop in hops]
            read, states = group(sources, owners, written, self.pad_token, self.start_token)
        labels = decisions = None
        if self.full:
            weights = np.repeat([path.weight for path in paths], [len(row) for row in rows])
            predicts = [n for row, tokens in zip(states, rows, strict=False) for n in row[: len(tokens)]]
            labels = Labels(
                tensor(predicts), tensor([t for row in rows for t in row]), torch.from_numpy(weights).float()
            )
            divisor = float(weights.sum())
            takers = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
            taken = np.arange(len(takers))
        else:
            places = zip(walked.paths.tolist(), walked.depths.tolist(), strict=True)
            decisions = DecisionTensors(
                tensor([states[path][depth] for path, depth in places], dtype=torch.long),
                torch.from_numpy(walked.weights).float(),
                torch.from_numpy(walked.owners),
                torch.from_numpy(walked.tokens.astype(np.int64)),
                torch.from_numpy(walked.probabilities).float(),
                torch.from_numpy(walked.gains).float(),
            )
            divisor = len(hops) if self.together else float(walked.weights.sum())
            taken, takers = walked.taken, walked.takers
        batch = Batch(read, labels, decisions, len(hops), divisor)
        if ranked is not None:
            of_candidates = takers >= taught
            batch = batch._replace(
                ranked=ranked.tensors(taken[of_candidates], takers[of_candidates] - taught)
            )
        if self.proposals is None:
            return batch
        last = [path[len(p.tokens)] for path, p in zip(states[len(paths) :], rescored, strict=True)]
        return batch._replace(rescored=as_tensors(rescored, last, self.proposals.readout))


def as_tensors(passages: Sequence[Read], states: Sequence[int], tokens: tuple[int, int]) -> Rescored:
    """The passages as tensors; those of a hop stand side by side.

    ``states [n]`` are indexes of the model's states behind them, ``tokens`` those of
    :func:`grls.models.head.readout`.
    """
    owners = np.array([passage.hop for passage in passages], dtype=np.int64)
    _, hops = np.unique(owners, return_inverse=True)
    return Rescored(
        torch.tensor(states, dtype=torch.long),
        torch.from_numpy(hops),
        torch.tensor([passage.right for passage in passages], dtype=torch.bool),
        torch.tensor(tokens),
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


def trees(
    examples: Sequence[Hops], owners: Sequence[int], written: Sequence[Sequence[int]]
) -> tuple[TreeBatch, list[list[int]]]:
    """A tree of each chain, with what is ``written`` after the hops ``owners``; see :func:`group`."""
    chains = [n for n, example in enumerate(examples) for _ in example]  # of each hop
    grown = [TokenTree() for _ in examples]
    hops = [hop for example in examples for hop in example]
    ends = [grown[n].insert(hop.source)[-1] for n, hop in zip(chains, hops, strict=True)]
    nodes = [
        [ends[hop], *grown[chains[hop]].insert(tokens, ends[hop])]
        for hop, tokens in zip(owners, written, strict=True)
    ]
    first = np.cumsum([0, *map(len, grown)]).tolist()
    states = [[first[chains[hop]] + node for node in path] for hop, path in zip(owners, nodes, strict=True)]
    return stack(grown), states


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
    owners: Sequence[int],
    written: Sequence[Sequence[int]],
    pad_token: int,
    start_token: int,
) -> tuple[HopBatch, list[list[int]]]:
    """Group inputs of similar length, and the paths of a group into stretches of similar length.

    Most paths end after a few tokens, where a passage is unique, but a few are long. ``owners`` are the hops
    of the paths, ``written`` the tokens of each path. Returns the batch, and for each path the numbers of
    its states, before and after each token.
    """
    inputs = sorted({tuple(source) for source in sources}, key=lambda source: (len(source), source))
    number = {source: n for n, source in enumerate(inputs)}
    owner = [number[tuple(sources[hop])] for hop in owners]
    states: list[list[int]] = [[] for _ in owners]
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
