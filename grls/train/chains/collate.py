"""From chains of hops to tensors with decisions, for causal and for sequence-to-sequence models.

Legend: b chains, t nodes of the largest tree, D decisions, A allowed tokens of all of them together, T
tokens taken.

For a causal model a chain is a tree of tokens: its hops share what they have in common, and so do the
passages that are scored behind a hop. For a sequence-to-sequence model each hop is an input of its own
(:mod:`grls.train.chains.hop_batches`). A passage is fed as far as its last decision (in a tree: unless
it is evidence of the next hop), or to its end where it is rescored (:mod:`grls.train.chains.loss`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from grls.index import ConstraintIndex
from grls.train.chains.decisions import Decisions, Path, walk_paths
from grls.train.chains.examples import ChainExample, HopExample, Teaching
from grls.train.chains.hop_batches import HopBatch, group
from grls.train.chains.prior import TrainingPrior
from grls.train.chains.proposals import Proposals, Read
from grls.train.chains.token_trees import TokenTree, TreeBatch, stack


class DecisionTensors(NamedTuple):
    """Decisions as tensors.

    Attributes:
        places: ``[D]`` where the model's state at each is found, in the flattened ``[b * t]`` or among those
            of a :class:`~grls.train.chains.hop_batches.HopBatch`.
        weights: ``[D]``.
        owners: ``[A]`` ascending.
        tokens: ``[A]``.
        probabilities: ``[A]``.
        takers: ``[T]`` the path that took a token.
        taken: ``[T]`` which of the A.
        right: ``[n]`` the path of the right passage of each pair that is to be told apart.
        wrong: ``[n]`` that of the wrong one.
        paths: How many there are.
        gains: ``[A]`` what a prior adds to each score (nats).
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
    gains: Tensor


class Rescored(NamedTuple):
    """Passages read, as tensors.

    Attributes:
        places: ``[n]`` where the model's state behind each is found.
        hops: ``[n]`` the rescored hop of each, 0 to h - 1, ascending.
        within: ``[n]`` which passage of that hop it is.
        right: ``[n]`` whether it is right.
        tokens: ``[2]`` those whose logits are compared.
    """

    places: Tensor
    hops: Tensor
    within: Tensor
    right: Tensor
    tokens: Tensor


class ChainBatch(NamedTuple):
    """A batch of chains.

    Attributes:
        read: The tokens.
        decisions: What is trained.
        labels: One number a hop, whose loss the mean is taken over.
        rescored: What is read to its end; None: nothing.
    """

    read: TreeBatch | HopBatch
    decisions: DecisionTensors
    labels: Tensor
    rescored_passages: Rescored | None = None


class ChainCollator:
    """Makes batches of chains.

    Args:
        pad_token: Padding.
        index: The constraint index.
        teaching: Gives the hops of some chains their targets and paths.
        decay: See :func:`grls.train.chains.decisions.walk_paths`.
        start_token: What the decoder begins with; None for a causal model.
        prior: What the model learns beside.
        proposals: Draws what it rescores; None: nothing.
    """

    def __init__(
        self,
        pad_token: int,
        index: ConstraintIndex,
        teaching: Teaching,
        decay: float = 1.0,
        start_token: int | None = None,
        prior: TrainingPrior | None = None,
        proposals: Proposals | None = None,
    ):
        self.pad_token = pad_token
        self.index = index
        self.teaching = teaching
        self.decay = decay
        self.start_token = start_token
        self.prior = prior
        self.proposals = proposals

    def __call__(self, examples: Sequence[ChainExample]) -> ChainBatch:
        """Make one batch."""
        hops = [hop for example in examples for hop in example.hops]
        targets, paths = self.teaching(hops)
        gains = None if self.prior is None else self.prior.open(self.index, hops).gains
        found = walk_paths(self.index, targets, paths, self.decay, gains)
        rescored_passages = [] if self.proposals is None else self.proposals(examples)
        behind = [*(path.hop for path in paths), *(some.hop for some in rescored_passages)]
        written = [*self._written(found, paths), *(list(some.tokens) for some in rescored_passages)]
        read: TreeBatch | HopBatch
        if self.start_token is None:
            owner = np.repeat(np.arange(len(examples)), [len(example.hops) for example in examples])
            read, nodes = self._trees(hops, owner, behind, written)
        else:
            sources = [hop.source for hop in hops]
            read, nodes = group(sources, behind, written, self.pad_token, self.start_token)
        places = [
            nodes[p][place] for p, place in zip(found.paths.tolist(), found.places.tolist(), strict=True)
        ]
        batch = ChainBatch(read, decision_tensors(found, places, paths), torch.zeros(len(hops)))
        if self.proposals is None:
            return batch
        ends = [
            own[len(some.tokens)] for own, some in zip(nodes[len(paths) :], rescored_passages, strict=True)
        ]
        return batch._replace(rescored_passages=as_tensors(rescored_passages, ends, self.proposals.readout))

    def _written(self, found: Decisions, paths: Sequence[Path]) -> list[list[int]]:
        """Tokens of each path before the last decision that is read off it."""
        lengths = np.zeros(len(paths), dtype=np.int64)
        np.maximum.at(lengths, found.paths, found.places)
        return [
            self.index.tokens(path.passage)[:length].tolist()
            for path, length in zip(paths, lengths.tolist(), strict=True)
        ]

    def _trees(
        self,
        hops: Sequence[HopExample],
        owner: np.ndarray,
        behind: Sequence[int],
        written: Sequence[list[int]],
    ) -> tuple[TreeBatch, list[list[int]]]:
        """A tree a chain, and where what is written behind hops stands in it, the end of its hop first."""
        trees = [TokenTree() for _ in range(int(owner[-1]) + 1)]
        ends = [trees[n].insert(hop.source)[-1] for n, hop in zip(owner.tolist(), hops, strict=True)]
        nodes = [
            [ends[hop], *trees[owner[hop]].insert(tokens, ends[hop])]
            for hop, tokens in zip(behind, written, strict=True)
        ]
        batch = stack(trees, self.pad_token)
        width = batch.input_ids.shape[1]
        places = [
            [int(owner[hop]) * width + node for node in own] for hop, own in zip(behind, nodes, strict=True)
        ]
        return batch, places


def as_tensors(read: Sequence[Read], places: Sequence[int], tokens: tuple[int, int]) -> Rescored:
    """The passages as tensors.

    Args:
        read: The passages, those of a hop side by side.
        places: ``[n]`` where the model's state behind each is found.
        tokens: See :func:`grls.models.rescore_spec.readout`.
    """
    owners = np.array([one.hop for one in read], dtype=np.int64)
    _, first, hops = np.unique(owners, return_index=True, return_inverse=True)
    within = np.arange(len(owners)) - first[hops] if len(owners) else owners
    return Rescored(
        torch.tensor(places, dtype=torch.long),
        torch.from_numpy(hops),
        torch.from_numpy(within),
        torch.tensor([one.right for one in read], dtype=torch.bool),
        torch.tensor(tokens),
    )


def decision_tensors(found: Decisions, places: Sequence[int], paths: Sequence[Path]) -> DecisionTensors:
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
    return DecisionTensors(
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
        torch.from_numpy(found.gains).float(),
    )
