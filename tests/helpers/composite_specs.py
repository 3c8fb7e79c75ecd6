"""A specification of every composite kind, and the folders that they are made of."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from cross_encoders import cross_encoder
from small_data import small_retriever, tiny_bert, write_small

from grls.data.corpus import Corpus
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.base import Retriever
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.compose import compose, write_retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.registry import Opening, member_keys
from grls.retrieve.spec import FORMAT, member_path, write_manifest

DYNAMIC = {"steps": "dynamic", "max": 3}
COMPOSITES: dict[str, dict[str, Any]] = {
    "hybrid": {
        "kind": "hybrid", "generator": "../generative",
        "priors": [
            {"retriever": "../dense", "weight": 0.5, "temperature": 2.0},
            {"retriever": {"kind": "bm25", "analyzer": {"language": "en"}}},
        ],
    },
    "hops": {
        "kind": "hops", "retriever": "../generative", "hops": {**DYNAMIC, "chains": 2, "done_bias": 0.5},
    },
    "fusion": {
        "kind": "fusion", "members": ["../bm25", "../dense"], "method": "rrf", "weights": [2.0, 0.5],
        "depth": 7,
    },
    "chains": {
        "kind": "fusion",
        "members": [
            {"kind": "hops", "retriever": "../generative", "hops": DYNAMIC},
            {"kind": "hops", "retriever": "../dense", "hops": DYNAMIC},
        ],
    },
    "rescored": {
        "kind": "rescored", "retriever": "../dense", "model": "../encoder", "passages": 3, "weight": 0.5,
    },
}  # fmt: skip
"""A specification of every composite kind, in a folder beside those of its members."""


def write_kinds(place: Path, years: bool = False) -> Path:
    """Folders of the kinds that hold data of their own, a data set, and a cross-encoder.

    ``years``: The passages have metadata.
    """
    data = write_small(place / "data")
    if years:
        passages = list(Corpus.read(data))
        metadata = [{"year": 2000 + number} for number in range(len(passages))]
        Corpus.from_passages(passages, metadata=metadata).write(data / "corpus.jsonl")
    small_retriever(data, beams=20).save_pretrained(place / "generative")
    torch.manual_seed(0)
    biencoder = BiEncoderModel.load(str(tiny_bert(place / "bert")), device="cpu")
    DenseRetriever.assemble(biencoder, Corpus.read(data)).save_pretrained(place / "dense")
    BM25Retriever(Corpus.read(data)).save_pretrained(place / "bm25")
    cross_encoder(place / "encoder")
    return place


def written(folder: Path, spec: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "grls.json").write_text(json.dumps({"format": 1} | spec))
    return folder


def create(folder: Path, kind: str, content: dict[str, Any], opening: Opening | None = None) -> Retriever:
    """Write a composite whose members' paths are relative to its folder, and return the retriever."""
    spec = deepcopy({"kind": kind, **content})
    specs = [spec]
    for one in specs:
        for holder, key in member_keys(one):
            member = holder[key]
            if isinstance(member, dict):
                specs.append(member)
            elif (path := member_path(member, folder)).exists():
                holder[key] = str(path)
    made = compose(spec, opening)
    write_retriever(made, folder, link=True)
    return made.retriever


def write_spec(folder: str | Path, kind: str, content: dict[str, Any]) -> None:
    """Write the folder of a composite, without opening it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_manifest(folder, {"format": FORMAT, "kind": kind, **content})
