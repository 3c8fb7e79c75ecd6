"""Retrievers where users are already: LangChain, LlamaIndex, Haystack, PyTerrier, MTEB.

An adapter wraps a :class:`~grls.api.searcher.Searcher` of any kind, so what is tuned in its folder holds. Its
package is an extra of the same name, and is imported when the adapter is used first.

``langchain`` and ``llama_index`` hold their retrievers, ``haystack`` its component, ``pyterrier`` its
transformer, and ``mteb`` its search protocol and tasks. ``documents`` reads the metadata of hits. DSPy: the
modules of :mod:`grls.answer.dsp.retrieval`.
"""

from typing import TYPE_CHECKING

from grls.io.recipes import on_demand

if TYPE_CHECKING:
    from grls.adapters.haystack import HaystackRetriever as HaystackRetriever
    from grls.adapters.langchain import LangChainRetriever as LangChainRetriever
    from grls.adapters.llama_index import LlamaIndexRetriever as LlamaIndexRetriever
    from grls.adapters.mteb import MTEBSearch as MTEBSearch
    from grls.adapters.mteb import MTEBTask as MTEBTask
    from grls.adapters.pyterrier import PyTerrierRetriever as PyTerrierRetriever

_MODULES = {
    "HaystackRetriever": "haystack",
    "LangChainRetriever": "langchain",
    "LlamaIndexRetriever": "llama_index",
    "MTEBSearch": "mteb",
    "MTEBTask": "mteb",
    "PyTerrierRetriever": "pyterrier",
}
"""Public name -> its module."""

__all__ = list(_MODULES)

__getattr__ = on_demand(__name__, _MODULES)
