"""A retriever as a component of Haystack."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path
from typing import Any, Self

from grls.adapters.documents import hits_of, metadata_of_hit, titled
from grls.api.opening import load
from grls.api.searcher import Searcher
from grls.errors import ConfigError
from grls.io.arguments import Count, checked
from grls.io.ending import needing
from grls.io.files import is_temporary
from grls.models.option_names import Device, PrecisionName
from grls.retrieve.registry import Opening

with needing("haystack", "the component of Haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils.filters import document_matches_filter


@component
class HaystackRetriever:
    """A Haystack component over a searcher: ``query`` in, ``documents`` out.

    A document has the id and the text of its passage, and its metadata with the title as ``title``. In a
    pipeline that is saved, the component stands for the folder of its retriever.

    Args:
        retriever: The retriever, or its folder.
        top_k: Largest number of documents.
        filters: A filter of Haystack, which sees passages as such documents; None: no filter.
        where: A filter over the metadata of passages (:mod:`grls.data.where`); None: no filter.
        device: Where a folder is opened; see :func:`grls.api.opening.load`.
        precision: Precision of the models of a folder.

    Raises:
        ConfigError: ``top_k`` is below 1.
    """

    @checked
    def __init__(
        self,
        retriever: Searcher | str | Path,
        top_k: Count = 10,
        filters: dict[str, Any] | None = None,
        where: str | None = None,
        device: Device = "auto",
        precision: PrecisionName = "float32",
    ):
        self.retriever = retriever
        self.top_k = top_k
        self.filters = filters
        self.where = where
        self.opening = retriever.opening if isinstance(retriever, Searcher) else Opening(device, precision)

    def warm_up(self) -> None:
        """Open the folder of the retriever."""
        self._opened()

    def _opened(self) -> Searcher:
        if not isinstance(self.retriever, Searcher):
            self.retriever = load(
                self.retriever, device=self.opening.device, precision=self.opening.precision
            )
        return self.retriever

    @component.output_types(documents=list[Document])
    @checked
    def run(
        self,
        query: str | None,
        top_k: Count | None = None,
        filters: dict[str, Any] | None = None,
        where: str | None = None,
    ) -> dict[str, list[Document]]:
        """The best passages of a query; the other arguments replace those of the component."""
        searcher, allow = self._opened(), None
        if rule := self.filters if filters is None else filters:
            allow = [
                row["_id"]
                for row in searcher.corpus.records()
                if document_matches_filter(
                    rule,
                    Document(id=row["_id"], content=row["text"], meta=titled(row["metadata"], row["title"])),
                )
            ]
        where = self.where if where is None else where
        hits = hits_of(searcher, query, self.top_k if top_k is None else top_k, where=where, allow=allow)
        return {
            "documents": [
                Document(id=hit.id, content=hit.text, meta=metadata_of_hit(hit), score=hit.score)
                for hit in hits
            ]
        }

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str | None,
        top_k: Count | None = None,
        filters: dict[str, Any] | None = None,
        where: str | None = None,
    ) -> dict[str, list[Document]]:
        """:meth:`run` in asynchronous code."""
        return await to_thread(self.run, query, top_k, filters, where)

    def to_dict(self) -> dict[str, Any]:
        """The component as data; a retriever is its folder.

        Raises:
            ConfigError: The retriever has no folder that stays.
        """
        folder = self.retriever.folder if isinstance(self.retriever, Searcher) else self.retriever
        if folder is None or is_temporary(folder):
            raise ConfigError(
                "the retriever is in memory, or its folder is temporary; a pipeline that is saved needs a "
                "folder that stays: save the retriever, and open its folder."
            )
        options = {"top_k": self.top_k, "filters": self.filters, "where": self.where}
        opening = {"device": self.opening.device, "precision": self.opening.precision}
        data: dict[str, Any] = default_to_dict(self, retriever=str(folder), **options, **opening)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """A component from :meth:`to_dict`; its folder is opened when it is used."""
        restored: Self = default_from_dict(cls, data)
        return restored
