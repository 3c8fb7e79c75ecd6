"""Quotes are whole characters, with every kind of tokenizer."""

from typing import Any

import numpy as np
import pytest
import torch
from fixture_types import Patch
from tokenizers import Tokenizer, decoders, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from unigram import byte_level

from grls.answer.riches import keys as key_module
from grls.answer.riches.answerer import Riches
from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode.interleave import markers
from grls.decode.interleave.markers import TextMarkers
from grls.decode.interleave.options import InterleaveOptions
from grls.decode.interleave.search import KEY, Interleaver, LiveBeam
from grls.errors import DataError

TEXTS = ["東京は日本の首都です。", "Zürich é ü 😀 ok", "a � b"]
CORPUS = Corpus.from_passages([Passage(name, text) for name, text in zip("abc", TEXTS, strict=True)])


def byte_fallback() -> Any:
    """As Llama's: a character that is no token is several bytes."""
    vocabulary = {"<unk>": 0, "</s>": 1} | {f"<0x{byte:02X}>": byte + 2 for byte in range(256)}
    bpe = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    bpe.decoder = decoders.Sequence(parts)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>", unk_token="<unk>")


TOKENIZERS = {"byte level": byte_level(TEXTS, 275), "byte fallback": byte_fallback()}


def answers(tokenizer: Any, **options: Any) -> tuple[Riches, list[Any]]:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=4096,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    keys = build_keys(CORPUS, tokenizer, KeyOptions("paragraph", True))
    given = InterleaveOptions(beams=3, batch_size=8, **options)
    some = Riches(LlamaForCausalLM(config).eval(), tokenizer, CORPUS, keys, options=given)
    some.markers = Always(some.markers)  # a random model does not write markers
    queries = [Query(f"q{n}", f"which {n}", ()) for n in range(8)]
    return some, some.answer(queries)


class Always:
    """Markers by which a quote begins at the third token."""

    def __init__(self, markers: Any):
        self._markers = markers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._markers, name)

    def opens(self, tokens: Any) -> bool:
        return len(tokens) == 3


@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_quotes_are_whole_characters(name: str) -> None:
    _, found = answers(TOKENIZERS[name], max_new_tokens=60)
    quotes = [quote for written in found for quote in written.quotes if quote.closed]
    assert quotes
    for quote in quotes:
        assert quote.text
        assert all(quote.text in key for key in quote.keys)


@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_no_quote_begins_within_a_character(name: str) -> None:
    """Every byte is as likely: those that may come first are a space, or the first ones of characters."""
    tokenizer = TOKENIZERS[name]
    keys = build_keys(CORPUS, tokenizer, KeyOptions("paragraph", True))
    options = InterleaveOptions(beams=300)
    begin = LiveBeam(0, (1,), mode=KEY, state=keys.index.start(), first=1)
    writer: Any = Interleaver(None, keys.index, TextMarkers(tokenizer), (), options)  # type: ignore[arg-type]
    after = writer.after([begin], torch.zeros(1, len(tokenizer)))
    known = markers.token_bytes(tokenizer)
    begins = {known[token][:1] for token in after.tokens}
    assert begins <= {character.encode()[:1] for text in TEXTS for character in f" {text}"}
    assert len(begins) > 10


@pytest.mark.parametrize("name", list(TOKENIZERS))
def test_which_tokens_are_characters(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    inside = set(markers.within(tokenizer).tolist())
    for text in ("é", "日本", "😀", "a é", "�"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        known = markers.token_bytes(tokenizer)
        assert b"".join(known[token] for token in ids).decode() == text
        assert ids[0] not in inside


def test_a_key_that_is_too_long_names_its_passage(monkeypatch: Patch) -> None:
    monkeypatch.setattr(key_module, "MAX_LENGTH", 40)
    corpus = Corpus.from_passages([Passage("short", "It is."), Passage("long", "word " * 40)])
    with pytest.raises(DataError, match=r"'long' has 2\d\d tokens.*at most 39 fit"):
        build_keys(corpus, TOKENIZERS["byte fallback"], KeyOptions("sentence"))
    assert np.all(build_keys(corpus, TOKENIZERS["byte fallback"], KeyOptions("sentence", True)).texts)
