"""From chains of hops to trees of tokens with decisions, for causal language models.

Legend: b chains, t nodes of the largest tree, D decisions, A allowed tokens of all of them together.

A chain's hops share what they have in common, and so do the passages that are scored behind a hop. A passage
goes into the tree as far as its last decision, unless it is evidence of the next hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.index import ConstraintIndex
from grls.train.chains import ChainExample, Teaching
from grls.train.decisions import Decisions, Path, decide
from grls.train.token_trees import TokenTree, TreeBatch, stack


class Weighed(NamedTuple):
    """Decisions as tensors.

    Attributes:
        places: ``[D]`` node of each in the flattened ``[b * t]``.
        weights: ``[D]``.
        owners: ``[A]`` ascending.
        tokens: ``[A]``.
        probabilities: ``[A]``.
        takers: ``[T]`` the path that took a token.
        taken: ``[T]`` which of the A.
        right: ``[n]`` the path of the right passage of each pair that is to be told apart.
        wrong: ``[n]`` that of the wrong one.
        paths: How many there are.
    """

    places: Tensor
    weights: Tensor
    owners: Tensor
    tokens: Tensor
    probabilities: Tensor
    takers: Tensor
    taken: Tensor
    right: Tensor
    wrong: Tensor
    paths: int


class CausalBatch(NamedTuple):
    """A batch of chains.

    Attributes:
        trees: The tokens.
        decisions: What is trained.
        labels: ``[hops]`` one number a hop of the batch, whose loss the mean is taken over.
    """

    trees: TreeBatch
    decisions: Weighed
    labels: Tensor


class CausalCollator:
    """Makes trees of chains.

    Args:
        pad_token: Padding.
        index: The constraint index.
        teaching: Gives the hops of some chains their targets and paths.
        decay: See :func:`grls.train.decisions.decide`.
    """

    def __init__(self, pad_token: int, index: ConstraintIndex, teaching: Teaching, decay: float = 1.0):
        self.pad_token = pad_token
        self.index = index
        self.teaching = teaching
        self.decay = decay

    def __call__(self, examples: Sequence[ChainExample]) -> CausalBatch:
        """Make one batch."""
        hops = [hop for example in examples for hop in example.hops]
        targets, paths = self.teaching(hops)
        found = decide(self.index, targets, paths, self.decay)
        lengths = _last_places(found, len(paths))
        owner = np.repeat(np.arange(len(examples)), [len(example.hops) for example in examples])
        trees = [TokenTree() for _ in examples]
        ends = [trees[n].insert(hop.source)[-1] for n, hop in zip(owner.tolist(), hops, strict=True)]
        nodes = [
            [ends[path.hop], *self._walk(trees[owner[path.hop]], ends[path.hop], path, length)]
            for path, length in zip(paths, lengths, strict=True)
        ]
        batch = stack(trees, self.pad_token)
        width = batch.input_ids.shape[1]
        places = [
            owner[paths[p].hop] * width + nodes[p][place]
            for p, place in zip(found.paths.tolist(), found.places.tolist(), strict=True)
        ]
        decisions = weigh(found, places, paths)
        return CausalBatch(batch, decisions, torch.zeros(len(hops)))

    def _walk(self, tree: TokenTree, node: int, path: Path, length: int) -> list[int]:
        """Nodes of the first tokens of a passage behind a hop."""
        return tree.insert(self.index.tokens(path.passage)[:length].tolist(), node)


def weigh(found: Decisions, places: Sequence[int], paths: Sequence[Path]) -> Weighed:
    """Decisions as tensors, with the pairs of right and wrong passages of each hop.

    Args:
        found: The decisions.
        places: ``[D]`` where the model's state at each is found.
        paths: The paths; the first of a hop is the right one of its pairs.
    """
    first: dict[int, int] = {}
    for n, path in enumerate(paths):
        first.setdefault(path.hop, n)
    wrong = [n for n, path in enumerate(paths) if path.negative]
    return Weighed(
        torch.tensor(places, dtype=torch.long),
        torch.from_numpy(found.weights).float(),
        torch.from_numpy(found.owners),
        torch.from_numpy(found.tokens.astype(np.int64)),
        torch.from_numpy(found.probabilities).float(),
        torch.from_numpy(found.takers),
        torch.from_numpy(found.taken),
        torch.tensor([first[paths[n].hop] for n in wrong], dtype=torch.long),
        torch.tensor(wrong, dtype=torch.long),
        len(paths),
    )


def _last_places(found: Decisions, paths: int) -> list[int]:
    """How many tokens of each path stand before the last decision that is read off it."""
    lengths = np.zeros(paths, dtype=np.int64)
    np.maximum.at(lengths, found.paths, found.places)
    return lengths.tolist()
