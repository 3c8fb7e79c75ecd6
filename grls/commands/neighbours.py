"""``grls prepare neighbours``: the passages near to each passage, for memorisation and chains of passages."""

from __future__ import annotations

from time import perf_counter

from grls.data.corpus import Corpus
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.io.files import refuse_unwritable
from grls.io.progress import Progress, counted
from grls.models.option_names import Precision
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25, Opening


def neighbours(
    *,
    data: str,
    output: str,
    retriever: str = BM25,
    rare: int | None = None,
    k: int = 10,
    search: SearchOptions = USUAL_SEARCH,
    device: str = "auto",
    precision: Precision = "float32",
    analyzer: Analyzer = USUAL,
) -> None:
    """Find the passages near to each passage.

    OUTPUT (.safetensors) is what `--data.reading.neighbours` of training and `--links` of `grls prepare
    pseudo-queries` read.

    Args:
        data: Data set folder, or its corpus.jsonl.
        output: File to write.
        retriever: Retriever that finds the neighbours: a retriever folder of any kind over this corpus, or
            bm25.
        rare: In place of a retriever: neighbours are passages with rare words in common, which at most this
            many passages hold; null: use the retriever.
        k: Largest number of neighbours of a passage.
        search: Options of search of a retriever folder; ``batch_size`` counts passages.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: Precision of the model of a retriever folder.
        analyzer: How bm25 (or --rare) splits texts into words: language, stemming and function words.
    """
    from grls.retrieve.neighbours import by_retriever, by_shared_words

    if retriever != BM25 and rare is not None:
        raise ConfigError("give either --retriever FOLDER or --rare COUNT, or neither for BM25.")
    refuse_unwritable(output)
    corpus = Corpus.read(data)
    start = perf_counter()
    if rare is not None:
        nearest = by_shared_words(corpus, k, rare, analyzer)
    else:
        judge = open_judge(retriever, corpus, Opening(device, precision, search), analyzer, "--retriever")
        with Progress(len(corpus), "neighbours", "passages") as bar:
            nearest = by_retriever(judge, corpus, k, retriever, bar.update)
    nearest.write(output, corpus)
    each = (nearest.numbers >= 0).sum() / len(corpus)
    print(
        f"{output}: {counted(len(corpus), 'passage')}, {each:.1f} neighbours each by {nearest.by}, "
        f"{perf_counter() - start:.1f} s"
    )
