"""``grls index``: a retriever folder from a trained model and a corpus."""

from __future__ import annotations

import re
from typing import Literal

from grls.errors import ConfigError
from grls.index.rows import Form
from grls.io.files import refuse_foreign, refuse_unwritable
from grls.io.logs import quiet
from grls.retrieve.build import AUTO, Building, build
from grls.retrieve.spec import MANIFEST


def index(
    model: str,
    corpus: str,
    output: str,
    kind: str = AUTO,
    backend: Literal["array", "marisa", "flat"] = "array",
    form: Form = "whole",
    memory: str = "2GB",
    max_passage_tokens: int | None = None,
    max_query_tokens: int | None = None,
    max_input_tokens: int | None = None,
    span_words: int | None = None,
    batch_size: int = 32,
    device: str = "auto",
) -> None:
    """Build a retriever folder: model, tokenizer, corpus and constraint index, or embeddings.

    A run that was killed while it embedded a corpus goes on where it stopped when it is run again.

    Args:
        model: Folder that a training stage wrote (``<output>/model``), or a hub name.
        corpus: ``corpus.jsonl`` or the data set folder that holds it.
        output: The retriever folder; an earlier one there is replaced.
        kind: ``generative``: the model decodes passages; ``dense``: a bi-encoder; ``st5``: an encoder-decoder
            as a bi-encoder, by its first decoder output; ``sparse``: a sparse encoder (SPLADE);
            ``multi-vector``: late interaction (ColBERT); ``rescored``: a cross-encoder that reads what BM25
            finds; any other that is registered and built from a model;
            ``auto``: what a folder of sentence-transformers says it is, dense for ``all-MiniLM-L6-v2``, else
            generative.
        backend: Index backend (generative).
        form: What the index holds of each passage: ``whole``, or ``prefixes``: only what tells it from the
            others, a fraction of the size. That is all that early stop needs; decoding to the end
            (``--early_stop false``, ``full`` scores) and adding passages later are refused then. Backend
            ``array``.
        memory: What building the index may take, as 500MB or 8GB; a larger corpus is sorted on disk, beside
            ``output``. Backend ``array``; model and corpus are not counted.
        max_passage_tokens: Passages are cut to this length; null: as in training (512 for other models).
            Generative; an encoder has the one limit ``max_input_tokens``.
        max_query_tokens: Longest query; null: as in training (256). Generative.
        max_input_tokens: Longest model input, evidence included; null: as in training (512).
        span_words: Words of the spans that the model writes instead of passages from their beginning; 0:
            whole passages; null: as in training (other models write passages). Generative.
        batch_size: Passages encoded together (not generative).
        device: Where passages are encoded: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    quiet()
    refuse_foreign(output, MANIFEST)
    refuse_unwritable(output, folder=True)
    how = Building(
        output, kind, backend, form, memory_bytes(memory), max_passage_tokens, max_query_tokens,
        max_input_tokens, span_words, batch_size, device,
    )  # fmt: skip
    print(build(model, corpus, how))


def memory_bytes(text: str) -> int:
    """``2GB`` in bytes (powers of 1,024; KB, MB, GB, TB).

    Raises:
        ConfigError: It is no such size.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ConfigError(f"expected a size such as 500MB or 8GB as memory, got {text!r}.")
    return int(float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())))
