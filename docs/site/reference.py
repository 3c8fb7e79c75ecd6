"""The Python pages: which modules' docstrings are shown, and in what order."""

from typing import NamedTuple

import grls


class Page(NamedTuple):
    """A page of the reference.

    Args:
        title: Its heading.
        what: A sentence below the heading.
        names: Objects or modules whose docstrings are shown.
    """

    title: str
    what: str
    names: tuple[str, ...]


PAGES = {
    "grls": Page("grls", "What `import grls` brings.", tuple(f"grls.{name}" for name in grls.__all__)),
    "data": Page(
        "grls.data",
        "Passages, queries and their files; filters.",
        ("grls.data.types", "grls.data.corpus", "grls.data.dataset", "grls.data.filters", "grls.data.where"),
    ),
    "constraint-index": Page(
        "grls.index",
        "The constraint index: which tokens may follow a prefix.",
        (
            "grls.index.base",
            "grls.index.backends",
            "grls.index.build",
            "grls.index.storage",
            "grls.index.options",
        ),
    ),
    "models": Page(
        "grls.models",
        "Encoders of queries and passages, for kinds of your own.",
        ("grls.models.text_encoder", "grls.models.biencoder", "grls.retrieve.encoded"),
    ),
    "decode": Page(
        "grls.decode",
        "The constrained beam search.",
        ("grls.decode.beam", "grls.decode.fast", "grls.decode.select", "grls.decode.prior"),
    ),
    "constraint": Page(
        "grls.constraint",
        "The constraint in engines of others.",
        (
            "grls.constraint",
            "grls.constraint.transformers",
            "grls.constraint.vllm",
            "grls.constraint.sglang",
            "grls.constraint.layouts",
        ),
    ),
    "retrieve": Page(
        "grls.retrieve",
        "Retrievers, and the registry of their kinds.",
        (
            "grls.retrieve.base",
            "grls.retrieve.registry",
            "grls.retrieve.options",
            "grls.retrieve.spec",
            "grls.retrieve.bm25",
            "grls.retrieve.generative.retriever",
            "grls.retrieve.dense",
            "grls.retrieve.hybrid.retriever",
            "grls.retrieve.hops.retriever",
            "grls.retrieve.hops.stop",
        ),
    ),
    "evaluation": Page(
        "grls.evaluation",
        "Measures, and whether a difference is chance.",
        ("grls.evaluation.evaluate", "grls.evaluation.measures", "grls.evaluation.significance"),
    ),
    "adapters": Page(
        "grls.adapters",
        "Retrievers in other libraries.",
        (
            "grls.adapters.langchain",
            "grls.adapters.llama_index",
            "grls.adapters.haystack",
            "grls.adapters.pyterrier",
            "grls.adapters.mteb",
        ),
    ),
    "runs": Page("grls.runs", "Runs: read, written, compared.", ("grls.runs.run", "grls.runs.trec")),
    "answer": Page(
        "grls.answer",
        "A language model that reads what a retriever returns.",
        ("grls.answer.options", "grls.answer.direct", "grls.answer.iterative"),
    ),
    "errors": Page("grls.errors", "The errors, each with a remedy in its text.", ("grls.errors",)),
}
"""Name of the page -> the page."""


def pages() -> dict[str, str]:
    """Place in the site -> its text."""
    return {_place(name): _text(page) for name, page in PAGES.items()}


def places() -> list[str]:
    """The places of the pages, in their order."""
    return [_place(name) for name in PAGES]


def _place(name: str) -> str:
    return f"reference/python/{name}.md"


def _text(page: Page) -> str:
    blocks = "\n\n".join(f"::: {name}" for name in page.names)
    return f"# {page.title}\n\n{page.what}\n\n{blocks}\n"
