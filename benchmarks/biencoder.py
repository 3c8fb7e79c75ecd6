"""Training a bi-encoder on a CPU: our loss against that of sentence-transformers, over the same batches.

    python -m benchmarks.biencoder --data data/hotpotqa

Both sides take the same model, the same batches of `configs/default/biencoder.yaml` (hops with excerpts as
evidence, and DONE) and the same precision; a pass is forwards and backwards, without the optimizer. The rival
pads each column of a batch to its longest text; ours embeds groups of like length. The sides take turns,
batch by batch. Target: a third faster.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jsonargparse import auto_cli
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from benchmarks.common import machine, print_table
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.io.ending import quiet
from grls.models.biencoder import BiEncoderModel
from grls.models.option_names import Precision
from grls.models.precision import has_bfloat16
from grls.models.sessions.memory import plain_attention
from grls.train.biencoder.data import BiEncoderData
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.options import BiEncoderOptions, PairOptions

TARGET = 1.5
"""Target ratio of speeds."""


class Step(NamedTuple):
    """One batch.

    Attributes:
        columns: Features of the queries, then of the passages.
        labels: See :class:`~grls.train.biencoder.loss.MaskedRankingLoss`.
    """

    columns: list[dict[str, Any]]
    labels: Tensor

    @property
    def padding(self) -> float:
        """The share of the tokens that is padding, where each column is padded to its longest text."""
        masks: list[Tensor] = [column["attention_mask"] for column in self.columns]
        read = sum(int(mask.sum()) for mask in masks)
        return 1 - read / sum(mask.numel() for mask in masks)


def steps_of(data: str, encoder: BiEncoderModel, batch_size: int, words: int, count: int) -> Iterator[Step]:
    """Batches of the hops of a data set's training queries, in a random order that a seed fixes."""
    corpus = Corpus.read(data)
    queries, qrels = read_split(data, "train", corpus)
    encoder.evidence_words = words
    examples = BiEncoderExamples(queries, qrels, corpus, encoder.query_text, PairOptions())
    batches = BiEncoderData(data, BiEncoderOptions())
    batches.encoder = encoder
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0)).tolist()
    for start in range(count):
        chosen = [order[(start * batch_size + n) % len(order)] for n in range(batch_size)]
        batch = batches.collator([examples.draw(number, 0) for number in chosen])
        yield Step(batch.features, batch.labels)


def timed(loss: nn.Module, step: Step, low: bool) -> float:
    """Seconds of one pass, forwards and backwards."""
    longest = max(column["attention_mask"].shape[1] for column in step.columns)
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16, enabled=low), plain_attention(loss, longest):
        mean = loss([dict(column) for column in step.columns], step.labels)
    mean.backward()
    loss.zero_grad()
    return time.perf_counter() - start


def compare(
    encoder: BiEncoderModel, steps: Sequence[Step], low: bool, repeats: int
) -> tuple[list[float], list[float]]:
    """Seconds of each pass of the rival and of ours, which take turns after a warm-up."""
    sides = [
        kind(encoder.model, scale=20.0, similarity_fct=encoder.scores)
        for kind in (MultipleNegativesRankingLoss, MaskedRankingLoss)
    ]
    encoder.model.train()
    for side in sides:
        timed(side, steps[0], low)
    spent: list[list[float]] = [[], []]
    for _ in range(repeats):
        for step in steps:
            for side, seconds in zip(sides, spent, strict=True):
                seconds.append(timed(side, step, low))
    return spent[0], spent[1]


def main(
    data: str = "data/quickstart",
    encoder: str = "all-MiniLM-L6-v2",
    max_tokens: int | None = 192,
    batch_size: int = 32,
    evidence_words: int = 32,
    batches: int = 8,
    repeats: int = 2,
    precision: Precision | str = "auto",
) -> None:
    """Print the table.

    Args:
        data: Data set folder.
        encoder: The bi-encoder: a folder, a hub name, or all-MiniLM-L6-v2 (extra `local-models`).
        max_tokens: Longest text in tokens; None: the limit of the model.
        batch_size: Hops of a batch.
        evidence_words: Words of each evidence passage in a query.
        batches: Batches.
        repeats: Passes over the batches.
        precision: `float32`, `bfloat16`, or `auto`: bfloat16 where the processor has it.
    """
    quiet()
    model = BiEncoderModel.load(encoder, device="cpu", max_tokens=max_tokens)
    cpu = torch.device("cpu")
    low = has_bfloat16(cpu) if precision == "auto" else precision == "bfloat16"
    steps = list(steps_of(data, model, batch_size, evidence_words, batches))
    rival, ours = (sum(spent) for spent in compare(model, steps, low, repeats))
    hops = repeats * batches * batch_size
    padding = sum(step.padding for step in steps) / len(steps)
    computed = "bfloat16" if low else "float32"
    print(machine())
    print_table(
        f"{data}: {encoder}, {computed}; padding is {100 * padding:.0f} % of whole batches",
        [f"{batch_size} hops a batch", "sentence-transformers", "grls", "ratio", "target"],
        [
            [
                "hops a second",
                f"{hops / rival:.1f}",
                f"{hops / ours:.1f}",
                f"{rival / ours:.2f}",
                f">= {TARGET}",
            ]
        ],
    )


if __name__ == "__main__":
    auto_cli(main)
