"""How a search grows with its beams, its queries and their inputs.

    python -m benchmarks.beams
    python -m benchmarks.beams --causal true --inputs '[128, 1000]'

The model is random, with t5-small's shape or, with ``--causal true``, SmolLM2-135M's; the passages are random
ids of eight tokens (vocabulary 2,048). Scores are ``full`` and nothing stops early, so that every beam feeds
every token: the figures are those of a step, not of a corpus. ``read`` is reading an input, once a query;
a step is all else (model and constraint), for all queries. What a beam costs at each width is set beside what
it costs at the first one.
"""

from __future__ import annotations

import torch
from jsonargparse import auto_cli

from benchmarks.common import machine, print_table
from benchmarks.decode import random_inputs, random_t5
from benchmarks.riches import smollm2
from benchmarks.static import fixed_length_index, random_ids
from grls.decode.fast import FastDecoder
from grls.io.timing import PartCounts, counting
from grls.models.causal.slots import plant_causal
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant
from grls.models.sessions.memory import SlotModel

LENGTH, VOCABULARY = 8, 2048


def main(
    causal: bool = False,
    count: int = 100_000,
    batches: tuple[int, ...] = (1, 32),
    beams: tuple[int, ...] = (10, 50, 256, 512),
    inputs: tuple[int, ...] = (128, 1000, 5000),
    most: int = 40_000,
    layers: int | None = None,
) -> None:
    """Measure and print a table.

    Args:
        causal: A causal model, not an encoder-decoder.
        count: Ids.
        batches: Queries together.
        beams: Beam widths.
        inputs: Tokens of an input.
        most: Rows of more input tokens than this, of all queries together, are left out.
        layers: Layers of the causal model; null: 30.
    """
    print(machine())
    index = fixed_length_index(random_ids(count, LENGTH, VOCABULARY))
    model: SlotModel = plant_causal(smollm2(layers or 30)) if causal else plant(Seq2SeqGenerator(random_t5()))
    rows = []
    for length in inputs:
        for batch in batches:
            if length * batch > most:
                continue
            first = 0.0
            for width in beams:
                decoder = FastDecoder(model, index, width, "full", early_stop=False, slots=batch)
                queries = random_inputs(2 * batch, length)
                decoder.search(queries[:1], 1)
                spent = PartCounts()
                with counting(spent), torch.inference_mode():
                    decoder.search(queries[batch:], width)
                step = (spent["decoder"].seconds + spent["constraint"].seconds) / LENGTH
                each = 1e3 * step / (batch * width)
                first = first or each
                share = 100 * spent["constraint"].seconds / (step * LENGTH)
                read = 1e3 * spent["encoder"].seconds / batch
                figures = (
                    f"{read:.0f}",
                    f"{1e3 * step:.1f}",
                    f"{each:.3f}",
                    f"{each / first:.2f}",
                    f"{share:.1f}",
                )
                rows.append([f"{length:,}", f"{batch}", f"{width}", *figures])
                print(" | ".join(rows[-1]), flush=True)
    shape = "SmolLM2-135M's" if causal else "t5-small's"
    header = [
        "input tokens",
        "queries",
        "beams",
        "read, ms a query",
        "ms a step",
        "ms a beam",
        "to the first",
    ]
    title = f"{shape} shape, random weights, {len(index):,} ids of {LENGTH} tokens"
    print_table(title, [*header, "constraint, %"], rows)


if __name__ == "__main__":
    auto_cli(main)
