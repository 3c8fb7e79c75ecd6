"""Decoding: queries a second against transformers' ``generate`` with ``prefix_allowed_tokens_fn``.

    python -m benchmarks.decode
    python -m benchmarks.decode --corpus data/entailmentbank --tokenizer PATH/TO/T5

All run the same random model of t5-small's shape, beam 5, batch 8, in the same score mode: ``generate`` with
``renormalize_logits=True, length_penalty=0.0`` writes every passage to its end; our decoders score only the
allowed tokens and stop at the unique prefix. The rival's constraint is a nested dict trie, which answers a
step faster than our adapter would. ``plain`` is the specification (:mod:`grls.decode.beam`), ``fast`` is the
decoder of the retrievers (:mod:`grls.decode.fast`). Targets: at least 7 times the queries a second on short
passages, at least 45 times on 80-token passages; in bfloat16, against bfloat16, 4 and 30.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from jsonargparse import auto_cli
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

from benchmarks.common import END, RESERVED, machine, median_seconds, print_table, seconds, synthetic_passages
from benchmarks.index import Trie, nested_dict_trie
from grls.data.corpus import Corpus
from grls.decode.beam import Decoder
from grls.decode.fast import FastDecoder
from grls.index.build import index_sequences
from grls.index.rows import Ints
from grls.models.seq2seq.slots import Seq2SeqGenerator, plant

matplotlib.use("svg")

PAD = 0
BATCH = 8
BEAMS = 5
TARGETS = {"float32": {"short": 7, "long": 45}, "bfloat16": {"short": 4, "long": 30}}


class Setting(NamedTuple):
    """Settings of a measurement.

    Attributes:
        model: The model, in the measured precision.
        precision: The name of the precision.
        batches: Batches of queries for our decoders.
        rival_batches: Number of these batches for the rival.
        repeats: Repeats of our decoders; the median counts.
        length: Tokens of a model input.
    """

    model: Any
    precision: str
    batches: int
    rival_batches: int
    repeats: int
    length: int


T5_SHAPES = {"small": (512, 2048, 6, 8), "base": (768, 3072, 12, 12), "large": (1024, 4096, 24, 16)}
"""Widths of the model and of its feed-forward layers, layers, and heads of T5 (arXiv 1910.10683)."""


def random_t5(vocabulary: int = 32_128, shape: str = "small") -> Any:
    """A random T5 of one of the published shapes."""
    torch.manual_seed(0)
    width, inner, layers, heads = T5_SHAPES[shape]
    config = T5Config(
        vocab_size=vocabulary, d_model=width, d_kv=64, d_ff=inner, num_layers=layers, num_heads=heads,
        pad_token_id=PAD, eos_token_id=END,
    )  # fmt: skip
    config.decoder_start_token_id = PAD
    model: Any = T5ForConditionalGeneration(config)
    return model.eval()


def generate(
    model: Any, trie: Trie, inputs: Sequence[Sequence[int]], longest: int, beams: int = BEAMS
) -> list[list[int]]:
    """The rival: the best sequence of each input, written to its end.

    Inputs of a causal model have the same length.
    """
    before = 1 if model.config.is_encoder_decoder else len(inputs[0])

    def allowed(batch: int, prefix: torch.Tensor) -> list[int]:
        node = trie
        for token in prefix.tolist()[before:]:
            node = node.get(token, {})
        return list(node) or [PAD]

    output = model.generate(
        input_ids=torch.tensor(inputs, device=model.device), num_beams=beams, do_sample=False,
        max_new_tokens=longest, prefix_allowed_tokens_fn=allowed, renormalize_logits=True, length_penalty=0.0,
    )  # fmt: skip
    # After a sequence has ended, generate fills up with the end token or padding.
    rows = [row[before:] for row in output.tolist()]
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


def random_inputs(count: int, length: int) -> list[list[int]]:
    """Model inputs of random tokens."""
    rng = np.random.default_rng(2)
    return [[*rng.integers(RESERVED, 32_000, length - 1).tolist(), END] for _ in range(count)]


class Rates(NamedTuple):
    """Queries a second on one corpus, in one precision.

    Attributes:
        corpus: The corpus.
        precision: The precision.
        generate: Rate of the rival.
        plain: Rate of our specification.
        fast: Rate of the decoder of the retrievers.
        target: The ratio to reach.
        equal: Number of queries with the same best passage, and number of all queries.
    """

    corpus: str
    precision: str
    generate: float
    plain: float
    fast: float
    target: int
    equal: str

    @property
    def cells(self) -> list[str]:
        """One row of the table."""
        rates = [f"{rate:.2f}" for rate in (self.generate, self.plain, self.fast, self.fast / self.plain)]
        ratio = f"{self.fast / self.generate:.1f}"
        return [self.corpus, self.precision, *rates, ratio, f">= {self.target}", self.equal]


def compare(setting: Setting, name: str, rows: Sequence[Ints]) -> Rates:
    """Queries a second of all three on one corpus."""
    index = index_sequences(rows, END)
    trie = nested_dict_trie([row.tolist() for row in rows])
    gc.freeze()  # the trie's millions of dicts would slow the collector down for all
    inputs = random_inputs(BATCH * setting.batches, setting.length)
    batches = [inputs[i : i + BATCH] for i in range(0, len(inputs), BATCH)]
    generator = Seq2SeqGenerator(setting.model)
    trees = plant(generator)
    plain = Decoder(generator, index, BEAMS)
    fast = FastDecoder(trees, index, BEAMS, slots=BATCH)
    rival = partial(generate, setting.model, trie, longest=max(len(row) for row in rows))
    generate(setting.model, trie, batches[-1], 3)
    times = {
        "plain": median_seconds(lambda: [plain.search(batch) for batch in batches], setting.repeats),
        "fast": median_seconds(lambda: fast.search(inputs), setting.repeats),
    }
    rate = {system: len(inputs) / spent for system, spent in times.items()}
    measured = [seconds(partial(rival, inputs=batch)) for batch in batches[: setting.rival_batches]]
    rate["generate"] = BATCH / float(np.median([spent for spent, _ in measured]))
    best = [row for _, found in measured for row in found]
    found = [index.tokens(hits[0].passage).tolist() for hits in fast.search(inputs)]
    equal = sum(a == b for a, b in zip(found, best, strict=False))
    gc.unfreeze()
    return Rates(
        f"{name}: {len(rows):,} x {np.mean([len(r) for r in rows]):.0f} tokens",
        setting.precision,
        **rate,
        target=TARGETS[setting.precision][name],
        equal=f"{equal} of {len(best)}",
    )


def draw(rates: Sequence[Rates], file: str) -> None:
    """Draw bars of the queries a second as multiples of the rival's."""
    with plt.rc_context({"svg.hashsalt": "grls", "font.family": "DejaVu Sans"}):
        figure, axes = plt.subplots(figsize=(7.2, 0.9 + 0.8 * len(rates)), layout="constrained")
        colours = {"generate": "#9aa0a6", "plain": "#7aa6da", "fast": "#1a5fb4"}
        for row, rate in enumerate(rates):
            for line, system in enumerate(colours):
                ratio = getattr(rate, system) / rate.generate
                axes.barh(row + 0.26 * (line - 1), ratio, 0.24, color=colours[system], label=system)
                axes.text(ratio * 1.04, row + 0.26 * (line - 1), f"{ratio:.1f}", va="center", fontsize=9)
        names = [f"{rate.corpus.partition(': ')[2]}\n{rate.precision}" for rate in rates]
        axes.set(xscale="log", yticks=range(len(rates)), yticklabels=names, ylim=(len(rates) - 0.4, -0.6))
        axes.set_xlabel("queries a second, times transformers' constrained generate")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(0.8, 3 * max(rate.fast / rate.generate for rate in rates))
        axes.spines[["top", "right"]].set_visible(False)
        handles, _ = axes.get_legend_handles_labels()
        axes.legend(handles[:3], ["generate", "grls, plain", "grls, fast"], frameon=False, loc="upper right")
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


def tokenized(corpus: str, tokenizer: str) -> list[Ints]:
    """The passages of a corpus as T5's tokens, the end token last."""
    texts = [passage.text for passage in Corpus.read(corpus)]
    encoded = AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)(
        texts, add_special_tokens=False
    )["input_ids"]
    return [np.array([*row, END]) for row in encoded]


def main(
    short: int = 10_000,
    long: int = 100_000,
    batches: int = 6,
    rival_batches: int = 5,
    repeats: int = 5,
    input_length: int = 24,
    precisions: tuple[Literal["float32", "bfloat16"], ...] = ("float32",),
    corpus: str | None = None,
    tokenizer: str | None = None,
    picture: str | None = None,
) -> None:
    """Measure and print a table.

    Args:
        short: Number of short passages (11 tokens on average, as EntailmentBank's sentences).
        long: Number of 80-token passages; 0 leaves them out.
        batches: Batches of 8 queries for our decoders.
        rival_batches: Number of these batches for the rival.
        repeats: Repeats of our decoders; the median counts.
        input_length: Tokens of a model input.
        precisions: Precisions of all systems.
        corpus: Data set folder whose passages replace the short ones.
        tokenizer: T5's tokenizer, for ``corpus``.
        picture: SVG or PNG file for a picture of the ratios.
    """
    if (corpus is None) != (tokenizer is None):
        raise SystemExit("error: --corpus needs --tokenizer, and the other way round.")
    print(machine())
    few = tokenized(corpus, tokenizer) if corpus and tokenizer else synthetic_passages(short, 11, seed=1)
    many = synthetic_passages(long, 80, seed=1) if long else []
    table = []
    for precision in precisions:
        model = random_t5().to(getattr(torch, precision))
        setting = Setting(model, precision, batches, rival_batches, repeats, input_length)
        table.append(compare(setting, "short", few))
        if many:
            table.append(compare(setting, "long", many))
    print_table(
        "t5-small shape, random weights, beam 5, batch 8, renormalized scores, queries a second",
        ["corpus", "precision", "generate", "plain", "fast", "fast / plain", "fast / generate", "target",
         "equal top-1"],
        [row.cells for row in table],
    )  # fmt: skip
    if picture:
        draw(table, picture)


if __name__ == "__main__":
    auto_cli(main)
