"""Recall on the dev queries, by which the best epoch is chosen.

The library's exact evaluation over the corpus, or over a sample of it. With ``by_hop`` every gold passage
is a hop: its query has the gold passages before it as evidence, which is hidden as in the search, and the
remaining ones are right. So all hops count, not the first one alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from torch import Tensor

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages
from grls.data.types import Query
from grls.errors import DataError
from grls.models.biencoder import BiEncoderModel
from grls.models.text_encoder import passage_text
from grls.train.options import BiEncoderOptions

_DEV = "dev"


class Split(NamedTuple):
    queries: Sequence[Query]
    qrels: Qrels
    corpus: Corpus


class HopEvaluator(InformationRetrievalEvaluator):
    """The library's evaluation, where each query cannot find its evidence.

    ``compare``: ``[q, d]`` and ``[p, d]`` embeddings -> ``[q, p]`` scores. ``evidence``: name of a query
    -> ids of the passages that are hidden from it.
    """

    def __init__(
        self, compare: Callable[[Tensor, Tensor], Tensor], evidence: Mapping[str, set[str]], **options: Any
    ):
        super().__init__(**options, score_functions={"dot": self._scores})
        self.evidence = evidence
        self._compare = compare
        column_of = {passage: number for number, passage in enumerate(self.corpus_ids)}
        self._hidden = torch.tensor(
            [(row, column_of[p]) for row, name in enumerate(self.queries_ids) for p in evidence[name]],
            dtype=torch.long,
        ).reshape(-1, 2)
        self._scored = 0

    def _scores(self, queries: Tensor, passages: Tensor) -> Tensor:
        """The scores of all queries with the next passages; those of the evidence are the least."""
        scores = self._compare(queries, passages)
        first = self._scored % len(self.corpus_ids)  # of a further measurement: from the first passage on
        self._scored = first + len(passages)
        rows, columns = self._hidden.T
        in_chunk = (columns >= first) & (columns < self._scored)
        scores[rows[in_chunk], columns[in_chunk] - first] = -torch.inf
        return scores


def dev_metric(k: int) -> str:
    return f"{_DEV}_dot_recall@{k}"


def dev_evaluator(
    encoder: BiEncoderModel, dev: Split, options: BiEncoderOptions, multistep: bool
) -> HopEvaluator:
    gold = {query.id: gold_passages(query, dev.qrels) for query in dev.queries[: options.dev_size]}
    queries = [query for query in dev.queries if gold.get(query.id)]
    if not queries:
        raise DataError(
            "no dev query has a gold passage, which recall needs: set another dev_split, or null for none."
        )
    limit = options.dev_passages
    if limit is None or limit >= len(dev.corpus):
        passages = {passage.id: passage for passage in dev.corpus}
    else:  # gold passages, filled up with drawn ones to ``dev_passages``
        gold_ids = list(dict.fromkeys(name for names in gold.values() for name in names))
        numbers = {number for number in dev.corpus.numbers(gold_ids) if number is not None}
        drawn = random.Random(options.seed).sample(range(len(dev.corpus)), limit)
        numbers |= set(drawn[: max(0, limit - len(numbers))])
        passages = {passage.id: passage for passage in dev.corpus.passages(sorted(numbers))}
    # By name: the text of a query with its evidence, the right passages, and those of the evidence.
    texts: dict[str, str] = {}
    right: dict[str, set[str]] = {}
    evidence: dict[str, set[str]] = {}
    for query in queries:
        names = list(gold[query.id])
        if options.by_hop and multistep:
            for hop in range(len(names)):
                evidence_passages = [passages[name] for name in names[:hop]]
                texts[f"{query.id} {hop}"] = encoder.query_text(query.text, evidence_passages)
                right[f"{query.id} {hop}"] = set(names[hop:])
                evidence[f"{query.id} {hop}"] = set(names[:hop])
        else:
            texts[query.id], right[query.id], evidence[query.id] = query.text, set(names), set()
    k = [options.k]
    return HopEvaluator(
        encoder.scores,
        evidence,
        queries=texts,
        corpus={name: passage_text(passage) for name, passage in passages.items()},
        relevant_docs=right,
        mrr_at_k=k, ndcg_at_k=k, accuracy_at_k=k, precision_recall_at_k=k, map_at_k=k,
        batch_size=max(options.batch_size, 32),
        name=_DEV,
        write_csv=False,
    )  # fmt: skip
