"""Retrievers that several threads use at once: each finds what it finds alone, and stays whole."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_data import queries, small_retriever, tiny_bert, write_small
from transformers import LlamaConfig, LlamaForCausalLM

from grls.answer.ralm.resumed import _write
from grls.models.biencoder import BiEncoderModel
from grls.models.causal.plain import CausalGenerator
from grls.models.head import Head
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hybrid.priors import EmptyPromptPrior, RetrieverPrior
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource

THREADS, CALLS = 6, 36


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> GenerativeRetriever:
    return small_retriever(write_small(tmp_path_factory.mktemp("threads") / "data"))


def at_once(ask: Callable[[int], Any]) -> list[Any]:
    """The results of the calls, by several threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(ask, range(CALLS)))


def same_as_alone(ask: Callable[[int], Any]) -> None:
    """What threads find is what one finds, before and after."""
    alone = [ask(n) for n in range(CALLS)]
    assert at_once(ask) == alone
    assert [ask(n) for n in range(4)] == alone[:4]


def test_single_step_with_several_widths(retriever: GenerativeRetriever) -> None:
    """k sets the width of the beam, so the kept search is another one from call to call."""
    asked = queries()
    same_as_alone(lambda n: retriever.retrieve([asked[n % len(asked)]], 1 + n % 3 * 12))


def test_chains_and_priors(retriever: GenerativeRetriever) -> None:
    asked = queries()
    chains = HopsRetriever(retriever, HopOptions("dynamic", 2))
    weighed = [WeightedSource(RetrieverPrior(BM25Retriever(retriever.corpus)), 0.5, 1.0),
               WeightedSource(EmptyPromptPrior(retriever), -0.2)]  # fmt: skip
    hybrid = HybridRetriever(retriever, weighed)

    def ask(n: int) -> Any:
        some = [asked[n % len(asked)]]
        return chains.retrieve_chains(some) if n % 2 else hybrid.retrieve(some, 3)

    same_as_alone(ask)


def test_others_are_used_by_threads_as_well(retriever: GenerativeRetriever, tmp_path: Path) -> None:
    biencoder = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    dense = DenseRetriever.assemble(biencoder, retriever.corpus)
    words, asked = BM25Retriever(retriever.corpus), queries()
    same_as_alone(lambda n: [r.retrieve([asked[n % len(asked)]], 3) for r in (dense, words)])


def test_a_search_that_fails_leaves_the_model_to_the_next(retriever: GenerativeRetriever) -> None:
    expected = retriever.retrieve(queries()[:1], 3)

    def fails(*_: Any, **__: Any) -> Sequence[Any]:
        raise KeyboardInterrupt

    run = retriever._fast
    retriever._fast = fails  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        retriever.retrieve(queries()[:1], 3)
    retriever._fast = run  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(retriever.retrieve, queries()[:1], 3).result(timeout=60) == expected


def test_a_head_that_is_caught_by_many_threads_is_put_back() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes)).eval()
    head = Head(model)
    tokens = torch.tensor([[3, 4, 5]])
    expected = model(input_ids=tokens).logits

    def ask(_: int) -> bool:
        with torch.inference_mode():
            return torch.allclose(head.all(head.read(input_ids=tokens, use_cache=False)), expected, atol=1e-5)

    assert all(at_once(ask))
    assert "forward" not in model.get_output_embeddings().__dict__
    assert torch.equal(model(input_ids=tokens).logits, expected)


def test_what_writes_with_a_model_waits_for_what_drives_it() -> None:
    """A head that is caught answers with zeros, which whoever writes in that moment would take for logits."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes)).eval()
    ralm: Any = SimpleNamespace(model=model)
    expected = _write(ralm, [[3, 4, 5]], 4, {1}, {})
    with ThreadPoolExecutor(1) as pool:
        with Head(model).catch():
            other = pool.submit(_write, ralm, [[3, 4, 5]], 4, {1}, {})
            assert not wait([other], timeout=0.3).done, "it waits for its turn"
        assert other.result(timeout=60) == expected


def test_a_head_that_another_thread_has_exchanged_is_waited_for() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=12, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    head = Head(LlamaForCausalLM(config))
    hidden = torch.randn(2, 8)
    with ThreadPoolExecutor(1) as pool, torch.no_grad():
        expected = head.all(hidden)
        with head.catch():
            found = pool.submit(head.all, hidden)
            assert not wait([found], 0.2).done
        assert torch.equal(found.result(), expected)


def test_a_model_is_tried_in_turn() -> None:
    """A trial beside another thread's search would read what the search makes of the model."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes)).eval()
    with ThreadPoolExecutor(1) as pool:
        with Head(model).catch():
            other = pool.submit(CausalGenerator, model)
            assert not wait([other], timeout=0.3).done, "it waits for its turn"
        other.result(timeout=60)


def test_retrievers_are_made_while_others_search(retriever: GenerativeRetriever) -> None:
    asked, parts = queries(), (retriever.model, retriever.codec.tokenizer, retriever.corpus)

    def ask(n: int) -> Any:
        some = retriever if n % 3 else GenerativeRetriever.assemble(*parts, options=retriever.options)
        return some.retrieve([asked[n % len(asked)]], 3)

    same_as_alone(ask)
