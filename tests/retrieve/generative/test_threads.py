"""Retrievers that several threads use at once: each finds what it finds alone, and stays whole."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import torch
from models_small import small_llama
from small_data import queries, small_retriever
from unigram import unigram

from grls.answer.writer import TextWriter
from grls.models.causal.slots import CausalGenerator
from grls.models.head import Head
from grls.retrieve.generative.retriever import GenerativeRetriever

THREADS, CALLS = 6, 18


@pytest.fixture(scope="module")
def retriever(data: Path) -> GenerativeRetriever:
    return small_retriever(data)


def at_once(ask: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(ask, range(CALLS)))


def same_as_alone(ask: Callable[[int], Any]) -> None:
    alone = [ask(n) for n in range(CALLS)]
    assert at_once(ask) == alone
    assert [ask(n) for n in range(4)] == alone[:4]


def test_single_step_with_several_widths(retriever: GenerativeRetriever) -> None:
    """k sets the width of the beam, so the kept search is another one from call to call."""
    asked = queries()
    same_as_alone(lambda n: retriever.retrieve([asked[n % len(asked)]], 1 + n % 3 * 12))


def test_a_search_that_fails_leaves_the_model_to_the_next(retriever: GenerativeRetriever) -> None:
    expected = retriever.retrieve(queries()[:1], 3)

    def fails(*_: Any, **__: Any) -> Sequence[Any]:
        raise KeyboardInterrupt

    run = retriever.slot_decoder
    retriever.slot_decoder = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        retriever.retrieve(queries()[:1], 3)
    retriever.slot_decoder = run  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(retriever.retrieve, queries()[:1], 3).result(timeout=60) == expected


def test_a_head_that_is_caught_by_many_threads_is_put_back() -> None:
    model = small_llama()
    head = Head(model)
    tokens = torch.tensor([[3, 4, 5]])
    expected = model(input_ids=tokens).logits

    def ask(_: int) -> bool:
        with torch.inference_mode():
            return torch.allclose(head.all(head.read(input_ids=tokens, use_cache=False)), expected, atol=1e-5)

    assert all(at_once(ask))
    assert "forward" not in model.get_output_embeddings().__dict__
    assert torch.equal(model(input_ids=tokens).logits, expected)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, head: head.all(torch.ones(2, 32)).tolist(),
        lambda model, head: TextWriter(model, unigram(), max_new_tokens=4).write([[3, 4, 5]]),
        lambda model, head: type(CausalGenerator(model)),
    ],
    ids=["reads logits", "writes", "is tried"],
)
def test_who_uses_a_model_waits_for_the_search_that_drives_it(use: Callable[[Any, Head], Any]) -> None:
    """A head that is caught answers with zeros, which whoever uses it then would take for logits."""
    model = small_llama()
    head = Head(model)
    expected = use(model, head)
    with ThreadPoolExecutor(1) as pool:
        with head.catch():
            other = pool.submit(use, model, head)
            assert not wait([other], timeout=0.2).done, "it waits for its turn"
        assert other.result(timeout=60) == expected


def test_retrievers_are_made_while_others_search(retriever: GenerativeRetriever) -> None:
    asked, parts = queries(), (retriever.model, retriever.codec.tokenizer, retriever.corpus)

    def ask(n: int) -> Any:
        some = retriever if n % 3 else GenerativeRetriever.assemble(*parts, options=retriever.options)
        return some.retrieve([asked[n % len(asked)]], 3)

    same_as_alone(ask)
