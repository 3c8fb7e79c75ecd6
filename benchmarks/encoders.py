"""Encoders as they are, side by side: what they find, and what a passage and a question cost.

    python -m benchmarks.encoders --models '[all-MiniLM-L6-v2, FOLDER]' --data '[data/nq, data/musique]'

Each encoder has a process of its own. A row is a single step, or hops with links; `fused` is with BM25,
likewise by hops, as `grls fit` fuses where nothing tells which is better. Seconds are those of the processor,
which depend less on what else the machine does.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Sequence
from statistics import fmean

from jsonargparse import auto_cli

from benchmarks.common import in_process, machine, print_table
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.evaluation.measures import query_values
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.fusion.retriever import FUSED, Fusion
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop

MEASURES = ("R@1", "R@5", "nDCG@10")
STEPS = {"": HopOptions(), ", hops": HopOptions(steps="ranked")}
_FUSION = Fusion("sum", (0.7, 0.3))


def measured(
    model: str, data: str, split: str, passages: int | None, precision: str
) -> list[tuple[str, ...]]:
    """Rows of one encoder on one data set, of so many of its passages (the gold ones are among them)."""
    corpus = Corpus.read(data)
    queries, qrels = read_split(data, split, corpus)
    if passages is not None:
        gold = {name for query in queries for name in qrels[query.id]}
        others = [passage.id for passage in corpus if passage.id not in gold]
        gold.update(random.Random(0).sample(others, max(0, passages - len(gold))))
        corpus = Corpus.from_passages([passage for passage in corpus if passage.id in gold])
    encoder = BiEncoderModel.load(model, device="cpu").to("cpu", precision)
    begun = time.process_time()
    dense, bm25 = DenseRetriever.assemble(encoder, corpus), BM25Retriever(corpus)
    embedding = (time.process_time() - begun) / len(corpus) * 1000
    rows = []
    for steps, options in STEPS.items():
        begun = time.process_time()
        found = hop_by_hop(dense, options).retrieve(queries, FUSED)
        spent = (time.process_time() - begun) / len(queries) * 1000
        pairs = zip(found, hop_by_hop(bm25, options).retrieve(queries, FUSED), strict=True)
        for fused, rankings in (("", found), (", fused", [*map(_FUSION.fuse, pairs)])):
            ids = {q.id: [hit.id for hit in hits] for q, hits in zip(queries, rankings, strict=True)}
            values = query_values(MEASURES, ids, {query.id: qrels[query.id] for query in queries})
            means = [f"{100 * fmean(values[name]):.1f}" for name in MEASURES]
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            costs = f"{embedding:.0f}", f"{spent:.0f}", f"{memory:.1f}"
            rows.append((f"{model}{steps}{fused}", *means, *costs))
    return rows


def main(
    models: Sequence[str],
    data: Sequence[str],
    split: str = "test",
    passages: int | None = None,
    precision: str = "bfloat16",
) -> None:
    """Measure.

    Args:
        models: Encoders: folders or names.
        data: Data set folders.
        split: Split of the questions.
        passages: So many passages of each set, the gold ones among them; null: all.
        precision: Of the encoders: float32 or bfloat16.
    """
    header = ("encoder", *MEASURES, "s, 1,000 passages", "ms a question", "peak memory, GiB")
    for folder in data:
        rows = [row for m in models for row in in_process(measured, m, folder, split, passages, precision)]
        print_table(f"{folder}, {split}; {machine()}", header, rows)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
