"""What a tiny fit begins with: a data set, and random models that cost next to nothing."""

from pathlib import Path
from typing import Any

import torch
from llama_small import write_llama
from small_data import passages, queries, tiny_bert

from grls.data.dataset import write_dataset
from grls.fitting.options import FitOptions

SPLITS = {"train": (0, 9), "dev": (9, 13), "test": (13, 16)}


def write_fit_data(folder: Path, *splits: str) -> Path:
    """The small data set with these splits: train 9, dev 4, test 3 queries."""
    every = queries()
    qrels = {
        split: {q.id: dict.fromkeys(q.evidence, 1) for q in every[slice(*SPLITS[split])]}
        for split in splits or SPLITS
    }
    judged = {query for judged in qrels.values() for query in judged}
    write_dataset(folder, passages(), [query for query in every if query.id in judged], qrels)
    return folder


def write_fit_models(folder: Path, data: Path) -> dict[str, Any]:
    """Random models; returns the options that name them."""
    torch.manual_seed(0)  # which candidates there are depends on their weights
    models = {"biencoder": tiny_bert(folder / "bert"), "generator": write_llama(folder / "llama", data)}
    torch.manual_seed(11)
    models["reranker"] = tiny_bert(folder / "cross")
    return {role: str(model) for role, model in models.items()}


def fit_options(**more: Any) -> FitOptions:
    return FitOptions(**{"device": "cpu", "precision": "float32", "k": 2} | more)


WORDS_ALONE = {"biencoder": "none", "generator": "none"}
