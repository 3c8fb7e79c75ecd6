"""A retriever as a transformer of PyTerrier, for pipelines and ``pt.Experiment``; it needs no Java."""

from __future__ import annotations

from typing import Any

import pandas as pd

from grls.adapters.documents import is_blank, parted
from grls.api.searcher import Searcher
from grls.data.types import Hit, Query
from grls.io.arguments import Count, checked
from grls.io.ending import needing
from grls.retrieve.hits import returns_chain

with needing("pyterrier", "the transformer for PyTerrier"):
    import pyterrier as pt


class PyTerrierRetriever(pt.Transformer):
    """A PyTerrier transformer over a searcher: a frame of queries in, a frame of results out.

    The columns ``docno``, ``score`` and ``rank`` (from 0) follow those of the queries. Ranks are in the order
    of the searcher, and scores are those of a run file, which fall strictly. Of fixed and dynamic hops the
    results are the best chain, each passage once, and ``hop`` is the hop that found it, from 1.

    Args:
        searcher: The retriever.
        k: Largest number of results of a query. The beam of a generator is at least as wide.
        where: A filter over the metadata of passages (:mod:`grls.data.where`); None: no filter.
        texts: Also return ``text`` and ``title``.

    Raises:
        ConfigError: ``k`` is below 1.
    """

    @checked
    def __init__(self, searcher: Searcher, k: Count = 1000, where: str | None = None, texts: bool = False):
        super().__init__()
        self.searcher = searcher
        self.k = k
        self.where = where
        self.texts = texts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.searcher!r}, k={self.k}, where={self.where!r})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The results of a frame of queries with the columns ``qid`` and ``query``.

        A query without text (missing, or left empty by a step before) has no results.
        """
        pt.validate.query_frame(inp, extra_columns=["query"])
        inp = inp[~inp["query"].map(is_blank).astype(bool)]
        queries = [Query(str(name), text) for name, text in zip(inp["qid"], inp["query"], strict=True)]
        results_of_queries = self.searcher.search(queries, self.k, where=self.where) if queries else []
        rankings = []
        for hits in results_of_queries:
            distinct: dict[str, Hit] = {}
            for hit in hits:
                distinct.setdefault(hit.id, hit)  # hops may repeat a passage, a ranking may not
            rankings.append(parted(list(distinct.values())))
        rows = [(rank, hit) for hits in rankings for rank, hit in enumerate(hits, pt.model.FIRST_RANK)]
        columns: dict[str, Any] = {
            "docno": pd.Series([hit.id for _, hit in rows], dtype=object),
            "score": pd.Series([hit.score for _, hit in rows], dtype=float),
            "rank": pd.Series([rank for rank, _ in rows], dtype=int),
        }
        if returns_chain(self.searcher.retriever):
            columns["hop"] = pd.Series([hit.hop for _, hit in rows], dtype=int)
        if self.texts:
            columns["text"] = pd.Series([hit.text for _, hit in rows], dtype=object)
            columns["title"] = pd.Series([hit.title for _, hit in rows], dtype=object)
        results = pd.DataFrame(columns)
        numbers = [number for number, hits in enumerate(rankings) for _ in hits]
        rest = inp.drop(columns=list(results.columns), errors="ignore")
        return pd.concat([rest.iloc[numbers].reset_index(drop=True), results], axis=1)
