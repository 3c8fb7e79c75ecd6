"""Retrievers: queries in, passages out.

``base`` holds the protocol of a single-step retriever (top-k distinct passages of a query). Every other
file is a way to do it, or wraps one: a single-step retriever returns ``list[list[Hit]]``, a multi-step
one ``list[Chain]``, and both are written and scored by ``grls.evaluation`` alike. ``sparse`` is BM25,
``generative`` decodes passages, ``multistep`` goes hop by hop with it until DONE, and
``appending`` turns any single-step text retriever into a fixed multi-step one by appending the passages
found to the query text. Nothing here imports ``grls.train``.
"""

from grls.retrieve.generative import GenerativeRetriever, SearchOptions
from grls.retrieve.multistep import MultistepRetriever

__all__ = ["GenerativeRetriever", "MultistepRetriever", "SearchOptions"]
