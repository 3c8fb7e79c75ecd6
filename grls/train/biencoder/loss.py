"""The loss of a bi-encoder: in-batch negatives without false negatives, and a teacher's scores.

Legend: B examples of a batch, b of them in this process (all, where there is one), n passages an example (the
right one, then hard negatives), C = B n passages of the batch (all right passages in the order of the
examples, then all first negatives, …), G largest number of gold texts of an example, d embedding dimension.

The passages of all processes are negatives of each example, so the loss is that of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from grls.models.sessions.memory import plain_attention
from grls.train.core.processes import gathered, mean_over_processes, processes
from grls.train.options import USUAL_FIT, BiEncoderOptions


def false_negatives(keys: Tensor, targets: Tensor, gold: Tensor) -> Tensor:
    """Mask of the passages that are no negatives of an example, ``[b, c]``.

    These are the gold passages of its query at any hop, copies of its right passage (DONE is the right
    passage of every last hop), and second copies of any other passage, so that each text counts once. The
    right passage itself is never masked.

    ``keys [c]``: numbers of the texts that examples are compared with. ``targets [b]``: the column of the
    right passage. ``gold [b, G]``: texts that are right for the query.
    """
    right = (gold[:, :, None] == keys).any(dim=1) | (keys[targets][:, None] == keys)
    copies = (keys[:, None] == keys).tril(diagonal=-1).any(dim=1)
    return (right | copies).scatter(1, targets[:, None], False)


class MaskedRankingLoss(MultipleNegativesRankingLoss):
    """The ranking loss of sentence-transformers, with false negatives left out of each softmax.

    For an example with query q, right passage p and the unmasked passages C of the batch, the loss is
    log(sum over c in C of exp(s q·c)) - s q·p, with the scale s; it is averaged over the examples, and
    over the leading dimensions of the embeddings where there are some (Matryoshka, Kusupati et al. 2022,
    arXiv 2205.13147).

    With the scores t of a teacher for the n passages of the example, a share w of the loss
    (``teacher_share``) is distilled: the divergence KL(softmax(t) || softmax(s q·p_1 .. s q·p_n)) over
    these passages alone, as in DistillKLDivLoss of sentence-transformers (Lin et al. 2020, arXiv
    2010.11386) at temperature 1.

    A row of ``labels`` holds the n keys of the example's passages, then its G gold keys
    (:func:`false_negatives`). ``similarity_fct``: ``[a, d]`` and ``[b, d]`` embeddings -> ``[a, b]``
    scores.
    """

    def __init__(
        self,
        model: Any,
        scale: float,
        similarity_fct: Callable[[Tensor, Tensor], Tensor],
        options: BiEncoderOptions = USUAL_FIT,
    ):
        super().__init__(model, scale=scale, similarity_fct=similarity_fct)
        self.options = options

    def forward(
        self, sentence_features: Iterable[dict[str, Any]], labels: Tensor, teacher: Tensor | None = None
    ) -> Tensor:
        """The loss of features: of b queries, then of b texts for each of the n passages.

        ``labels [b, n + G]``; ``teacher [b, n]``: scores of the passages, if there is a teacher.
        """
        embeddings = embed_in_groups(self.model, [*sentence_features], self.options)
        widths = self.options.matryoshka or (embeddings[0].shape[1],)
        losses = [
            self.compute_loss_from_embeddings([rows[:, :width] for rows in embeddings], labels, teacher)
            for width in widths
        ]
        return torch.stack(losses).mean()

    def compute_loss_from_embeddings(
        self, embeddings: list[Tensor], labels: Tensor, teacher: Tensor | None = None
    ) -> Tensor:
        """The loss, a scalar in float32; among several processes ``weighed``.

        ``embeddings``: ``[b, d]`` queries, then ``[b, d]`` for each of the n passages; else as
        :meth:`forward`.
        """
        queries, passages = embeddings[0], embeddings[1:]
        similarity: Any = self.similarity_fct
        batch_rows, first = gathered(torch.stack(passages, dim=1))
        keys, _ = gathered(labels[:, : len(passages)])
        scores = self.scale * similarity(queries.float(), batch_rows.transpose(0, 1).flatten(0, 1).float())
        targets = first + torch.arange(len(scores), device=scores.device)
        mask = false_negatives(keys.T.flatten(), targets, labels[:, len(passages) :])
        mean = F.cross_entropy(scores.masked_fill(mask, float("-inf")), targets)
        if teacher is not None:
            own = targets[:, None] + len(keys) * torch.arange(len(passages), device=scores.device)  # [b, n]
            student, share = scores.gather(1, own).log_softmax(1), self.options.teacher_share
            distilled = F.kl_div(student, teacher.softmax(1), reduction="batchmean")
            mean = (1 - share) * mean + share * distilled
        return mean_over_processes(mean, len(scores))


GROUP = 8
"""Texts of a group."""
KEPT_TOKENS = 3840
"""Padded tokens of a batch, of queries and passages, whose activations are kept on a CPU.

A layer of all-MiniLM-L6-v2 (width 384, 12 heads) with dropout and plain attention keeps for a token of a text
of L tokens 18 vectors of width 384 (the input; queries, keys and values; context; both inputs of layer norms
and the output of the first; two dropout masks; 4 + 4 around the activation) and 3 x 12 L attention weights
(after the softmax, their dropout mask, their product): 27,648 + 144 L bytes in float32. At L = 256 its six
layers keep 387 kB a token, so 3,840 tokens keep 1.49 GB.
"""


def embed_in_groups(
    model: nn.Module, columns: Sequence[Mapping[str, Any]], options: BiEncoderOptions = USUAL_FIT
) -> list[Tensor]:
    """The embeddings ``[b, d]`` of the texts of each column, in their order.

    A batch mixes lengths, and half of it is padding. So on a CPU texts of like length go together; the
    loss stays (with dropout: another draw).

    A group may be embedded again in the backward pass, with the same dropout, in place of keeping its
    activations (GradCache, Gao et al. 2021, arXiv 2101.06983). With ``mini_batch_size`` all groups are: a
    batch of any size needs the memory of one. Without it, the groups beyond ``KEPT_TOKENS`` are. The
    backward pass begins with the last group, so what is kept is free before the first groups need memory.

    Without ``mini_batch_size`` a column stays whole among several processes, where each pass may wait for
    that of the others; on a GPU, which one large pass keeps busy; and where a tokenizer pads on the left,
    since positions may be counted from there.
    """
    size = options.mini_batch_size
    divided = [_groups(features, size) for features in columns]
    tokens = sum(_padded_tokens(part) for parts, _ in divided for part in parts)
    limit = 0 if size else tokens
    on_cpu = next(model.parameters()).device.type == "cpu" and processes() == 1
    if not size and on_cpu and not options.gradient_checkpointing:
        limit = KEPT_TOKENS
    embeddings = []
    for parts, order in divided:
        rows = []
        for part in parts:
            again = tokens > limit and torch.is_grad_enabled()
            rows.append(
                checkpoint(_embedded, model, part, use_reentrant=False) if again else _embedded(model, part)
            )
            tokens -= _padded_tokens(part)
        embeddings.append(rows[0] if order is None else torch.cat(rows)[order])
    return embeddings


def _groups(features: Mapping[str, Any], size: int | None) -> tuple[list[Mapping[str, Any]], Tensor | None]:
    """The tokens of each group, and the row of each text in them, ``[b]``; None: there is one group."""
    mask = features.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2 or len(mask) <= (size or GROUP):
        return [features], None
    right = bool(mask[:, 0].all())
    if size is None and (mask.device.type != "cpu" or processes() > 1 or not right):
        return [features], None
    lengths = mask.sum(dim=1)
    order = torch.argsort(lengths, stable=True)
    parts: list[Mapping[str, Any]] = []
    for rows in order.split(size or GROUP):
        part, longest = dict(features), int(lengths[rows].max()) if right else mask.shape[1]
        for name, value in features.items():
            if isinstance(value, Tensor) and value.shape[:1] == mask.shape[:1]:
                part[name] = value[rows]
                if value.shape[:2] == mask.shape:
                    part[name] = part[name][:, :longest]
        parts.append(part)
    return parts, torch.argsort(order)


def _padded_tokens(features: Mapping[str, Any]) -> int:
    mask = features.get("attention_mask")
    return mask.numel() if isinstance(mask, Tensor) else 0


def _embedded(model: nn.Module, features: Mapping[str, Any]) -> Tensor:
    tokens = features.get("input_ids")
    with plain_attention(model, tokens.shape[-1] if isinstance(tokens, Tensor) else 0):
        embeddings: Tensor = model(dict(features))["sentence_embedding"]  # the model adds to what it reads
    return embeddings
