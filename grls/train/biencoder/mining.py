"""Hard negatives: what a retriever ranks for the hops of the training queries."""

from __future__ import annotations

from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.evidence import excerpt
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import DataError
from grls.retrieve.hops.appending import found_after
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25 as BM25
from grls.retrieve.registry import Opening
from grls.train.biencoder.examples import Miner


def miner_of(
    negatives: str,
    corpus: Corpus,
    words: int,
    analyzer: Analyzer,
    option: str = "--negatives",
    remedy: str = "set hard_negatives to 0",
) -> Miner:
    """What ranks passages for hard negatives: each hop by a search of its own, with its evidence.

    Args:
        negatives: A retriever folder of any kind over the corpus, or ``bm25``.
        corpus: The passages.
        words: The most words of a passage's text in the evidence; 0: all.
        analyzer: How BM25 splits texts into words.
        option: The option that names the retriever, for errors.
        remedy: What to do if it finds nothing, for the error.

    Raises:
        DataError: When it is called: the retriever finds nothing.
        MismatchError: The retriever is over another corpus.
    """
    retriever = open_judge(negatives, corpus, Opening(), analyzer, option)

    def mine(queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int) -> list[list[str]]:
        read = [
            [excerpt(query.text, passage, words) for passage in passages]
            for query, passages in zip(queries, evidence, strict=True)
        ]
        rankings = found_after(retriever, queries, read, k, None)
        if not any(ranking.hits for ranking in rankings):
            raise DataError(
                f"no training query shares a word with {corpus.source}, so "
                f"{'BM25' if negatives == BM25 else negatives} finds no hard negatives: {remedy}."
            )
        return [[hit.id for hit in ranking.hits] for ranking in rankings]

    return mine
