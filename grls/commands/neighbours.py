"""``grls neighbours``: which passages are near to which, for memorisation and for chains of passages."""

from __future__ import annotations

from time import perf_counter

from grls.commands.opening import refuse_other_corpus
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.io.files import refuse_unwritable
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.retrieve.base import Retriever
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.neighbours import by_retriever, by_shared_words
from grls.retrieve.registry import open_retriever


def neighbours(
    data: str,
    output: str,
    retriever: str | None = None,
    rare: int | None = None,
    k: int = 10,
    batch_size: int = 32,
    device: str = "auto",
    analyzer: Analyzer = USUAL,
) -> None:
    """Find the passages that are near to each passage, by BM25 unless another judge is named.

    OUTPUT (.safetensors) is what `--data.reading.neighbours` of training and `--links` of `grls
    pseudo-queries` read.

    Args:
        data: Data set folder, or its corpus.jsonl.
        output: File to write.
        retriever: Retriever folder over this corpus that `grls index` wrote, as a bi-encoder's, in the place
            of BM25.
        rare: Passages are near if they share words that at most so many passages have, in the place of BM25.
        k: Neighbours a passage, at most.
        batch_size: Passages read together by a retriever folder.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        analyzer: How BM25 (or --rare) splits texts into words: language, stemming and function words.
    """
    quiet()
    if retriever is not None and rare is not None:
        raise ConfigError("give either --retriever FOLDER or --rare COUNT, or neither for BM25.")
    refuse_unwritable(output)
    corpus = Corpus.read(data)
    start = perf_counter()
    found = by_shared_words(corpus, k, rare, analyzer) if rare is not None else _retrieved(
        data, corpus, retriever, k, batch_size, device, analyzer
    )  # fmt: skip
    found.write(output, corpus)
    each = (found.numbers >= 0).sum() / len(corpus)
    print(
        f"{output}: {len(corpus):,} passages, {each:.1f} neighbours each by {found.by}, "
        f"{perf_counter() - start:.1f} s"
    )


def _retrieved(
    data: str,
    corpus: Corpus,
    folder: str | None,
    k: int,
    batch_size: int,
    device: str,
    analyzer: Analyzer,
) -> Neighbours:
    judge: Retriever
    if folder is None:
        judge = BM25Retriever(corpus, analyzer=analyzer)
    else:
        judge = open_retriever(
            folder, device, options=SearchOptions(batch_size=batch_size, truncate_queries=True)
        )
        refuse_other_corpus(judge, data, "", corpus)
    with Progress(len(corpus), "neighbours", "passages") as bar:
        return by_retriever(judge, corpus, k, "bm25" if folder is None else folder, bar.update)
