"""A retriever for LangChain, which needs ``langchain-core`` alone."""

from __future__ import annotations

from asyncio import to_thread
from typing import Any

from grls.adapters.documents import hits_of, metadata_of_hit
from grls.api.searcher import Searcher
from grls.io.arguments import Count, fitted_argument, refuse_unknown_arguments
from grls.io.ending import needing

with needing("langchain", "the retriever for LangChain"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import model_validator


class LangChainRetriever(BaseRetriever):
    """A LangChain retriever over a searcher.

    ``invoke`` takes ``k`` and ``where`` for one query. A document has the id and the text of its passage, and
    its metadata with ``id``, ``score`` and ``title``, which replace fields of the same names.
    """

    searcher: Searcher
    """The retriever."""
    k: int = 10
    """Largest number of documents."""
    where: str | None = None
    """A filter over the metadata of passages (:mod:`grls.data.where`); None: no filter."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unfit(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """An error of ours for a wrong value or an unknown name, as of every other call."""
        refuse_unknown_arguments(cls.__name__, fields, cls.model_fields)
        kinds = {"searcher": Searcher, "k": Count, "where": str | None}
        own = {name: kind for name, kind in kinds.items() if name in fields}
        return fields | {name: fitted_argument(cls.__name__, name, own[name], fields[name]) for name in own}

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        where: str | None = None,
    ) -> list[Document]:
        """The best passages of a query; ``k`` and ``where`` override those of the retriever."""
        k, where = self.k if k is None else k, self.where if where is None else where
        documents = []
        for hit in hits_of(self.searcher, query, k, where=where):
            metadata = {"title": "", **metadata_of_hit(hit), "id": hit.id, "score": hit.score}
            documents.append(Document(hit.text, id=hit.id, metadata=metadata))
        return documents

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        where: str | None = None,
    ) -> list[Document]:
        """The same in asynchronous code."""
        options = {"run_manager": run_manager.get_sync(), "k": k, "where": where}
        return await to_thread(self._get_relevant_documents, query, **options)
