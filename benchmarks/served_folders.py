"""Retriever folders with random weights for the benchmark of the server, over the passages of ``scale``.

Two kinds: a generator that writes whole passages, and that of the default recipe, a generator of spans of 8
words with a bi-encoder and BM25 as priors. Their time is that of trained ones; what they find means nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

from benchmarks import scale

Made = Literal["passages", "spans"]
"""What the generator writes: whole passages, or spans, with priors."""

DESCRIBED: dict[Made, str] = {"passages": "T5-small", "spans": "T5-small that writes spans, with two priors"}
"""The kinds, for the titles of tables."""
_QUERY = 24
"""Tokens of a query, which is as much of each passage as the bi-encoder reads when the folder is built."""


def generated(place: Path, passages: int, kind: Made) -> str:
    """The folder of a retriever over so many generated passages; it is built if it is not there."""
    name = f"serve-{passages}" if kind == "passages" else f"serve-{kind}-{passages}"
    plan = scale.Plan(str(place / name), passages, 100, "2GB", 512, 6, 0, (), 0)
    whole = plan.retriever if kind == "passages" else Path(plan.folder) / "hybrid"
    if not (whole / "grls.json").is_file():
        shutil.rmtree(plan.folder, ignore_errors=True)
        scale.measure_step("generate", plan)
        if kind == "passages":
            scale.measure_step("build", plan)
        else:
            _with_priors(plan, whole)
        shutil.rmtree(plan.data)
    return str(whole)


def _with_priors(plan: scale.Plan, output: Path) -> None:
    """A generator of spans with a bi-encoder and BM25 that look ahead, as the default recipe has it."""
    from grls.index.options import IndexOptions, LimitOptions
    from grls.io.ending import quiet
    from grls.retrieve.build import Building, build
    from grls.retrieve.compose import compose_hybrid
    from grls.retrieve.generative.options import SearchOptions
    from grls.retrieve.hybrid.options import PriorSpec
    from grls.retrieve.registry import Opening

    quiet()
    model, encoder, dense = (str(Path(plan.folder) / name) for name in ("model", "encoder", "dense"))
    spans = IndexOptions(memory=plan.memory, span_words=8)
    build(model, str(plan.data), Building(str(plan.retriever), "generative", spans))
    _write_encoder(model, encoder)
    limits = LimitOptions(input=_QUERY)
    build(encoder, str(plan.data), Building(dense, "dense", limits=limits, device="cpu"))
    priors = [PriorSpec(dense), PriorSpec("bm25")]
    search = SearchOptions(beams=10)
    compose_hybrid(output, plan.retriever, priors, search=search, opening=Opening("cpu"))


def _write_encoder(model: str, encoder: str) -> None:
    """A BERT of the size of all-MiniLM-L6-v2 with random weights, and the tokenizer of the generator."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    made: Any = BertConfig  # its type does not know the fields of every config
    torch.manual_seed(0)
    config = made(
        vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536,
    )  # fmt: skip
    BertModel(config).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)
