"""A retriever for LlamaIndex, which needs ``llama-index-core`` alone."""

from __future__ import annotations

from asyncio import to_thread
from typing import Any

from grls.adapters.documents import hits_of, metadata_of_hit
from grls.api.searcher import Searcher
from grls.io.arguments import Count, checked
from grls.io.ending import needing

with needing("llama-index", "the retriever for LlamaIndex"):
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode


class LlamaIndexRetriever(BaseRetriever):
    """A LlamaIndex retriever over a searcher.

    A node has the id and the text of its passage, and its metadata with the title as ``title``.

    Args:
        searcher: The retriever.
        k: Largest number of nodes.
        where: A filter over the metadata of passages (:mod:`grls.data.where`); None: no filter.
        options: Those of LlamaIndex's own class: ``callback_manager``, ``verbose``, …

    Raises:
        ConfigError: ``k`` is below 1.
    """

    @checked
    def __init__(self, searcher: Searcher, k: Count = 10, where: str | None = None, **options: Any):
        super().__init__(**options)
        self.searcher = searcher
        self.k = k
        self.where = where

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = hits_of(self.searcher, query_bundle.query_str, self.k, where=self.where)
        nodes = [TextNode(id_=hit.id, text=hit.text, metadata=metadata_of_hit(hit)) for hit in hits]
        return [NodeWithScore(node=node, score=hit.score) for node, hit in zip(nodes, hits, strict=True)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await to_thread(self._retrieve, query_bundle)
