"""In-context RALM: the gain of sharing the computation of strides, against the plain loop.

    python -m benchmarks.ralm --data data/vimdoc --text data/vimdoc/texts/test/starting.txt

The rival is the loop of the paper's method: for every stride the whole window (document, text, stride) goes
through the model, and transformers computes all logits. Both read the same windows with the same documents,
which are retrieved first. The table also compares the perplexity with that of ``cut`` 1, the cost of cutting
the text in steps. Target: at least 3 times faster at stride 4, the same perplexity to 1e-3.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jsonargparse import auto_cli

from benchmarks.common import machine, print_table, seconds
from grls.answer.ralm.options import WindowOptions
from grls.answer.ralm.reader import InContextRalm, Stride, Wanted, strides
from grls.data.corpus import Corpus
from grls.io.ending import quiet
from grls.models.load.language import load_language_model
from grls.retrieve.bm25 import BM25Retriever


def main(
    data: str,
    text: str,
    model: str = "SmolLM2-135M-Instruct",
    stride: Sequence[int] = (4,),
    cut: Sequence[int] = (1, 64, 128),
    begin: int = 1536,
    tokens: int = 256,
    repeats: int = 5,
) -> None:
    """Measure both and print a table.

    Args:
        data: Data set folder with the corpus to retrieve from.
        text: The text to read.
        model: A causal language model.
        stride: Strides s.
        cut: Steps in which the text is cut; 1 slides the window.
        begin: The first scored token; from 1,024 on the window is full.
        tokens: Number of scored tokens.
        repeats: Runs of each; the median counts.
    """
    quiet()
    loaded = load_language_model(model)
    corpus = Corpus.read(data)
    retriever = BM25Retriever(corpus)
    rows = []
    print(machine())
    for s in stride:
        exact = float("nan")
        for step in cut:
            options = WindowOptions(stride=s, cut=step)
            reader = InContextRalm(*loaded, options, retriever, corpus)
            ids = reader.tokens(Path(text).read_text(encoding="utf-8"))[: begin + tokens]
            scored = [stride for stride in strides(len(ids), options) if stride.first >= begin]
            begun = perf_counter()
            documents = reader.documents_for(ids, scored)
            looking = perf_counter() - begun
            row, value = _compare(reader, ids, scored, documents, repeats)
            exact = value if step == 1 else exact
            rows.append([str(s), str(step), *row, f"{value - exact:+.3f}", f"{looking:.2f}"])
    print_table(
        f"{tokens} tokens of a text behind token {begin:,}, window 1,024, one document of at most 256 tokens"
        f"; median of {repeats}",
        ["stride", "cut", "plain loop (s)", "grls (s)", "times", "perplexity", "difference", "against cut 1",
         "retrieval (s)"],
        rows,
    )  # fmt: skip


def _compare(
    reader: InContextRalm,
    text: Sequence[int],
    scored: Sequence[Stride],
    documents: Sequence[tuple[int, ...]],
    repeats: int,
) -> tuple[list[str], float]:
    """A row of the table, and the perplexity."""
    wanted = [reader.scorer.wanted(names, s) for s, names in zip(scored, documents, strict=True)]
    plain, ours = [], []
    for _ in range(repeats):
        spent, expected = seconds(lambda: _plain(reader, text, wanted))
        plain.append(spent)
        spent, found = seconds(lambda: np.concatenate(reader.scorer.log_probabilities(text, wanted)))
        ours.append(spent)
    first, second = (float(np.exp(-values.mean())) for values in (expected, found))
    times = float(np.median(np.array(plain) / np.array(ours)))
    return [
        f"{np.median(plain):.1f}", f"{np.median(ours):.1f}", f"{times:.1f}", f"{second:.3f}",
        f"{abs(first - second):.0e}",
    ], second  # fmt: skip


@torch.inference_mode()
def _plain(reader: InContextRalm, text: Sequence[int], wanted: Sequence[Wanted]) -> Any:
    """Log-probabilities, a window at a time."""
    parts = []
    for stretch in wanted:
        before = reader.scorer.before(stretch.documents)
        tokens = torch.tensor([[*before, *text[stretch.start : stretch.last]]], device=reader.model.device)
        scores = reader.model(input_ids=tokens, use_cache=False).logits[0, :-1].float().log_softmax(-1)
        targets = tokens[0, 1:]
        values = scores.gather(1, targets[:, None])[:, 0][-(stretch.last - stretch.first) :]
        parts.append(values.double().cpu().numpy())
    return np.concatenate(parts)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
