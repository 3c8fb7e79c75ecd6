"""The beam search against transformers' own, against exhaustive scoring, and alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from decode_helpers import queries
from failing import raises
from models_small import END, PAD, VOCABULARY, small_bart, small_bert2bert, small_t5
from score_all import score_all
from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM

from grls.constraint.transformers import GenerateProcessor
from grls.decode.beam import Decoder
from grls.decode.select import ragged_logsumexp
from grls.errors import ConfigError
from grls.index.base import ConstraintIndex
from grls.index.build import index_sequences
from grls.models.seq2seq.slots import Seq2SeqGenerator

MODELS: dict[str, Callable[[], Any]] = {
    "t5": lambda: small_t5(scale=1.0),
    "t5-untied": lambda: small_t5(scale=1.0, tie=False),
    "bart": small_bart,
    "bert2bert": small_bert2bert,
}


def small(name: str, **sizes: Any) -> Any:
    torch.manual_seed(0)
    tokens = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": PAD}
    config = CONFIG_MAPPING[name](vocab_size=VOCABULARY, num_heads=4, **tokens, **sizes)
    return AutoModelForSeq2SeqLM.from_config(config).eval()


def experts() -> Any:
    """Not tried by transformers' generate, which fails with it."""
    return small("switch_transformers", d_model=32, d_kv=8, d_ff=64, num_layers=2, num_experts=4)


def corpus(count: int = 60, seed: int = 1) -> list[np.ndarray]:
    """Sequences over few tokens, so that prefixes are shared; with a duplicate and a prefix."""
    rng = np.random.default_rng(seed)
    rows = [np.append(rng.integers(3, 9, rng.integers(2, 8)), END) for _ in range(count)]
    return [*rows, rows[0], np.append(rows[1][:2], END)]


def generate(model: Any, index: ConstraintIndex, inputs: list[list[int]], renormalize: bool) -> list[Any]:
    """Transformers' best sequence and its score, one query at a time."""
    results = []
    for row in inputs:
        output = model.generate(
            input_ids=torch.tensor([row]), num_beams=5, do_sample=False, max_new_tokens=20,
            logits_processor=[GenerateProcessor(index, PAD)], renormalize_logits=renormalize,
            length_penalty=0.0, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        tokens = tuple(t for t in output.sequences[0].tolist()[1:] if t != PAD)
        results.append((tokens, float(output.sequences_scores[0])))
    return results


def test_a_model_whose_steps_are_not_its_one_pass_is_refused() -> None:
    """transformers' ProphetNet: 0.5 apart in logits."""
    sizes = {"num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    model = small("prophetnet", hidden_size=32, init_std=0.3, **sizes, **layers)
    raises(ConfigError, "something else step by step", Seq2SeqGenerator, model)


@pytest.mark.parametrize("mode", ["full", "renormalized"])
@pytest.mark.parametrize("name", MODELS)
def test_equals_generate_of_transformers(name: str, mode: Any) -> None:
    model = MODELS[name]()
    index = index_sequences(corpus(), END)
    inputs = queries(30)
    decoder = Decoder(Seq2SeqGenerator(model), index, beams=5, mode=mode, early_stop=False)
    ours = [hits for start in range(0, 30, 7) for hits in decoder.search(inputs[start : start + 7])]
    theirs = generate(model, index, inputs, renormalize=mode == "renormalized")
    for hits, (tokens, score) in zip(ours, theirs, strict=True):
        assert tuple(index.tokens(hits[0].passage)) == tokens
        assert hits[0].score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize("mode", ["full", "renormalized"])
@pytest.mark.parametrize("make", [MODELS["t5"], MODELS["bart"], experts])
def test_beam_as_wide_as_the_corpus_equals_exhaustive_scoring(make: Callable[[], Any], mode: Any) -> None:
    generator = Seq2SeqGenerator(make())
    rows = corpus(20)
    index = index_sequences(rows, END)
    for model_input in queries(5):
        scores = score_all(generator, index, model_input, mode)
        exact = sorted(range(len(rows)), key=lambda n: (-round(scores[n], 5), n))
        for early_stop in (False, True) if mode == "renormalized" else (False,):
            decoder = Decoder(generator, index, beams=len(rows), mode=mode, early_stop=early_stop)
            hits = decoder.search([model_input])[0]
            assert sorted(h.passage for h in hits) == list(range(len(rows)))
            assert [h.score for h in hits] == pytest.approx([scores[h.passage] for h in hits], abs=1e-4)
            assert [round(h.score, 3) for h in hits] == pytest.approx([scores[n] for n in exact], abs=2e-3)


def test_the_normalizer_of_minus_infinities_is_minus_infinity() -> None:
    values = np.array([-np.inf, -np.inf, 0.0, -np.inf, 1.0])
    found = ragged_logsumexp(values, np.array([0, 2, 2, 4, 5]))
    assert found.tolist() == [-np.inf, -np.inf, 0.0, 1.0]
