"""Hard negatives: what a retriever ranks for the training queries."""

from __future__ import annotations

from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.words import Analyzer
from grls.errors import DataError
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25 as BM25
from grls.retrieve.registry import Opening
from grls.train.biencoder.options import BiEncoderOptions


def mined_rankings(
    queries: Sequence[Query], corpus: Corpus, options: BiEncoderOptions, negatives: str, analyzer: Analyzer
) -> list[list[str]]:
    """The passages that a retriever ranks for each query; none where no hard negatives are drawn.

    Args:
        queries: The training queries.
        corpus: Their passages.
        options: ``hard_negatives``.
        negatives: A retriever folder of any kind over the corpus, or ``bm25``.
        analyzer: How BM25 splits texts into words.

    Raises:
        DataError: The retriever finds nothing.
        MismatchError: The retriever is over another corpus.
    """
    if not options.hard_negatives:
        return []
    most = max(len(query.evidence) for query in queries)
    miner = open_judge(negatives, corpus, Opening(), analyzer, "--negatives")
    rankings = miner.retrieve(queries, options.ranked + most)
    if not any(rankings):
        raise DataError(
            f"no training query shares a word with {corpus.source}, so "
            f"{'BM25' if negatives == BM25 else negatives} finds no hard negatives: set hard_negatives to 0."
        )
    return [[hit.id for hit in hits] for hits in rankings]
