"""The LightningModules of a generator: memorise and retrieve, with the defaults of the paper, and chains.

Legend: b chains, t nodes of the largest tree, N nodes of all trees, d model width, n passages of all
rescored hops together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.modeling_outputs import BaseModelOutput

from grls.errors import ConfigError, out_of_memory
from grls.models.base import check_positions, is_causal
from grls.models.causal.slots import refuse_windows
from grls.models.sessions.memory import SHORT, agree, attending, configs_of, may_attend_plainly
from grls.train.core.module import Batch, GeneratorModule, Pairs
from grls.train.core.processes import largest, mean_over_processes
from grls.train.generator.collate import HopBatch, Rescored, TokenTree, TreeBatch, stack
from grls.train.generator.loss import REFERRED, Ranked, listwise_loss, ranking_loss
from grls.train.options import Ranking, RetrieveModelOptions


class Retrieve(GeneratorModule):
    """Query and evidence -> next passage, for sequence-to-sequence and for causal language models.

    The loss of a hop is the cross-entropy of its target (:mod:`grls.train.generator.decisions`) and the
    model's ``renormalized`` distribution over passages, or with loss ``full``, that of its tokens and the
    vocabulary. With ``together``, all hops of a query are an example, a causal model reads them in one pass,
    and the mean is over hops; else each hop is one, and the mean is over decisions.
    """

    def __init__(self, options: RetrieveModelOptions, together: bool = False, seed: int = 0):
        super().__init__(options, "retrieve", seed)
        self.together = together
        self._reference: Tensor | None = None
        """Scores of all candidates by the model before the first step."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        name = type(self.model).__name__
        if self.options.freeze_layers:
            decoder = self.model.get_decoder() if is_causal(self.model) else None
            layers = getattr(decoder, "layers", getattr(decoder, "h", None))
            if layers is None or not 0 < self.options.freeze_layers < len(layers):
                there = "no list of layers" if layers is None else f"{len(layers)} layers"
                raise ConfigError(
                    f"freeze_layers must be from 0 to less than the layers of a causal model; got "
                    f"{self.options.freeze_layers}, and {name} has {there}."
                )
            for layer in layers[: self.options.freeze_layers]:
                layer.requires_grad_(False)
        if self.together and is_causal(self.model):
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

    @torch.no_grad()
    def on_train_start(self) -> None:
        """Score the candidates once; a resumed run has the scores of its first beginning."""
        ranking: Ranking | None = self.options.ranking
        if ranking is None or ranking.loss not in REFERRED or self._reference is not None:
            return
        data: Any = self.trainer.datamodule  # type: ignore[attr-defined]
        reference = torch.zeros(data.collator.candidates.count)
        self.model.eval()
        for batch in data.candidate_batches():
            batch = self.trainer.strategy.batch_to_device(batch)
            with self.trainer.precision_plugin.train_step_context():
                scores = self.within(self._candidate_scores, batch)
            reference[batch.ranked.numbers.cpu()] = scores.cpu()
        self._reference = reference

    def _candidate_scores(self, batch: Batch) -> Tensor:
        scores: Tensor = batch.ranked.scores(self.token_scores(self.read(batch.read), batch))
        return scores

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        checkpoint["reference"] = self._reference

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._reference = checkpoint.get("reference")

    def batch_loss(self, batch: Batch) -> Tensor:
        states = self.read(batch.read)
        scores = self.token_scores(states, batch)
        loss = self.written_loss(scores, batch)
        ranked: Ranked | None = batch.ranked
        if ranked is not None:
            options, values = self.options.ranking, ranked.scores(scores)
            reference = (
                values.detach() if self._reference is None else self._reference.to(values)[ranked.numbers]
            )
            order = ranking_loss(options, values, reference, ranked)
            loss = options.cross_entropy * loss + mean_over_processes(order, ranked.hop_count)
        rescored: Rescored | None = batch.rescored
        if rescored is not None:
            logits = self._head.some(states[rescored.states], rescored.tokens)
            odds = logits[:, 0] - logits[:, 1]
            judged = listwise_loss(odds, rescored.hops, rescored.right)
            loss = loss + self.options.rescore_weight * mean_over_processes(judged, rescored.hop_count)
        return loss

    def read(self, inputs: Pairs | TreeBatch | HopBatch) -> Tensor:
        if isinstance(inputs, Pairs):
            return super().read(inputs)
        return self._read_trees(inputs) if isinstance(inputs, TreeBatch) else self._read_hops(inputs)

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
                written = self._head.read(
                    encoder_outputs=BaseModelOutput(last_hidden_state=encoded[owners]),
                    attention_mask=mask[owners],
                    decoder_input_ids=tokens,
                    use_cache=False,
                )
                extra = number >= len(counts) or n > last
                (idle if extra else states).append(written.flatten(0, 1))
        read = torch.cat(states)
        # Shards are gathered layer by layer, so all processes must read as often: what is read for the sake
        # of another process has no effect, but a backward pass.
        return read + torch.cat(idle).sum() * 0 if idle else read


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
