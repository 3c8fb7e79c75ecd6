"""Opening a retriever folder, whatever kind of retriever is in it, and what priors are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from grls.data.corpus import Corpus
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, DataError
from grls.index.array_files import asked_to_verify
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense.retriever import KIND, DenseRetriever
from grls.retrieve.generative.folder import MANIFEST, manifest_of
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import BM25Prior, DensePrior, PriorSource

BM25 = "bm25"
"""What stands for BM25 where folders of retrievers are named."""


def open_retriever(
    folder: str | Path,
    device: str = "auto",
    precision: str = "float32",
    options: SearchOptions | None = None,
    verify: bool | None = None,
) -> GenerativeRetriever | DenseRetriever:
    """Open what ``grls index`` wrote; ``kind`` in its manifest says what it is (absent: generative).

    Args:
        folder: The retriever folder.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
        precision: ``float32`` or ``bfloat16``; a generator also takes the others of
            :mod:`grls.models.precision`.
        options: How to search; a dense retriever heeds batch size, ``truncate_queries`` and ``progress``.
        verify: Whether checksums are compared: of a generative index, see :func:`grls.index.load_index`;
            those of a dense retriever always are, unless it is False.

    Raises:
        ConfigError: The option ``compile`` or ``rescore`` is set for a dense retriever.
        DataError: The folder is no retriever, or of an unknown kind.
        MismatchError: Its parts do not belong together.
    """
    file = Path(folder) / MANIFEST
    manifest = manifest_of(Path(folder))
    kind = manifest.get("kind", "generative") if isinstance(manifest, dict) else "generative"
    if kind == "generative":  # its own check of the manifest follows
        return GenerativeRetriever.from_pretrained(folder, device, precision, options, verify)
    if kind != KIND:
        raise DataError(f"unknown kind of retriever {kind!r}; make it again with `grls index`.", file)
    given = options or SearchOptions()
    if given.compile:
        raise ConfigError(f"{folder} is a dense retriever, which has no step to compile: leave compile out.")
    if given.rescore:
        raise ConfigError(f"{folder} is a dense retriever, which rescores nothing: leave rescore out.")
    return DenseRetriever.from_pretrained(
        folder,
        device,
        precision,
        batch_size=given.batch_size,
        verify=asked_to_verify(verify) is not False,
        truncate_queries=given.truncate_queries,
        progress=given.progress,
    )


def open_sources(
    corpus: Corpus,
    names: Sequence[str],
    device: str = "auto",
    options: SearchOptions | None = None,
    analyzer: Analyzer = USUAL,
) -> list[PriorSource]:
    """Open what priors are made of.

    Args:
        corpus: What BM25 is over.
        names: Folders of bi-encoders, or ``bm25``.
        device: Where bi-encoders embed.
        options: As of :func:`open_retriever`.
        analyzer: How BM25 splits texts into words.

    Raises:
        ConfigError: A folder holds no bi-encoder.
        DataError: It holds no retriever.
    """
    if options is not None:
        options = replace(options, rescore=0)  # the generator's alone
    sources: list[PriorSource] = []
    for name in names:
        if name == BM25:
            sources.append(BM25Prior(BM25Retriever(corpus, analyzer=analyzer)))
            continue
        opened = open_retriever(name, device, "float32", options)
        if not isinstance(opened, DenseRetriever):
            raise ConfigError(f"{name} is no bi-encoder's folder; a prior is one, or {BM25}.")
        opened.progress = False  # whoever asks shows its own
        sources.append(DensePrior(opened, name))
    return sources
