"""Training: hops and tokens a second, and seconds to a dev recall, against transformers' Seq2SeqTrainer.

    python -m benchmarks.train
    python -m benchmarks.train --warm_start true --data data/entailmentbank

Both sides start with the same weights and train with the same optimizer, rate and hops a batch
(:mod:`benchmarks.fitting`). The rival is the plain recipe: (source, target) pairs hop by hop, whole targets,
the loss over the vocabulary, mixed lengths, float32. Our training cuts targets at the unique prefix, takes
the loss over the tokens that the index allows (no product with the vocabulary), and batches similar lengths;
a causal model reads all hops of a query as one tree. With ``--precision bf16-mixed`` our side computes in
bfloat16; with ``--freeze_encoder true`` neither side trains the encoder.

Tokens are counted over the whole, uncut hops on both sides. Speeds are medians over runs that take turns,
each with ``steps`` steps after a warm-up. Recall@k is measured by the constrained search on dev hops (query
and gold evidence so far -> a correct next passage), every few steps, while the clock is stopped; for the
rival the better of ``full`` and ``renormalized`` scores counts. Target: three times the speed, and a third
of the seconds.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jsonargparse import auto_cli
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.common import machine, print_table
from benchmarks.fitting import Fast, Recipe, fit_ours, fit_plain
from benchmarks.watching import Climb, HopRecall, Meter, Speed
from data_prep import ruletaker
from grls.data.codec import Codec, add_special_tokens
from grls.io.ending import quiet
from grls.models.load.build import Loaded, train_tokenizer
from grls.models.load.generators import ScratchT5, WarmStart

TARGET = 3
"""Target ratio of speeds, and of seconds."""

Kind = Literal["seq2seq", "causal"]


class Shape(NamedTuple):
    """The size of a model from scratch: width, layers of encoder and of decoder, least vocabulary."""

    width: int
    layers: int
    vocabulary: int


class Plan(NamedTuple):
    """Settings of the measurement; see :func:`main`."""

    warmup: int
    steps: int
    repeats: int
    k: int
    recalls: tuple[float, ...]
    every: int
    cap: float
    dev_size: int
    bf16: bool


def scratch_t5(data: str, shape: Shape) -> Loaded:
    """A random T5 with a tokenizer for the data."""
    model, tokenizer = ScratchT5(
        data=data, vocabulary=1000, d_model=shape.width, d_ff=4 * shape.width, d_kv=32, dropout=0.0,
        num_layers=shape.layers, num_decoder_layers=shape.layers, num_heads=max(1, shape.width // 32),
    ).load()  # fmt: skip
    model.resize_token_embeddings(max(shape.vocabulary, len(tokenizer)))
    return Loaded(model, tokenizer)


def scratch_llama(data: str, shape: Shape) -> Loaded:
    """A random Llama with a tokenizer for the data."""
    tokenizer = train_tokenizer(data, 1000)
    add_special_tokens(tokenizer)
    heads = max(1, shape.width // 32)
    config = LlamaConfig(
        vocab_size=max(shape.vocabulary, len(tokenizer)), hidden_size=shape.width,
        intermediate_size=3 * shape.width, num_hidden_layers=2 * shape.layers, num_attention_heads=heads,
        num_key_value_heads=heads, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Loaded(LlamaForCausalLM(config), tokenizer)


def write_start(folder: Path, loaded: Loaded) -> str:
    """Write the model that both sides start with; the path of its folder."""
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return str(folder)


def sides(recipe: Recipe, plan: Plan, fast: Fast) -> dict[str, Any]:
    """Name of a side -> its training under a watch and a meter; the rival first."""
    rival = "Trainer" if recipe.causal else "Seq2SeqTrainer"
    return {rival: partial(fit_plain, recipe, bf16=plan.bf16), "grls": partial(fit_ours, recipe, fast=fast)}


def speeds(fits: dict[str, Any], plan: Plan) -> dict[str, tuple[float, float]]:
    """Median hops and tokens a second of each side; runs take turns, because the machine may be shared."""
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in fits}
    for _ in range(plan.repeats):
        for name, fit in fits.items():
            meter = Meter()
            watch = Speed(meter, plan.warmup, plan.steps)
            fit(watch=watch, meter=meter)
            measured[name].append(watch.rates)
    medians = {name: np.median(rates, axis=0) for name, rates in measured.items()}
    return {name: (float(hops), float(tokens)) for name, (hops, tokens) in medians.items()}


def climbs(fits: dict[str, Any], plan: Plan, recall: HopRecall) -> dict[str, Climb]:
    """One run of each side, until the highest recall is reached or time is over."""
    by_side = {}
    for name, fit in fits.items():
        modes: Any = ("renormalized",) if name == "grls" else ("full", "renormalized")
        by_side[name] = Climb(recall, modes, plan.every, max(plan.recalls), plan.cap)
        fit(watch=by_side[name], meter=Meter())
    return by_side


def seconds_cells(climbs: Sequence[Climb], recall: float) -> list[str]:
    """Seconds of both sides to a recall, and their ratio."""
    cells = []
    for climb in climbs:
        reached, best = climb.reached(recall), max(measured for _, measured in climb.curve)
        missed = f"not reached in {climb.seconds:.0f} s (best {best:.2f})"
        cells.append(missed if reached is None else f"{reached:.1f}")
    rival, ours = (climb.reached(recall) for climb in climbs)
    if ours is None:
        return [*cells, "-"]
    return [*cells, f"> {climbs[0].seconds / ours:.1f}" if rival is None else f"{rival / ours:.1f}"]


def table(title: str, recipe: Recipe, plan: Plan, fast: Fast) -> None:
    """Measure both sides with one model and print a table."""
    fits = sides(recipe, plan, fast)
    rates = speeds(fits, plan)
    codec = Codec(recipe.generator.load().tokenizer, causal=recipe.causal)
    recall = HopRecall(recipe.data, codec, plan.k, plan.dev_size)
    climbed = climbs(fits, plan, recall)
    rows = []
    for column, label in enumerate(("hops a second", "tokens a second")):
        rival, ours = (rates[name][column] for name in fits)
        rows.append([label, f"{rival:,.1f}", f"{ours:,.1f}", f"{ours / rival:.1f}", f">= {TARGET}"])
    for wanted in plan.recalls:
        cells = seconds_cells([climbed[name] for name in fits], wanted)
        rows.append([f"seconds to recall@{plan.k} of {wanted:g}", *cells, f">= {TARGET}"])
    print_table(f"{title}; {len(recall.hops)} dev hops", ["", *fits, "ratio", "target"], rows)
    for name, climb in climbed.items():
        curve = ", ".join(f"{seconds:.0f} s {measured:.2f}" for seconds, measured in climb.curve)
        print(f"\nrecall@{plan.k} of {name}: {curve}")


def generate(folder: Path, queries: int, dev: int) -> str:
    """Generate RuleTaker-Open with the quickstart's options, without output on the terminal."""
    out = folder / "ruletaker"
    with redirect_stdout(io.StringIO()):
        ruletaker.prepare(out, train=queries, dev=dev, test=0)
    return str(out)


def main(
    data: str | None = None,
    kinds: tuple[Kind, ...] = ("seq2seq", "causal"),
    warm_start: bool = False,
    causal: str | None = None,
    width: int = 128,
    layers: int = 2,
    vocabulary: int = 32_128,
    queries: int = 3000,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    freeze_encoder: bool = False,
    freeze_embeddings: bool = False,
    precision: str = "32-true",
    rival_bf16: bool = False,
    length_pool: int = 50,
    warmup: int = 5,
    steps: int = 50,
    repeats: int = 3,
    k: int = 5,
    recalls: tuple[float, ...] = (0.3, 0.5),
    every: int = 50,
    cap: float = 900.0,
    dev_size: int = 50,
    seed: int = 0,
) -> None:
    """Measure and print a table a kind of model.

    Args:
        data: Data set folder; null: a RuleTaker-Open set is generated.
        kinds: Sequence-to-sequence models, causal ones, or both.
        warm_start: The sequence-to-sequence model is warm-started from all-MiniLM-L6-v2 (extra
            ``local-models``) instead of a T5 from scratch.
        causal: A causal language model (a folder or a hub name) instead of a Llama from scratch.
        width: Width of models from scratch.
        layers: Layers of their encoder and of their decoder; a causal model has as many as both together.
        vocabulary: Vocabulary of models from scratch; by default T5's size, of which the data use a part.
        queries: Number of generated training queries.
        batch_size: Hops a batch.
        learning_rate: AdamW's learning rate, constant.
        freeze_encoder: Do not train the encoder on either side.
        freeze_embeddings: Do not train the word embeddings on either side.
        precision: Precision of our side, by Lightning's name.
        rival_bf16: Let the rival compute in bfloat16.
        length_pool: Batches that our side sorts by length together.
        warmup: Steps before the timed ones.
        steps: Timed steps.
        repeats: Timed runs; the median counts.
        k: Cut-off of recall.
        recalls: Recalls to reach.
        every: Steps between two measurements of recall.
        cap: Seconds of training after which a side is stopped.
        dev_size: Number of dev queries whose hops are measured.
        seed: Seed of the weights and of the order of examples.
    """
    quiet()
    print(machine())
    plan = Plan(warmup, steps, repeats, k, recalls, every, cap, dev_size, rival_bf16)
    fast = Fast(precision, length_pool)
    shape = Shape(width, layers, vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        data = data or generate(Path(folder), queries, dev_size)
        for kind in kinds:
            torch.manual_seed(seed)
            if kind == "causal":
                start = causal or write_start(Path(folder) / kind, scratch_llama(data, shape))
                name = Path(causal).name if causal else "a Llama from scratch"
            else:
                model = WarmStart(dropout=0.0).load() if warm_start else scratch_t5(data, shape)
                start = write_start(Path(folder) / kind, model)
                name = "a warm start from all-MiniLM-L6-v2" if warm_start else "a T5 from scratch"
            recipe = Recipe(
                data, start, kind == "causal", batch_size, learning_rate,
                freeze_encoder and kind == "seq2seq", freeze_embeddings, seed,
            )  # fmt: skip
            table(f"{name} on {Path(data).name}, {batch_size} hops a batch", recipe, plan, fast)


if __name__ == "__main__":
    auto_cli(main)
