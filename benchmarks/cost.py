"""The cost of the constraint: its share of the decoder's time, at 12,000 and at a million passages.

    python -m benchmarks.cost

The model is random with t5-small's shape, beams 1 and 5, batch 8. "Decoder" is the time of its forward passes
and of the products of the head; "constraint" is everything except encoder and decoder: allowed sets,
normalization, selection, the trees' bookkeeping. Targets: at most 5 % of the decoder's time at 12,000
passages and 8 % at a million; queries a second at a million at least 70 % of those at 12,000.

Rival: the bi-encoder of the same backbone (encoder, first decoder step) with exact maximum inner product
search by faiss over vectors of the same number of passages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from jsonargparse import auto_cli

from benchmarks.common import END, clocked, machine, median_seconds, print_table, seconds, synthetic_passages
from benchmarks.decode import BATCH, random_inputs, random_t5
from grls.decode.fast import FastDecoder
from grls.index.base import ConstraintIndex
from grls.index.build import index_sequences
from grls.models.seq2seq.slots import Seq2SeqGenerator, Seq2SeqTreeSession, plant

TOKENS = 11
TARGETS = {12_000: 5.0, 1_000_000: 8.0}
LEAST = 0.7


class Cost(NamedTuple):
    """Seconds of one search over all queries; ``decoder``: forward passes and products of the head."""

    total: float
    encoder: float
    decoder: float

    @property
    def share(self) -> float:
        """The constraint's time in percent of the decoder's time."""
        return 100 * (self.total - self.encoder - self.decoder) / self.decoder


ENCODER = ((Seq2SeqGenerator, "encode"),)
DECODER = (
    (Seq2SeqTreeSession, "load"),
    (Seq2SeqTreeSession, "_run"),
    (Seq2SeqTreeSession, "logits"),
    (Seq2SeqTreeSession, "shared"),
)
"""The decoder with its head; reading an input contains the encoder."""


def cost(decoder: FastDecoder, inputs: list[list[int]], repeats: int) -> Cost:
    """The median of ``repeats`` searches, by total time, after a warm-up."""
    decoder.search(inputs[:BATCH])
    costs = []
    for _ in range(repeats):
        with clocked(*ENCODER) as encoder, clocked(*DECODER) as steps:
            total, _ = seconds(lambda: decoder.search(inputs))
        costs.append(Cost(total, encoder.spent, steps.spent - encoder.spent))
    return sorted(costs)[len(costs) // 2]


def biencoder(model: Any, passages: int, inputs: list[list[int]], repeats: int) -> float:
    """Seconds of the bi-encoder over all queries: embedding, and exact search for 5 passages."""
    vectors = np.random.default_rng(3).standard_normal((passages, model.config.d_model), dtype=np.float32)
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    generator = Seq2SeqGenerator(model)

    def search() -> None:
        for first in range(0, len(inputs), BATCH):
            batch = inputs[first : first + BATCH]
            states, mask = generator.encode(batch)
            start = torch.zeros((len(batch), 1), dtype=torch.long)
            with torch.inference_mode():
                queries = generator.forward(states, mask, start)[:, -1].float().numpy()
            index.search(np.ascontiguousarray(queries), 5)

    return median_seconds(search, repeats)


def main(
    passages: tuple[int, ...] = (12_000, 1_000_000), queries: int = 64, repeats: int = 5, length: int = 24
) -> None:
    """Measure and print a table.

    Args:
        passages: Sizes of the corpora, of 11 tokens a passage on average.
        queries: Number of queries.
        repeats: Searches; the median counts.
        length: Tokens of a model input.
    """
    print(machine())
    model = random_t5()
    trees = plant(Seq2SeqGenerator(model))
    inputs = random_inputs(queries, length)
    rows: list[list[str]] = []
    base: dict[int, float] = {}
    for count in passages:
        index: ConstraintIndex = index_sequences(synthetic_passages(count, TOKENS, seed=1), END)
        dense = biencoder(model, count, inputs, repeats)
        for beams in (1, 5):
            spent = cost(FastDecoder(trees, index, beams, slots=BATCH), inputs, repeats)
            first = base.setdefault(beams, spent.total)
            rows.append(
                [
                    f"{count:,}",
                    str(beams),
                    f"{queries / spent.total:.1f}",
                    f"{1000 * spent.encoder / queries:.2f}",
                    f"{1000 * spent.decoder / queries:.2f}",
                    f"{1000 * (spent.total - spent.encoder - spent.decoder) / queries:.2f}",
                    f"{spent.share:.1f}" + (f" (<= {TARGETS[count]:g})" if count in TARGETS else ""),
                    f"{first / spent.total:.2f}" + (f" (>= {LEAST})" if count != passages[0] else ""),
                    f"{dense / spent.total:.2f}" + (" (> 1)" if count == passages[-1] else ""),
                ]
            )
    print_table(
        "t5-small shape, random weights, batch 8; milliseconds a query; targets in brackets",
        ["passages", "beams", "queries/s", "encoder", "decoder", "constraint", "constraint, % of decoder",
         "queries/s against the first", "times the bi-encoder with exact MIPS"],
        rows,
    )  # fmt: skip


if __name__ == "__main__":
    auto_cli(main)
