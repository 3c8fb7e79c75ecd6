"""The beam search against transformers' own, against exhaustive scoring, and alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from models_small import END, PAD, VOCABULARY, small_bart, small_bert2bert, small_t5

from grls.decode import Decoder, PrefixAllowedTokens
from grls.decode.score_all import score_all
from grls.decode.select import ragged_logsumexp
from grls.errors import ConfigError
from grls.index import ConstraintIndex, index_sequences
from grls.models.seq2seq.plain import Seq2SeqGenerator

MODELS: dict[str, Callable[[], Any]] = {
    "t5": lambda: small_t5(scale=1.0),
    "t5-untied": lambda: small_t5(scale=1.0, tie=False),
    "bart": small_bart,
    "bert2bert": small_bert2bert,
}


def corpus(count: int = 60, seed: int = 1) -> list[np.ndarray]:
    """Sequences over few tokens, so that prefixes are shared; with a duplicate and a prefix."""
    rng = np.random.default_rng(seed)
    rows = [np.append(rng.integers(3, 9, rng.integers(2, 8)), END) for _ in range(count)]
    return [*rows, rows[0], np.append(rows[1][:2], END)]


def queries(count: int, seed: int = 2) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [[*rng.integers(3, VOCABULARY, rng.integers(2, 9)).tolist(), END] for _ in range(count)]


def generate(model: Any, index: ConstraintIndex, inputs: list[list[int]], renormalize: bool) -> list[Any]:
    """Transformers' best sequence and its score, one query at a time."""
    results = []
    for row in inputs:
        output = model.generate(
            input_ids=torch.tensor([row]), num_beams=5, do_sample=False, max_new_tokens=20,
            prefix_allowed_tokens_fn=PrefixAllowedTokens(index, PAD), renormalize_logits=renormalize,
            length_penalty=0.0, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        tokens = tuple(t for t in output.sequences[0].tolist()[1:] if t != PAD)
        results.append((tokens, float(output.sequences_scores[0])))
    return results


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


@pytest.mark.parametrize("name", MODELS)
def test_head_products_are_used_and_right(name: str) -> None:
    generator = Seq2SeqGenerator(MODELS[name]())
    assert generator.head.linear


@pytest.mark.parametrize("mode", ["full", "renormalized"])
@pytest.mark.parametrize("name", ["t5", "bart"])
def test_beam_as_wide_as_the_corpus_equals_exhaustive_scoring(name: str, mode: Any) -> None:
    generator = Seq2SeqGenerator(MODELS[name]())
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


def test_renormalized_probabilities_of_a_corpus_sum_to_one() -> None:
    generator = Seq2SeqGenerator(small_t5())
    distinct = {tuple(row): row for row in corpus(20)}
    index = index_sequences(list(distinct.values()), END)
    assert np.exp(score_all(generator, index, queries(1)[0])).sum() == pytest.approx(1.0, abs=1e-5)


def test_early_stop_changes_no_score() -> None:
    generator = Seq2SeqGenerator(small_t5())
    index = index_sequences(corpus(), END)
    inputs = queries(30)
    stopped = Decoder(generator, index, beams=8).search(inputs)
    for model_input, hits in zip(inputs, stopped, strict=True):
        scores = score_all(generator, index, model_input)
        assert [h.score for h in hits] == pytest.approx([scores[h.passage] for h in hits], abs=1e-4)


@pytest.mark.parametrize("early_stop", [False, True])
def test_queries_of_a_batch_do_not_influence_one_another(early_stop: bool) -> None:
    generator = Seq2SeqGenerator(small_t5())
    decoder = Decoder(generator, index_sequences(corpus(), END), beams=4, early_stop=early_stop)
    inputs = queries(12)
    together = decoder.search(inputs)
    for model_input, hits in zip(inputs, together, strict=True):
        alone = decoder.search([model_input])[0]
        assert [h.passage for h in alone] == [h.passage for h in hits]
        assert [h.score for h in alone] == pytest.approx([h.score for h in hits], abs=1e-5)


@pytest.mark.parametrize("backend", ["flat", "marisa"])
def test_backends_decode_alike(backend: str) -> None:
    generator = Seq2SeqGenerator(small_t5())
    inputs = queries(6)
    expected = Decoder(generator, index_sequences(corpus(), END)).search(inputs)
    assert Decoder(generator, index_sequences(corpus(), END, backend)).search(inputs) == expected


def test_excluded_passages_are_never_found_and_leave_no_dead_end() -> None:
    generator = Seq2SeqGenerator(small_t5())
    rows = corpus(10)
    index = index_sequences(rows, END)
    decoder = Decoder(generator, index, beams=len(rows))
    everything = decoder.search(queries(1))[0]
    hidden = [hit.passage for hit in everything[:5]]
    left = decoder.search(queries(1), exclude=[hidden])[0]
    twins = {n for n in range(len(rows)) for h in hidden if tuple(rows[n]) == tuple(rows[h])}
    assert {hit.passage for hit in left} == set(range(len(rows))) - twins
    assert np.exp([hit.score for hit in left]).sum() >= 0.999
    assert decoder.search(queries(1), exclude=[list(range(len(rows)))]) == [[]]
    last = next(n for n in range(len(rows)) if n not in twins)
    keep_one = [n for n in range(len(rows)) if tuple(rows[n]) != tuple(rows[last])]
    only = decoder.search(queries(1), exclude=[keep_one])[0]
    assert last in [hit.passage for hit in only]
    assert only[0].score == 0.0


def test_duplicates_prefixes_and_small_corpora() -> None:
    generator = Seq2SeqGenerator(small_t5())
    rows = [np.array([3, 4, END]), np.array([3, END]), np.array([3, 4, END])]
    hits = Decoder(generator, index_sequences(rows, END), beams=5).search(queries(1))[0]
    assert sorted(h.passage for h in hits) == [0, 1, 2]
    assert len({h.score for h in hits if h.passage != 1}) == 1
    one = Decoder(generator, index_sequences(rows[:1], END), beams=5).search(queries(2))
    assert [[h.passage for h in hits] for hits in one] == [[0], [0]]
    assert Decoder(generator, index_sequences([], END), beams=5).search(queries(2)) == [[], []]


def test_non_linear_head_uses_whole_logits() -> None:
    """A model whose logits are not W h + b (here: capped) is noticed and decoded all the same."""
    model = small_t5()
    forward = model.forward

    def capped(**arguments: Any) -> Any:
        output = forward(**arguments)
        output.logits = torch.tanh(output.logits)
        return output

    model.forward = capped
    generator = Seq2SeqGenerator(model)
    assert not generator.head.linear
    index = index_sequences(corpus(10), END)
    model_input = queries(1)[0]
    hits = Decoder(generator, index, beams=12).search([model_input])[0]
    scores = score_all(generator, index, model_input)
    assert [h.score for h in hits] == pytest.approx([scores[h.passage] for h in hits], abs=1e-4)


def test_the_normalizer_of_minus_infinities_is_minus_infinity() -> None:
    values = np.array([-np.inf, -np.inf, 0.0, -np.inf, 1.0])
    found = ragged_logsumexp(values, np.array([0, 2, 2, 4, 5]))
    assert found.tolist() == [-np.inf, -np.inf, 0.0, 1.0]


def test_a_forced_first_token_is_told_and_counted_by_skip() -> None:
    """As facebook/bart's generation config has it: over the constraint, so that no beam begins a passage."""
    model = MODELS["bart"]()
    index, (row,) = index_sequences(corpus(), END), queries(1)
    model.generation_config.forced_bos_token_id = PAD + 2
    options = {"num_beams": 3, "do_sample": False, "max_new_tokens": 20, "length_penalty": 0.0}
    with pytest.raises(ConfigError, match=r"every beam begins with the token 2, .* skip=2"):
        model.generate(
            input_ids=torch.tensor([row]), prefix_allowed_tokens_fn=PrefixAllowedTokens(index, PAD), **options
        )
    allowed = PrefixAllowedTokens(index, PAD, skip=2)
    (written,) = model.generate(input_ids=torch.tensor([row]), prefix_allowed_tokens_fn=allowed, **options)
    tokens = tuple(token for token in written.tolist()[2:] if token != PAD)
    assert tokens in {tuple(index.tokens(n).tolist()) for n in range(len(index))}
