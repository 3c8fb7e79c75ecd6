"""Decoding: queries a second against transformers' ``generate`` with ``prefix_allowed_tokens_fn``.

    python -m benchmarks.decode

Both run the same random model of t5-small's shape, beam 5, batch 8, in the same score mode: ``generate`` with
``renormalize_logits=True, length_penalty=0.0`` writes every passage to its end; ours scores the allowed
tokens alone and stops at the unique prefix. The rival's constraint is a nested dict trie, which answers a
step faster than our own adapter would. Targets: at least 4 times the queries a second on short passages, at
least 25 times on 80-token passages.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jsonargparse import auto_cli
from transformers import T5Config, T5ForConditionalGeneration

from benchmarks.common import END, RESERVED, machine, print_table, seconds, synthetic_passages
from benchmarks.index import Trie, nested_dict_trie
from grls.decode import Decoder
from grls.index import ConstraintIndex, index_sequences
from grls.models.generator import Seq2SeqGenerator

PAD = 0
BATCH = 8
BEAMS = 5
TARGETS = {"short": 4, "long": 25}


def t5_small(vocabulary: int) -> Any:
    """A random T5 of t5-small's shape."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=vocabulary, d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
        pad_token_id=PAD, eos_token_id=END,
    )  # fmt: skip
    config.decoder_start_token_id = PAD
    model: Any = T5ForConditionalGeneration(config)
    return model.eval()


def generate(model: Any, trie: Trie, inputs: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
    """The rival: the best sequence of each input, written to its end."""

    def allowed(batch: int, prefix: torch.Tensor) -> list[int]:
        node = trie
        for token in prefix.tolist()[1:]:
            node = node.get(token, {})
        return list(node) or [PAD]

    output = model.generate(
        input_ids=torch.tensor(inputs), num_beams=BEAMS, do_sample=False, max_new_tokens=longest,
        prefix_allowed_tokens_fn=allowed, renormalize_logits=True, length_penalty=0.0,
    )  # fmt: skip
    # After a sequence has ended, generate fills up with the end token or padding.
    return [row[1 : row.index(END) + 1] if END in row else row[1:] for row in output.tolist()]


def compare(
    model: Any, name: str, passages: int, tokens: int, ours: int, theirs: int, length: int
) -> list[str]:
    """One row: queries a second of both, in turn, batch by batch."""
    rows = synthetic_passages(passages, tokens, seed=1)
    index: ConstraintIndex = index_sequences(rows, END)
    trie = nested_dict_trie([row.tolist() for row in rows])
    gc.freeze()  # the trie's millions of dicts would slow the collector down for both
    rng = np.random.default_rng(2)
    inputs = [[*rng.integers(RESERVED, 32_000, length - 1).tolist(), END] for _ in range(BATCH * ours)]
    batches = [inputs[i : i + BATCH] for i in range(0, len(inputs), BATCH)]
    decoder = Decoder(Seq2SeqGenerator(model), index, beams=BEAMS)
    longest = max(len(row) for row in rows)
    decoder.search(batches[-1])
    generate(model, trie, batches[-1], 3)
    our_times, their_times, equal = [], [], []
    for number, batch in enumerate(batches):
        our_time, hits = seconds(partial(decoder.search, batch))
        our_times.append(our_time)
        if number < theirs:
            their_time, best = seconds(partial(generate, model, trie, batch, longest))
            their_times.append(their_time)
            found = [index.tokens(h[0].passage).tolist() for h in hits]
            equal += [a == b for a, b in zip(found, best, strict=True)]
    gc.unfreeze()
    ratio = float(np.median(their_times) / np.median(our_times))
    return [
        f"{name}: {passages:,} x {np.mean([len(r) for r in rows]):.0f} tokens",
        f"{BATCH / np.median(their_times):.2f}",
        f"{BATCH / np.median(our_times):.2f}",
        f"{ratio:.1f}",
        f">= {TARGETS[name]}",
        f"{sum(equal)} of {len(equal)}",
    ]


def main(
    short: int = 10_000,
    long: int = 100_000,
    batches: int = 6,
    rival_batches: int = 3,
    input_length: int = 24,
) -> None:
    """Measure and print a table.

    Args:
        short: Number of short passages (11 tokens on average, as EntailmentBank's sentences).
        long: Number of 80-token passages.
        batches: Batches of 8 queries that ours decodes.
        rival_batches: How many of them the rival decodes too.
        input_length: Tokens of a model input.
    """
    print(machine())
    model = t5_small(32_128)
    rows = [
        compare(model, "short", short, 11, batches, rival_batches, input_length),
        compare(model, "long", long, 80, batches, rival_batches, input_length),
    ]
    print_table(
        "t5-small shape, random weights, beam 5, batch 8, renormalized scores",
        ["corpus", "generate, queries/s", "grls, queries/s", "ratio", "target", "equal top-1"],
        rows,
    )


if __name__ == "__main__":
    auto_cli(main)
