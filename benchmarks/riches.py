"""Interlaced writing: tokens a second against transformers' ``generate``, and the constraint's share.

    python -m benchmarks.riches

The model is random with SmolLM2-135M's shape behind a long prompt, over the keys of a synthetic corpus in a
suffix array. Free text may only hold the opening marker, so that both write one quote after the other, to the
same length. The rival is ``generate`` with the full beam and a ``prefix_allowed_tokens_fn`` over the same
index, which caches the state of every prefix; our search also uses the full beam, and must write the same
output. Targets: at least 3 times the tokens a second; constraint at most 3 % of the model's step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from jsonargparse import auto_cli
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.common import clocked, machine, print_table, seconds
from grls.decode.interleave import search
from grls.decode.interleave.markers import Markers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.interleave.search import Interlaced, Interleaver
from grls.index.rows import Ints
from grls.index.substring import SubstringIndex
from grls.models.causal.slots import CausalTrees, CausalTreeSession, plant_causal

VOCABULARY = 49_152
END, OPEN, CLOSE, RESERVED = 0, 1, 2, 3
TARGETS = 3.0, 3.0


def smollm2(layers: int) -> Any:
    """A random model of SmolLM2-135M's shape (it has 30 layers)."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=576, intermediate_size=1536, num_hidden_layers=layers,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=END, pad_token_id=END, initializer_range=0.04,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    return model.eval()


def keys(tokens: int, mean: int = 20, branching: int = 300) -> list[Ints]:
    """Sentences with the skew of a language, as in :func:`benchmarks.common.synthetic_passages`."""
    rng = np.random.default_rng(0)
    words = VOCABULARY - RESERVED
    weights = 1.0 / np.arange(1, words + 1)
    cumulative = np.cumsum(weights / weights.sum())
    count = tokens // mean
    lengths = np.maximum(3, rng.normal(mean, mean / 5, count).round().astype(np.int64))
    shift = rng.integers(0, words, branching)
    table = np.empty((count, int(lengths.max())), dtype=np.int64)
    previous = np.zeros(count, dtype=np.int64)
    for position in range(table.shape[1]):
        ranks = np.searchsorted(cumulative, rng.random(count)).clip(max=words - 1)
        previous = (ranks + shift[previous % branching]) % words
        table[:, position] = previous + RESERVED
    return [row[:length] for row, length in zip(table, lengths, strict=True)]


def generate(
    model: Any, index: SubstringIndex, inputs: list[list[int]], beams: int, length: int
) -> list[list[int]]:
    """The rival: the best output of each input."""
    known: dict[tuple[int, ...], Any] = {}

    def state(written: tuple[int, ...]) -> Any:
        """None in free text, else the state of the current key."""
        if not written:
            return None
        if written not in known:
            before, token = state(written[:-1]), written[-1]
            if before is None:
                known[written] = index.start() if token == OPEN else None
            elif token == CLOSE:
                known[written] = None
            else:
                following = index.follow(before[None])
                known[written] = following.states[int(np.searchsorted(following.tokens, token))]
        return known[written]

    def allowed(batch: int, prefix: torch.Tensor) -> list[int]:
        now = state(tuple(prefix.tolist()[prompt:]))
        if now is None:
            return [OPEN]
        close = [CLOSE] if index.closes(now[None])[0] else []
        following: list[int] = index.follow(now[None]).tokens.tolist()
        return following + close

    prompt = len(inputs[0])
    tokens = torch.tensor(inputs)
    output = model.generate(
        input_ids=tokens, attention_mask=torch.ones_like(tokens), num_beams=beams, do_sample=False,
        max_new_tokens=length, min_new_tokens=length, prefix_allowed_tokens_fn=allowed, length_penalty=0.0,
    )  # fmt: skip
    written: list[list[int]] = output[:, prompt:].tolist()
    return written


MODEL: tuple[tuple[Any, str], ...] = (
    (CausalTreeSession, "_run"), (CausalTreeSession, "_forward"), (CausalTrees, "known"),
    (CausalTreeSession, "every"),
    (search, "_normalizer"),
)  # fmt: skip
"""Forward passes, head, and normalization over the vocabulary."""


class Written(NamedTuple):
    """Outputs of each question, best first; tokens a second; time without the model, in % of its time."""

    outputs: list[list[Interlaced]]
    rate: float
    share: float


def written(writer: Interleaver, questions: list[list[int]], repeats: int) -> Written:
    """Medians over ``repeats`` runs, after a warm-up."""
    outputs = writer.write(questions)
    times, shares = [], []
    for _ in range(repeats):
        with clocked(*MODEL) as model:
            total, _ = seconds(lambda: writer.write(questions))
        times.append(total)
        shares.append(100 * (total - model.spent) / model.spent)
    tokens = len(questions) * writer.options.max_new_tokens
    return Written(outputs, tokens / float(np.median(times)), float(np.median(shares)))


def main(
    tokens: int = 10_000_000,
    layers: int = 30,
    queries: int = 4,
    prompt: int = 300,
    question: int = 12,
    length: int = 24,
    beams: int = 10,
    repeats: int = 5,
) -> None:
    """Measure and print a table.

    Args:
        tokens: Tokens of the corpus.
        layers: Layers of the model.
        queries: Questions, answered together.
        prompt: Tokens of the prompt that all questions share.
        question: Tokens of a question.
        length: Tokens written for each question.
        beams: Beam width.
        repeats: Repeats of both sides; medians count.
    """
    print(machine())
    spent, index = seconds(lambda: SubstringIndex.build(keys(tokens)))
    size = sum(array.nbytes for array in index.arrays().values())
    print(
        f"index of {tokens:,} tokens: {spent:.1f} s with generating them, {size / tokens:.1f} bytes a token"
    )
    model = smollm2(layers)
    rng = np.random.default_rng(1)
    shared = rng.integers(RESERVED, VOCABULARY, prompt).tolist()
    questions = [rng.integers(RESERVED, VOCABULARY, question).tolist() for _ in range(queries)]
    barred = np.array([token for token in range(VOCABULARY) if token != OPEN])
    trees = plant_causal(model, shared)
    measured: list[Written] = []
    for repeat in (True, False):  # the rival may quote a key again; our search does so only on request
        options = InterleaveOptions(
            beams,
            "full",
            "full",
            repeat=repeat,
            max_new_tokens=length,
            batch_size=queries,
        )
        writer = Interleaver(trees, index, Markers(((OPEN,),), (CLOSE,), barred), (END,), options)
        measured.append(written(writer, questions, repeats))
    outputs, rate, _ = measured[0]
    inputs = [[*shared, *tokens_of_question] for tokens_of_question in questions]
    generate(model, index, inputs[:1], beams, 2)
    rival = [seconds(lambda: generate(model, index, inputs, beams, length)) for _ in range(repeats)]
    best = rival[0][1]
    equal = sum(list(found[0].tokens) == other for found, other in zip(outputs, best, strict=True))
    other = queries * length / float(np.median([spent for spent, _ in rival]))
    print_table(
        f"SmolLM2-135M's shape, {layers} layers, random weights, beam {beams}, {queries} x {length} tokens",
        ["tokens/s, generate", "tokens/s, ours", "ratio", "target", "equal outputs",
         "constraint, % of the model", "no key twice (default)", "target"],
        [
            [f"{other:.2f}", f"{rate:.2f}", f"{rate / other:.1f}", f">= {TARGETS[0]:g}",
             f"{equal} of {queries}", *(f"{result.share:.1f}" for result in measured), f"<= {TARGETS[1]:g}"]
        ],
    )  # fmt: skip


if __name__ == "__main__":
    auto_cli(main)
