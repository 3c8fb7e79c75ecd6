"""BM25 over any corpus, without training: ``grls.BM25(["otters eat fish .", …]).search("…")``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from grls.api.searcher import Searcher
from grls.api.temporary import HeldFolder
from grls.data.inputs.arguments import checked
from grls.data.inputs.corpora import corpus_of
from grls.data.words import Analyzer
from grls.io.files import refuse_foreign, refuse_unwritable
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.bm25_options import BM25Options, Variant
from grls.retrieve.spec import MANIFEST


class BM25(Searcher):
    """BM25 over a corpus.

    Args:
        corpus: The passages, in any form that :func:`~grls.data.inputs.corpora.corpus_of` takes: a list of
            texts, a dict, a data frame, a data set, a path.
        k1: Term-frequency saturation; see :class:`~grls.retrieve.bm25_options.BM25Options`.
        b: Length normalization.
        method: The variant of BM25.
        analyzer: Splits texts into words; None: by the language that is guessed from the passages.
        output: The retriever folder, which ``grls.load`` opens; an earlier one there is replaced; None: a
            temporary folder, removed with this object.

    Raises:
        ConfigError: An option is out of range, or ``output`` holds something else.
        DataError: There is no such corpus, or no passage has a word.
        WriteError: The folder cannot be written.
    """

    @checked
    def __init__(
        self,
        corpus: Any,
        k1: float = 1.5,
        b: float = 0.75,
        method: Variant = "lucene",
        analyzer: Analyzer | None = None,
        *,
        output: str | Path | None = None,
    ):
        options = BM25Options(k1, b, method)
        if output is not None:
            refuse_foreign(output, MANIFEST)
            refuse_unwritable(output, folder=True)
        place = HeldFolder(output)
        with place.named("BM25"):
            retriever = BM25Retriever(corpus_of(corpus), **asdict(options), analyzer=analyzer)
            retriever.save_pretrained(place.path)
        super().__init__(retriever, place)
