"""``grls index``: a retriever folder from a trained model and a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from grls.corpus import Corpus
from grls.files import read_json, refuse_foreign
from grls.logs import quiet
from grls.models.build import Pretrained
from grls.retrieve.generative import MANIFEST, GenerativeRetriever
from grls.text import LIMITS, Limits


def index(
    model: str,
    corpus: str,
    output: str,
    backend: Literal["array", "marisa", "flat"] = "array",
    max_passage_tokens: int | None = None,
    max_query_tokens: int | None = None,
    max_input_tokens: int | None = None,
) -> None:
    """Build a retriever folder: model, tokenizer, corpus and constraint index.

    Args:
        model: Folder that a training stage wrote (``<output>/model``), or a hub name.
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        output: The retriever folder; an earlier one there is replaced.
        backend: Index backend.
        max_passage_tokens: Passages are cut to this length; null: as in training (512 for other models).
        max_query_tokens: Longest query; null: as in training (256).
        max_input_tokens: Longest model input, evidence included; null: as in training (512).
    """
    quiet()
    refuse_foreign(output, MANIFEST)
    source = Pretrained(model)
    loaded = source.load()
    passages = Corpus.read(corpus)
    trained = Path(model) / LIMITS
    limits = Limits(**read_json(trained)) if trained.is_file() else Limits()
    given = {"passage": max_passage_tokens, "query": max_query_tokens, "input": max_input_tokens}
    limits = limits._replace(**{name: value for name, value in given.items() if value is not None})
    retriever = GenerativeRetriever.assemble(
        loaded.model, loaded.tokenizer, passages, limits, backend, progress=True, stages=source.stages()
    )
    retriever.save_pretrained(output)
    rows = retriever.index.rows
    size = sum(file.stat().st_size for file in (Path(output) / "index").iterdir())
    print(
        f"{output}: {len(passages):,} passages, {len(rows):,} distinct sequences with DONE, "
        f"{len(rows.tokens):,} tokens, index {size / 2**20:.1f} MiB ({size / len(rows.tokens):.2f} B a token)"
    )
