"""The LightningModule of chains: all hops of a query at once, with distributions as targets.

Legend: b chains, t nodes of a tree, D decisions, A allowed tokens of all of them together, U distinct allowed
tokens, d model width, n passages of all rescored hops together.

The module holds no index: allowed tokens and targets come with the batch.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from grls.errors import ConfigError, Option, at_least, out_of_memory
from grls.models.causal.slots import refuse_windows
from grls.models.head import Head
from grls.models.load.build import GeneratorSpec
from grls.models.load.kinds import is_causal
from grls.models.seq2seq.slots import check_positions
from grls.models.sessions.memory import SHORT, agree, plain_attention
from grls.train.chains.collate import (
    DecisionTensors,
    HopBatch,
    Rescored,
    TokenTree,
    TreeBatch,
    stack,
)
from grls.train.core.module import GeneratorModule, Loss
from grls.train.core.processes import largest, weighed


class RetrieveChains(GeneratorModule):
    """Query and evidence -> next passage, for sequence-to-sequence and for causal language models.

    The loss of a hop is the cross-entropy of its target (:mod:`grls.train.chains.decisions`) and the model's
    ``renormalized`` distribution over passages; the mean is over hops. A causal model reads all hops of a
    query in one pass (:mod:`grls.train.chains.collate`).

    Args:
        generator: The model to start from.
        optimizer: ``adamw``, or ``adafactor`` with a fixed learning rate.
        loss: Always ``allowed``: cross-entropy over the tokens that the constraint index allows.
        margin: Margin loss (nats): by how much the log-probability of the right passage should exceed that of
            a hard negative (options ``--mine``). 0: no margin loss.
        margin_weight: Weight of the margin loss.
        rescore_weight: Weight of the loss of rescoring (``--data.rescore``).
        freeze_layers: Number of first layers of a causal model that are not trained, with their adapters.
            Together with frozen embeddings it saves time and memory: these layers need no backward pass.
        freeze_embeddings: Do not train the word embeddings and an output head that is tied to them; null:
            frozen in causal models, whose vocabulary is large.
        kwargs: The options of :class:`grls.train.core.module.GeneratorModule`.
    """

    stage = "retrieve"

    def __init__(
        self,
        generator: GeneratorSpec,
        optimizer: Literal["adafactor", "adamw"] = "adamw",
        loss: Loss = "allowed",
        margin: float = 0.0,
        margin_weight: float = 1.0,
        rescore_weight: float = 1.0,
        freeze_layers: int = 0,
        freeze_embeddings: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(generator, optimizer=optimizer, loss=loss, **kwargs)
        self.margin = margin
        self.margin_weight = margin_weight
        self.rescore_weight = rescore_weight
        self.freeze_layers = freeze_layers
        if freeze_embeddings or (freeze_embeddings is None and is_causal(self.model)):
            self.model.get_input_embeddings().requires_grad_(False)

    def setup(self, stage: str) -> None:
        """Refuse options that cannot work (in the constructor, jsonargparse would hide the error).

        Raises:
            ConfigError: The model has no linear head, the loss is not ``allowed``, or the encoder's states
                cannot be cached.
        """
        super().setup(stage)
        if not self._head.linear:
            raise ConfigError(
                f"{type(self.model).__name__} has no linear head, or changes its logits behind the head; "
                f"train it with grls.train.stages.module.Retrieve {Option('model.loss', 'full')}."
            )
        if self.loss != "allowed":
            raise ConfigError(
                f"chains are trained with {Option('model.loss', 'allowed')}; the loss over the whole "
                f"vocabulary is that of {Option('model')} grls.train.stages.module.Retrieve, for "
                "sequence-to-sequence models."
            )
        at_least(0, "model.", rescore_weight=self.rescore_weight)
        name = type(self.model).__name__
        if self.freeze_layers:
            decoder = self.model.get_decoder() if is_causal(self.model) else None
            layers = getattr(decoder, "layers", getattr(decoder, "h", None))
            if layers is None or not 0 < self.freeze_layers < len(layers):
                there = "no list of layers" if layers is None else f"{len(layers)} layers"
                raise ConfigError(
                    f"freeze_layers must be from 0 to less than the layers of a causal model; got "
                    f"{self.freeze_layers}, and {name} has {there}."
                )
            for layer in layers[: self.freeze_layers]:
                layer.requires_grad_(False)
        if is_causal(self.model):
            refuse_windows(self.model)
            try:
                sees = self._sees_trees()
            except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
                if out_of_memory(error):
                    raise
                raise ConfigError(f"{name} cannot be trained on trees of tokens: {error}.") from error
            if not sees:
                raise ConfigError(
                    f"{name} computes other logits on trees of tokens than on sequences (it takes no mask or "
                    "positions from outside, or changes its logits behind the head), so it cannot be trained "
                    "on chains: take another model."
                )

    @torch.no_grad()
    def _sees_trees(self) -> bool:
        """Whether the model computes the same for a node of a tree as for its path alone."""
        tree, training = TokenTree(), self.model.training
        trunk = tree.insert([3, 4, 5, 6])
        branch = tree.insert([5, 4, 3], trunk[0])
        device = next(self.model.parameters()).device
        batch = TreeBatch(*(part.to(device) for part in stack([tree], 0)))
        self.model.eval()
        try:
            paths = torch.tensor([[3, 4, 5, 6], [3, 5, 4, 3]], device=device)
            expected = self.model(input_ids=paths, use_cache=False).logits[:, -1].float()
            for longest in (0, SHORT + 1):  # both kinds of attention that training may use
                states = self._read_trees(batch, longest)[[trunk[-1], branch[-1]]]
                if not agree(self._head.all(states), expected, states.dtype):
                    return False
            return True
        finally:
            self.model.train(training)

    def batch_loss(self, batch: Any) -> Tensor:
        """The loss of a batch of chains, a scalar in float32; among several processes :func:`weighed`.

        Raises:
            ConfigError: The model has fewer positions than the longest input or path.
        """
        inputs: TreeBatch | HopBatch = batch.read
        states = self._read_trees(inputs) if isinstance(inputs, TreeBatch) else self._read_hops(inputs)
        scores = taken_scores(self._head, states[batch.decisions.states], batch.decisions)
        chosen = batch.decisions
        # The cross-entropies of target and model, weighed and summed over the decisions.
        loss = -(scores * chosen.probabilities * chosen.weights[chosen.owners]).sum()
        if self.margin:
            loss = loss + self.margin_weight * margin_loss(scores, batch.decisions, self.margin)
        loss = weighed(loss / len(batch.labels), len(batch.labels))
        rescored: Rescored | None = batch.rescored_passages
        if rescored is not None:
            logits = self._head.some(states[rescored.states], rescored.tokens)
            odds = logits[:, 0] - logits[:, 1]
            loss = loss + self.rescore_weight * weighed(rescore_loss(odds, rescored), rescored.hop_count)
        return loss

    def _read_trees(self, trees: TreeBatch, longest: int | None = None) -> Tensor:
        """Inputs of the head at every node, ``[b * t, d]``; ``longest`` chooses the attention, None: t."""
        length = trees.input_ids.shape[1] if longest is None else longest
        check_positions(self.model, int(trees.position_ids.max()) + 1, 0)
        with plain_attention(self.model, length), self._head.catch() as caught:
            self.model(
                input_ids=trees.input_ids,
                position_ids=trees.position_ids,
                attention_mask=trees.bias(self.model.dtype),
                use_cache=False,
            )
        return caught[0].flatten(0, 1)

    def _read_hops(self, hops: HopBatch) -> Tensor:
        """Inputs of the head at every token of every path, in order, ``[tokens, d]``."""
        states: list[Tensor] = []
        idle: list[Tensor] = []
        counts = [len(inputs.stretches) for inputs in hops]
        for number, count in enumerate(largest(counts) if self._whole else counts):
            inputs = hops[min(number, len(counts) - 1)]
            encoder, ids, mask = self.model.get_encoder(), inputs.input_ids, inputs.attention_mask
            if self._cache is not None:
                encoded = self._cache(encoder, ids, mask)
            else:
                encoded = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            last = len(inputs.stretches) - 1
            for n in range(count):
                owners, tokens = inputs.stretches[min(n, last)]
                check_positions(self.model, ids.shape[1], tokens.shape[1])
                with self._head.catch() as caught:
                    self.model(
                        encoder_outputs=BaseModelOutput(last_hidden_state=encoded[owners]),
                        attention_mask=mask[owners],
                        decoder_input_ids=tokens,
                        use_cache=False,
                    )
                extra = number >= len(counts) or n > last
                (idle if extra else states).append(caught[0].flatten(0, 1))
        read = torch.cat(states)
        # Shards are gathered layer by layer, so all processes must read as often: what is read for the sake
        # of another process has no effect, but a backward pass.
        return read + torch.cat(idle).sum() * 0 if idle else read


def taken_scores(head: Head, hidden: Tensor, decisions: DecisionTensors) -> Tensor:
    """``[A]`` log-probability of each allowed token among the allowed tokens of its decision.

    With a prior, it is the log-probability under the product of model and prior. One matrix product gives the
    logits of all U tokens that any decision allows.

    Args:
        head: The model's output head.
        hidden: ``[D, d]`` inputs of the head.
        decisions: The decisions with their allowed tokens.
    """
    if not len(hidden):
        return hidden.sum(-1)
    union, columns = decisions.tokens.unique(return_inverse=True)
    logits = head.some(hidden, union)
    gains = torch.full_like(logits, float("-inf"))
    gains[decisions.owners, columns] = decisions.gains.to(logits.dtype)
    scores = (logits + gains).log_softmax(-1)
    return scores[decisions.owners, columns]


def margin_loss(scores: Tensor, decisions: DecisionTensors, margin: float) -> Tensor:
    """Sum over pairs of right and wrong passage of ``max(0, margin - log P(right) + log P(wrong))``.

    The margin-based loss of learning to rank in generative retrieval (LTRGR, arXiv 2306.15222), with the
    ``renormalized`` log-probability as the score.

    Args:
        scores: ``[A]`` log-probability of each allowed token.
        decisions: The pairs, and the tokens that each path took.
        margin: The margin in nats.
    """
    passages = scores.new_zeros(decisions.paths).index_add(0, decisions.takers, scores[decisions.taken])
    gap: Tensor = passages[decisions.right] - passages[decisions.wrong]
    return (margin - gap).clamp(min=0).sum()


def rescore_loss(odds: Tensor, rescored: Rescored) -> Tensor:
    """Mean over hops of a listwise loss, a scalar; 0 where nothing was rescored.

    As in rerankers that learn from a retriever's mistakes (localized contrastive estimation, Gao et al. 2021,
    arXiv 2101.08751), with the log-odds a(x) of :mod:`grls.models.head` and the right passages G of a hop,

        loss  =  - mean over x in G of log [ exp a(x) / sum over all y of exp a(y) ].

    Where chains learn to end, DONE is one of the passages, and right when no other passage is left.

    Args:
        odds: ``[n]`` log-odds of the passages.
        rescored: The passages.
    """
    if not len(odds):
        return odds.sum()
    hops, width = rescored.hop_count, int(rescored.within.max()) + 1
    table = odds.new_full((hops, width), float("-inf"))
    table[rescored.hops, rescored.within] = odds
    logs = table.log_softmax(-1)[rescored.hops, rescored.within]
    count = odds.new_zeros(hops).index_add(0, rescored.hops, rescored.right.to(odds.dtype))
    return -(logs * rescored.right / count[rescored.hops]).sum() / hops
