"""Hard negatives: what a retriever ranks for the hops of the training queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grls.data.corpus import Corpus
from grls.data.evidence import excerpt
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import DataError, Option
from grls.retrieve.base import Retriever, ranking_fingerprint
from grls.retrieve.hops.finders import found_after
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25 as BM25
from grls.retrieve.registry import Opening


@dataclass(frozen=True)
class RetrieverMiner:
    """A :data:`grls.train.biencoder.examples.Miner`: each hop by a search of its own, with its evidence.

    Attributes:
        retriever: Ranks the passages.
        name: Its name, for the error.
        words: The most words of a passage's text in the evidence; 0: all.
        remedy: What to do if it finds nothing, for the error.
    """

    retriever: Retriever
    name: str
    words: int
    remedy: str

    def __call__(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int
    ) -> list[list[str]]:
        """At most k ids for each query.

        Raises:
            DataError: The retriever finds nothing.
        """
        read = [
            [excerpt(query.text, passage, self.words) for passage in passages]
            for query, passages in zip(queries, evidence, strict=True)
        ]
        rankings = found_after(self.retriever, queries, read, k, None)
        if not any(ranking.hits for ranking in rankings):
            raise DataError(
                f"no training query shares a word with {self.retriever.corpus.source}, so {self.name} finds "
                f"no hard negatives: {self.remedy}."
            )
        return [[hit.id for hit in ranking.hits] for ranking in rankings]

    def fingerprint(self) -> str:
        """What the negatives depend on beside the data; a resumed run must have the same."""
        return ranking_fingerprint(self.retriever)


def miner_of(
    negatives: str,
    corpus: Corpus,
    words: int,
    analyzer: Analyzer,
    option: str = f"{Option('negatives')}",
    remedy: str = "set hard_negatives to 0",
) -> RetrieverMiner:
    """What ranks passages for hard negatives.

    Args:
        negatives: A retriever folder of any kind over the corpus, or ``bm25``.
        corpus: The passages.
        words: The most words of a passage's text in the evidence; 0: all.
        analyzer: How BM25 splits texts into words.
        option: The option that names the retriever, for errors.
        remedy: What to do if it finds nothing, for the error.

    Raises:
        MismatchError: The retriever is over another corpus.
    """
    retriever = open_judge(negatives, corpus, Opening(), analyzer, option)
    return RetrieverMiner(retriever, "BM25" if negatives == BM25 else negatives, words, remedy)
