"""The hops of a data set as examples of a reranker: query and evidence, a right passage and wrong ones.

The examples are those of a bi-encoder (:class:`grls.train.biencoder.examples.BiEncoderExamples`): the wrong
passages are drawn anew each epoch, as is the order of evidence that has none, and they are drawn from the
ranking of a retriever that has read the evidence. The loss of a reranker (:mod:`grls.train.reranker.module`)
becomes the listwise one of localized contrastive estimation (Gao et al. 2021, arXiv 2101.08751), since only
the right passage makes the hop likely. DONE is not among the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grls.answer.ralm.reranker import RerankExample
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels
from grls.data.types import Passage, Query
from grls.data.words import USUAL
from grls.errors import Option
from grls.models.cross_encoder import query_with_evidence
from grls.train.biencoder.examples import BiEncoderExamples, miner_of
from grls.train.biencoder.options import PairOptions
from grls.train.reranker.options import RerankHopOptions

WRONG = -20.0
"""Log-probability (nats) of a hop after a wrong passage; after the right one it is 0."""


class RerankHops(Sequence[RerankExample]):
    """The hops of queries; number n + e * length is hop n as it is in epoch e.

    Args:
        queries: The queries.
        qrels: Their judgements.
        corpus: The passages.
        options: The options of the examples.
        seed: Seed of all draws.

    Raises:
        DataError: There is no query, a query has no gold passage, a gold passage is not in the corpus, or the
            corpus has too few other passages for the hard negatives.
        MismatchError: The retriever of hard negatives is over another corpus.

    Attributes:
        negatives_fingerprint: What the hard negatives depend on beside the data.
    """

    def __init__(
        self, queries: Sequence[Query], qrels: Qrels, corpus: Corpus, options: RerankHopOptions, seed: int = 0
    ):
        pairs = PairOptions(
            options.multistep, False, options.shuffle, options.evidence_words, options.hard_negatives, seed
        )
        named = f"{Option('hops.negatives')}", f"name another retriever by {Option('hops.negatives')}"
        miner = miner_of(options.negatives, corpus, options.evidence_words, USUAL, *named)
        self.negatives_fingerprint = miner.fingerprint()
        self._pairs = BiEncoderExamples(queries, qrels, corpus, _Queries(), pairs, miner)

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[RerankExample]:
        """The hops as they are in the first epoch."""
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> RerankExample:  # type: ignore[override]
        """The example, with the texts of its passages, the right one first."""
        epoch, hop = divmod(number, len(self))
        pair = self._pairs.draw(hop, epoch)
        scores = (0.0, *[WRONG] * (len(pair.passages) - 1))
        return RerankExample(pair.query, pair.passages, scores)


class _Queries:
    """Makes the texts of queries as a cross-encoder reads them."""

    evidence_words = 0

    def query_text(self, query: str, evidence: Sequence[Passage] = ()) -> str:
        """A query and the passages retrieved so far."""
        return query_with_evidence(query, evidence, self.evidence_words)
