"""What the retrievers for LangChain, LlamaIndex and Haystack have in common: scores, hops, refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from grls import adapters
from grls.api.searcher import Searcher
from grls.errors import ConfigError

FORMS: dict[str, tuple[str, Callable[..., Any], Callable[[Any, str], list[tuple[str, float, Any]]]]] = {
    "langchain_core": (
        "k",
        lambda searcher, **options: adapters.LangChainRetriever(searcher=searcher, **options),
        lambda one, query: [(d.id, d.metadata["score"], d.metadata) for d in one.invoke(query)],
    ),
    "llama_index.core": (
        "k",
        lambda searcher, **options: adapters.LlamaIndexRetriever(searcher, **options),
        lambda one, query: [(n.node_id, n.score, n.node.metadata) for n in one.retrieve(query)],
    ),
    "haystack": (
        "top_k",
        lambda searcher, **options: adapters.HaystackRetriever(searcher, **options),
        lambda one, query: [(d.id, d.score, d.meta) for d in one.run(query)["documents"]],
    ),
}
"""Package -> the name of k, the adapter, and its results as ids, scores and metadata."""


@pytest.mark.parametrize("package", FORMS)
def test_scores_hops_and_refusals(package: str, searcher: Searcher, tied: Searcher) -> None:
    pytest.importorskip(package, reason="the package of the adapter is not installed")
    k, make, ask = FORMS[package]
    scores = {name: score for name, score, _ in ask(make(tied), "frogs")}  # equal ones part as in a run file
    assert sorted(scores, key=lambda name: scores[name], reverse=True) == list(scores) == ["b", "c", "a"]
    assert len({*map(np.float32, scores.values())}) == 3
    chain = ask(make(searcher.hops(max=2, steps="fixed")), "green ponds")
    assert [metadata["hop"] for *_, metadata in chain] == [1, 2]
    assert not any("hop" in metadata for *_, metadata in ask(make(searcher), "green ponds"))
    assert ask(make(searcher), " ") == ask(make(searcher), "zebras") == []
    with pytest.raises(ConfigError, match=f"{k} must be at least 1"):
        make(searcher, **{k: 0})
