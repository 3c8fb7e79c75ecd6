"""The LightningModule of chains: all hops of a query at once, with distributions as targets.

Legend: b chains, t nodes of the largest tree, N nodes of all trees, D decisions, A allowed tokens of all
of them together, U distinct allowed tokens, d model width, n passages of all rescored hops together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.modeling_outputs import BaseModelOutput

from grls.errors import ConfigError, Option, at_least, out_of_memory
from grls.models.base import check_positions
from grls.models.causal.slots import refuse_windows
from grls.models.head import Head
from grls.models.load.build import GeneratorSpec
from grls.models.load.kinds import is_causal
from grls.models.sessions.memory import SHORT, agree, attending, configs_of, may_attend_plainly
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
        rescore_weight: float = 1.0,
        freeze_layers: int = 0,
        freeze_embeddings: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(generator, optimizer=optimizer, loss=loss, **kwargs)
        self.rescore_weight = rescore_weight
        self.freeze_layers = freeze_layers
        if freeze_embeddings or (freeze_embeddings is None and is_causal(self.model)):
            self.model.get_input_embeddings().requires_grad_(False)

    def setup(self, stage: str) -> None:
        super().setup(stage)
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
        batch = TreeBatch(*(part.to(device) for part in stack([tree])))
        self.model.eval()
        try:
            paths = torch.tensor([[3, 4, 5, 6], [3, 5, 4, 3]], device=device)
            expected = self.model(input_ids=paths, use_cache=False).logits[:, -1].float()
            for short in (0, SHORT):  # both kinds of attention that training may use
                states = self._read_trees(batch, short)[[trunk[-1], branch[-1]]]
                if not agree(self._head.all(states), expected, states.dtype):
                    return False
            return True
        finally:
            self.model.train(training)

    def batch_loss(self, batch: Any) -> Tensor:
        inputs: TreeBatch | HopBatch = batch.read
        states = self._read_trees(inputs) if isinstance(inputs, TreeBatch) else self._read_hops(inputs)
        scores = taken_scores(self._head, states[batch.decisions.states], batch.decisions)
        chosen = batch.decisions
        # The cross-entropies of target and model, weighed and summed over the decisions.
        loss = -(scores * chosen.probabilities * chosen.weights[chosen.owners]).sum()
        loss = weighed(loss / len(batch.labels), len(batch.labels))
        rescored: Rescored | None = batch.rescored_passages
        if rescored is not None:
            logits = self._head.some(states[rescored.states], rescored.tokens)
            odds = logits[:, 0] - logits[:, 1]
            loss = loss + self.rescore_weight * weighed(rescore_loss(odds, rescored), rescored.hop_count)
        return loss

    def _read_trees(self, trees: TreeBatch, short: int = SHORT) -> Tensor:
        """Inputs of the head at every node, ``[N, d]``; for ``short`` see :func:`tree_attention`."""
        check_positions(self.model, int(trees.position_ids.max()) + 1, 0)
        if may_attend_plainly(self.model):
            tokens, positions = trees.input_ids[None], trees.position_ids[None]
            with tree_attention(self.model, trees, short), self._head.catch() as caught:
                self.model(input_ids=tokens, position_ids=positions, use_cache=False)
            return caught[0][0]
        with self._head.catch() as caught:
            self.model(
                input_ids=trees.padded(trees.input_ids),
                position_ids=trees.padded(trees.position_ids),
                attention_mask=trees.bias(self.model.dtype),
                use_cache=False,
            )
        return caught[0].flatten(0, 1)[trees.places]

    def _read_hops(self, hops: HopBatch) -> Tensor:
        """Inputs of the head at every token of every path, in order, ``[tokens, d]``."""
        states: list[Tensor] = []
        idle: list[Tensor] = []
        counts = [len(inputs.stretches) for inputs in hops]
        for number, count in enumerate(largest(counts) if self._whole else counts):
            inputs = hops[min(number, len(counts) - 1)]
            encoder, ids, mask = self.model.get_encoder(), inputs.input_ids, inputs.attention_mask
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

    With a prior, it is that under the product of model and prior. ``hidden [D, d]`` are inputs of the
    head. One matrix product gives the logits of all U tokens that any decision allows.
    """
    if not len(hidden):
        return hidden.sum(-1)
    union, columns = decisions.tokens.unique(return_inverse=True)
    logits = head.some(hidden, union)
    gains = torch.full_like(logits, float("-inf"))
    gains[decisions.owners, columns] = decisions.gains.to(logits.dtype)
    scores = (logits + gains).log_softmax(-1)
    return scores[decisions.owners, columns]


def rescore_loss(odds: Tensor, rescored: Rescored) -> Tensor:
    """Mean over hops of a listwise loss, a scalar; 0 where nothing was rescored.

    As in rerankers that learn from a retriever's mistakes (localized contrastive estimation, Gao et al.
    2021, arXiv 2101.08751), with the log-odds a(x) of :mod:`grls.models.head` (``odds [n]``) and the
    right passages G of a hop,

        loss  =  - mean over x in G of log [ exp a(x) / sum over all y of exp a(y) ].

    Where chains learn to end, DONE is one of the passages, and right when no other passage is left.
    """
    if not len(odds):
        return odds.sum()
    hops, width = rescored.hop_count, int(rescored.within.max()) + 1
    table = odds.new_full((hops, width), float("-inf"))
    table[rescored.hops, rescored.within] = odds
    logs = table.log_softmax(-1)[rescored.hops, rescored.within]
    count = odds.new_zeros(hops).index_add(0, rescored.hops, rescored.right.to(odds.dtype))
    return -(logs * rescored.right / count[rescored.hops]).sum() / hops


_TREES = "grls_trees"


@contextmanager
def tree_attention(model: nn.Module, trees: TreeBatch, short: int = SHORT) -> Iterator[None]:
    """A context in which a model reads trees one after the other, ``[1, N]``, and attends within each.

    So no layer computes padding. Trees of at most ``short`` nodes attend by plain matrix products, which
    store a number per head for each pair of nodes, longer ones by the kernel of torch.
    """
    configs = configs_of(model)
    biases = trees.bias(torch.float32)[:, 0]
    within = [
        (slice(end - size, end), biases[row, :size, :size], size <= short)
        for row, (size, end) in enumerate(
            zip(trees.sizes.tolist(), trees.sizes.cumsum(0).tolist(), strict=True)
        )
    ]
    try:
        for config in configs:
            setattr(config, _TREES, within)
        with attending(configs, _TREES):
            yield
    finally:
        for config in configs:
            delattr(config, _TREES)


def _attend_in_trees(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """The attention function, ``query [1, H, N, c]`` and key ``[1, h, N, c]`` to ``[1, N, H, c]``."""
    dropout, scale = options.get("dropout") or 0.0, options.get("scaling")
    heads, groups, width = query.shape[1], key.shape[1], query.shape[3]
    outputs = []
    for nodes, bias, plain in getattr(module.config, _TREES):
        rows, keys, values = query[0, :, nodes], key[0, :, nodes], value[0, :, nodes]
        if plain:
            rows = rows.reshape(groups, -1, width)  # [h, H / h * n, c]
            scores = rows @ keys.transpose(1, 2) * (width**-0.5 if scale is None else scale)
            weights = (scores.unflatten(1, (-1, len(bias))).float() + bias).softmax(-1).to(query.dtype)
            weights = functional.dropout(weights, dropout, module.training)
            attended = (weights.flatten(1, 2) @ values).view(heads, -1, width)
        else:
            attended = functional.scaled_dot_product_attention(
                rows[None], keys[None], values[None], attn_mask=bias.to(query.dtype), dropout_p=dropout,
                scale=scale, enable_gqa=groups < heads,
            )[0]  # fmt: skip
        outputs.append(attended.transpose(0, 1))
    return torch.cat(outputs)[None], None


AttentionInterface.register(_TREES, _attend_in_trees)
