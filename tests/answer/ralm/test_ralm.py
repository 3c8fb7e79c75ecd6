"""In-context RALM: strides, shared scoring against the plain loop, reranking, generation."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import raises
from ralm_helpers import PASSAGES, TEXT, Scripted, begun_tokenizer, byte_tokenizer, causal_model
from transformers import (
    BertConfig,
    BertLMHeadModel,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    XLNetConfig,
    XLNetLMHeadModel,
)

from grls.answer.ralm.options import ExampleOptions, WindowOptions
from grls.answer.ralm.reader import (
    InContextRalm,
    Likelihood,
    ScoredStride,
    Stride,
    TextScorer,
    perplexity,
    strides,
)
from grls.answer.ralm.reranker import PREFIX
from grls.answer.ralm.task import RalmTask, TokenizedText, collect_examples
from grls.answer.writer import room_of
from grls.data.corpus import Corpus
from grls.data.words import count
from grls.errors import ConfigError, DataError
from grls.models.base import positions_in

CORPUS = Corpus.from_passages(PASSAGES)
TOKENIZER = byte_tokenizer()
MODEL = causal_model(TOKENIZER)
BEGUN = begun_tokenizer()
BEGUN_MODEL = causal_model(BEGUN)
SMALL = {"query_tokens": 6, "document_tokens": 12, "window": 64, "cut": 8}

SEEING: dict[str, Any] = {
    "vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
    "intermediate_size": 64, "initializer_range": 0.5, "max_position_embeddings": 64,
}  # fmt: skip


def reader(
    tokens: int | None = None, candidates: int = 0, nothing: str = "\0", begun: bool = False, **options: Any
) -> InContextRalm:
    """``candidates`` are judged by so many tokens before a stride, or by the stride itself."""
    window = WindowOptions(**{**SMALL, **options})
    with_documents = window.documents > 0
    made = InContextRalm(
        BEGUN_MODEL if begun else MODEL, BEGUN if begun else TOKENIZER, window,
        Scripted(CORPUS, nothing) if with_documents else None, CORPUS if with_documents else None,
    )  # fmt: skip
    if candidates:
        made.judge, made.candidates = Likelihood(made.scorer, tokens), candidates
    return made


def plain(documents: list[int], context: list[int], targets: list[int], model: Any = MODEL) -> float:
    """The definition: the whole window through the model for one stride."""
    tokens = [*documents, *context, *targets]
    with torch.inference_mode():
        scores = model(torch.tensor([tokens])).logits[0].log_softmax(-1)
    first = len(tokens) - len(targets)
    return sum(float(scores[first + n - 1, t]) for n, t in enumerate(targets) if first + n > 0)


def window_start(made: InContextRalm, before: int, stride: Stride) -> int:
    """The definition: the least multiple of the cut with which all that is seen fits into the window."""
    fitting = range(0, stride.last + made.options.cut, made.options.cut)
    return next(n for n in fitting if before + stride.last - n <= made.options.window)


def scored(made: InContextRalm, text: list[int]) -> list[ScoredStride]:
    return made.score(text, strides(len(text), made.options))


def test_strides_of_a_text() -> None:
    options = WindowOptions(stride=4, documents=1, document_tokens=8, window=20, cut=2)
    found = strides(21, options)
    assert found == [Stride(n, n + 4) for n in range(0, 20, 4)] + [Stride(20, 21)]
    assert found[3].asks(5) == slice(7, 12)
    assert found[1].asks(32) == slice(0, 4)


@pytest.mark.parametrize(
    ("documents", "stride", "cut"), [(0, 1, 7), (0, 16, 1), (1, 1, 32), (1, 3, 7), (2, 3, 1), (2, 16, 20)]
)
def test_scores_are_those_of_the_plain_loop(documents: int, stride: int, cut: int) -> None:
    made = reader(documents=documents, stride=stride, cut=cut)
    text = made.tokens(TEXT)[:120]
    found = scored(made, text)
    expected = strides(len(text), made.options)
    assert [(row.first, row.last) for row in found] == [(s.first, s.last) for s in expected]
    assert sum(row.tokens for row in found) == len(text) - 1
    for row, some in zip(found, expected, strict=True):
        assert len(row.passages) == (documents if some.first else 0)
        numbers = CORPUS.numbers(row.passages)
        before = [t for n in numbers if n is not None for t in made.document(n)]
        start = window_start(made, len(before), some)
        assert row.log_probability == pytest.approx(
            plain(before, text[start : some.first], text[some.first : some.last]), abs=1e-4
        )


def test_a_text_alone_is_scored_as_its_tokenizer_gives_it() -> None:
    """transformers' own loss over ``tokenizer(text)``, whose first token begins the sequence."""
    made = reader(begun=True, documents=0, stride=4, window=128)
    text = made.tokens(TEXT)[:80]
    whole = torch.tensor([BEGUN(TEXT)["input_ids"][:81]])
    assert whole[0, 0] == BEGUN.bos_token_id == 300
    with torch.inference_mode():
        loss = float(BEGUN_MODEL(whole, labels=whole).loss)
    rows = scored(made, text)
    assert sum(row.tokens for row in rows) == 80
    assert -sum(row.log_probability for row in rows) / 80 == pytest.approx(loss, abs=1e-4)


def test_every_window_begins_with_the_tokenizers_token_and_counts_it() -> None:
    made = reader(begun=True, stride=3, cut=1, nothing="e")
    text = made.tokens(TEXT)[:120]
    seen: list[torch.Tensor] = []
    hook = BEGUN_MODEL.register_forward_pre_hook(
        lambda _, __, named: seen.append(named["input_ids"]), with_kwargs=True
    )
    rows = scored(made, text)
    hook.remove()
    assert {int(row[0]) for batch in seen for row in batch} == {300}
    assert max(int((row != 0).sum()) for batch in seen for row in batch) == 63  # the last token is no input
    for row in rows:
        before = [
            300,
            *(t for n in CORPUS.numbers(row.passages) if n is not None for t in made.document(n)),
        ]
        start = window_start(made, len(before), Stride(row.first, row.last))
        expected = plain(before, text[start : row.first], text[row.first : row.last], BEGUN_MODEL)
        assert row.log_probability == pytest.approx(expected, abs=1e-4)
    assert len({bool(row.passages) for row in rows[1:]}) == 2
    with pytest.raises(ConfigError, match="1 tokens that the tokenizer puts first"):
        reader(begun=True, document_tokens=52, stride=4, cut=8)


def test_perplexity_by_hand() -> None:
    rows = [ScoredStride(0, 2, (), math.log(1 / 2), 1), ScoredStride(2, 4, ("a",), math.log(1 / 32), 2)]
    found = perplexity(rows, count("two words"))
    assert found.token == pytest.approx(4.0)  # 64 ** (1 / 3)
    assert found.word == pytest.approx(8.0)
    assert (found.tokens, found.words, found.strides, found.without) == (3, 2, 2, 1)
    raises(DataError, "at least two tokens", perplexity, [ScoredStride(0, 1, (), 0.0, 0)], 1)


@pytest.mark.parametrize(("tokens", "longest"), [(5, 12), (60, 40)])
def test_zero_shot_takes_the_document_under_which_the_prefix_ends_best(tokens: int, longest: int) -> None:
    """A long candidate leaves less than 60 tokens: all candidates are judged by these."""
    made = reader(tokens, 3, stride=4, cut=4, document_tokens=longest)
    text = made.tokens(TEXT)[:90]
    some = strides(len(text), made.options)[1:]
    candidates = made.candidates_for(text, some)
    assert {len(found) for found in candidates} == {3}
    chosen = made.documents_for(text, some)
    for stride, found, best in zip(some, candidates, chosen, strict=True):
        windows = [(made.document(n), window_start(made, len(made.document(n)), stride)) for n in found]
        cut = max(0, stride.first - tokens, *[start for _, start in windows])
        scores = [plain(own, text[start:cut], text[cut : stride.first]) for own, start in windows]
        assert best == (found[int(np.argmax(scores))],)


def test_equally_good_candidates_stay_in_the_retrievers_order() -> None:
    class Equal:
        def scores(self, text: Any, strides: Any, candidates: Any) -> list[np.ndarray]:
            return [np.zeros(len(numbers)) for numbers in candidates]

    made = reader(None, 3, stride=4, documents=2)
    made.judge = Equal()
    text = made.tokens(TEXT)[:30]
    some = strides(len(text), made.options)[1:]
    retrieved = [tuple(found[:2]) for found in made.candidates_for(text, some)]
    assert made.documents_for(text, some) == retrieved


def test_the_oracle_is_never_worse() -> None:
    text = reader().tokens(TEXT)[:150]
    with_oracle = reader(None, 4, stride=4)
    found = scored(with_oracle, text)
    retrieved = scored(reader(stride=4), text)
    assert all(a.log_probability >= b.log_probability - 1e-5 for a, b in zip(found, retrieved, strict=True))
    assert sum(a.passages != b.passages for a, b in zip(found, retrieved, strict=True)) > 5


def test_examples_hold_the_likelihood_of_the_stride_behind_each_candidate(tmp_path: Path) -> None:
    made = reader(None, 3, stride=4)
    text = made.tokens(TEXT)[: PREFIX + 20]
    run = RalmTask(made, [TokenizedText("t", 0, text)], {}, str(tmp_path / "x"))
    options = ExampleOptions(every=2)
    collect_examples(run, options)
    file = tmp_path / "x.examples.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    blocks = [json.loads(line) for line in lines[1:]]
    places = [some.first for some in strides(len(text), made.options)][1::2]
    assert len(blocks) == len(places)
    for example, first in zip(blocks, places, strict=True):
        assert example["prefix"] == TOKENIZER.decode(text[max(0, first - PREFIX) : first])
        for name, score in zip(example["passages"], example["scores"], strict=True):
            number = CORPUS.numbers([name])[0]
            assert number is not None
            before = made.document(number)
            start = window_start(made, len(before), Stride(first, min(first + 4, len(text))))
            assert score == pytest.approx(plain(before, text[start:first], text[first : first + 4]), abs=1e-4)
    file.write_text("".join(lines[:4]))
    collect_examples(run, options)
    assert file.read_text() == "".join(lines)
    some = reader(None, 3, stride=4, nothing="e")  # no passages for some strides
    collect_examples(run._replace(reader=some, output=str(tmp_path / "y")), options)
    others = [json.loads(line) for line in (tmp_path / "y.examples.jsonl").read_text().splitlines()[1:]]
    assert {len(other["passages"]) for other in others} == {0, 3}


@pytest.mark.parametrize(
    "model",
    [
        BertLMHeadModel(BertConfig(**SEEING)),  # no decoder, and transformers opens it all the same
        Gemma3ForCausalLM(
            Gemma3TextConfig(**SEEING, head_dim=8, num_key_value_heads=2, use_bidirectional_attention=True)
        ),
    ],
)
def test_a_model_that_sees_what_is_to_come_has_no_perplexity(model: Any) -> None:
    tokens = torch.tensor([[3, 4, 5], [3, 4, 6]])
    first, second = model.eval()(input_ids=tokens).logits[:, 1]
    assert not torch.allclose(first, second, atol=1e-2)
    raises(ConfigError, "sees later tokens", TextScorer, model, lambda number: [])
    causal = BertLMHeadModel(BertConfig(**SEEING, is_decoder=True))
    TextScorer(causal, lambda number: [])


def test_a_model_without_a_limit_of_positions_is_judged_by_what_it_sees() -> None:
    """XLNet's config says -1 positions, which is no limit; it sees the whole input at once."""
    config = XLNetConfig(vocab_size=len(TOKENIZER), d_model=32, n_layer=1, n_head=4, d_inner=64)
    assert config.max_position_embeddings == -1
    assert positions_in(config) is None
    model = XLNetLMHeadModel(config).eval()
    assert room_of(model, 10) == math.inf
    with pytest.raises(ConfigError, match="XLNetLMHeadModel sees later tokens"):
        InContextRalm(model, TOKENIZER, WindowOptions(documents=0, window=512))


def test_white_space_asks_for_nothing() -> None:
    """Indentation and blank lines: many retrievers refuse an empty query."""
    made = reader(stride=2, query_tokens=2)
    text = TOKENIZER("the barn" + " " * 24 + "on monday")["input_ids"]
    some = strides(len(text), made.options)
    found = made.candidates_for(text, some)
    assert isinstance(made.retriever, Scripted)
    assert all(query.strip() for query in made.retriever.queries)
    blank = [not TOKENIZER.decode(text[stride.asks(2)]).strip() for stride in some]
    assert any(blank[1:])
    assert [not own for own in found] == [True, *blank[1:]]
