"""``grls index``: a retriever folder from a trained model and a corpus."""

from __future__ import annotations

import re
from pathlib import Path
from time import perf_counter
from typing import Literal

from grls.data.codec import LIMITS, Limits, limits_of
from grls.data.corpus import Corpus
from grls.data.spans import VIEWS, By, read_spans
from grls.errors import ConfigError
from grls.index.rows import Form, Rows
from grls.io.files import read_json, refuse_foreign, refuse_unwritable, scratch_folder
from grls.io.logs import quiet
from grls.models.biencoder import BiEncoder
from grls.models.load.build import Pretrained
from grls.models.load.sentence_folder import MODULES
from grls.models.rescore_spec import RESCORE, read_rescore_input
from grls.retrieve.dense.encode import work_folder
from grls.retrieve.dense.retriever import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.spec import MANIFEST

Kind = Literal["auto", "generative", "dense", "st5"]


def index(
    model: str,
    corpus: str,
    output: str,
    kind: Kind = "auto",
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
            as a bi-encoder, by its first decoder output; ``auto``: dense for a folder of
            sentence-transformers and for ``all-MiniLM-L6-v2``, else generative.
        backend: Index backend (generative).
        form: What the index holds of each passage: ``whole``, or ``prefixes``: only what tells it from the
            others, a fraction of the size. That is all that early stop needs; decoding to the end
            (``--early_stop false``, ``full`` scores) and adding passages later are refused then. Backend
            ``array``.
        memory: What building the index may take, as 500MB or 8GB; a larger corpus is sorted on disk, beside
            ``output``. Backend ``array``; model and corpus are not counted.
        max_passage_tokens: Passages are cut to this length; null: as in training (512 for other models).
            Generative; a bi-encoder has the one limit ``max_input_tokens``.
        max_query_tokens: Longest query; null: as in training (256). Generative.
        max_input_tokens: Longest model input, evidence included; null: as in training (512).
        span_words: Words of the spans that the model writes instead of passages from their beginning; 0:
            whole passages; null: as in training (other models write passages). Generative.
        batch_size: Passages embedded together (dense).
        device: Where passages are embedded: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    quiet()
    refuse_foreign(output, MANIFEST)
    refuse_unwritable(output, folder=True)
    if _is_dense(model, kind):
        for name, value in (("passage", max_passage_tokens), ("query", max_query_tokens)):
            if value is not None:
                raise ConfigError(f"a bi-encoder has no max_{name}_tokens; set max_input_tokens instead.")
        if span_words is not None:
            raise ConfigError("a bi-encoder embeds whole passages: leave span_words out.")
        _dense(model, corpus, output, kind, max_input_tokens, batch_size, device)
        return
    limits = {"passage": max_passage_tokens, "query": max_query_tokens, "input": max_input_tokens}
    _generative(model, corpus, output, backend, limits, form, memory_bytes(memory), span_words)


def memory_bytes(text: str) -> int:
    """``2GB`` in bytes (powers of 1,024; KB, MB, GB, TB).

    Raises:
        ConfigError: It is no such size.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([KMGT])i?B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ConfigError(f"expected a size such as 500MB or 8GB as memory, got {text!r}.")
    return int(float(found[1]) * 1024 ** (1 + "KMGT".index(found[2].upper())))


def _is_dense(model: str, kind: Kind) -> bool:
    found = (Path(model) / MODULES).is_file() or model == "all-MiniLM-L6-v2"
    return found if kind == "auto" else kind != "generative"


def _dense(
    model: str, corpus: str, output: str, kind: Kind, max_tokens: int | None, batch_size: int, device: str
) -> None:
    start = perf_counter()
    biencoder = BiEncoder.load(model, "st5" if kind == "st5" else "auto", device, max_tokens)
    passages = Corpus.read(corpus)
    retriever = DenseRetriever.assemble(biencoder, passages, work_folder(output), batch_size, progress=True)
    retriever.save_pretrained(output)
    size = retriever.embeddings.nbytes / 2**20
    print(
        f"{output}: {len(passages):,} passages and DONE, {biencoder.dimension} dimensions, embeddings "
        f"{size:.1f} MiB, {perf_counter() - start:.1f} s"
    )


def _generative(
    model: str,
    corpus: str,
    output: str,
    backend: Literal["array", "marisa", "flat"],
    given: dict[str, int | None],
    form: Form,
    memory: int,
    span_words: int | None,
) -> None:
    source = Pretrained(model)
    loaded = source.load()
    passages = Corpus.read(corpus)
    learned = Path(model) / VIEWS
    span_by: By = "script"
    if learned.is_file() and (cut := read_spans(read_json(learned), learned)) is not None:
        span_words, span_by = (cut[0] if span_words is None else span_words), cut[1]
    learned = Path(model) / RESCORE
    rescore_input = read_rescore_input(read_json(learned), learned) if learned.is_file() else None
    trained = Path(model) / LIMITS
    limits = Limits()
    if trained.is_file():
        limits = limits_of(read_json(trained), trained, "train the model again, or remove the file")
    limits = limits._replace(**{name: value for name, value in given.items() if value is not None})
    with scratch_folder(output) as scratch:
        retriever = GenerativeRetriever.assemble(
            loaded.model,
            loaded.tokenizer,
            passages,
            limits,
            backend,
            progress=True,
            stages=source.stages(),
            form=form,
            memory=memory,
            scratch=scratch,
            span_words=span_words or None,
            span_by=span_by,
            rescore_input=rescore_input,
        )
        retriever.save_pretrained(output)
    rows = retriever.index.rows
    assert isinstance(rows, Rows)
    tokens = len(rows.tokens)
    size = sum(file.stat().st_size for file in (Path(output) / "index").iterdir())
    spans = retriever.spans
    written = "" if spans is None else f"{len(spans):,} spans of {spans.words} words, "
    print(
        f"{output}: {len(passages):,} passages, {written}{len(rows):,} distinct sequences with DONE, "
        f"{tokens:,} tokens{' of unique prefixes' if form == 'prefixes' else ''}, index "
        f"{size / 2**20:.1f} MiB ({size / tokens:.2f} B a token, {size / len(passages):.1f} B a passage)"
    )
