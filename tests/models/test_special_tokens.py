"""No text of a padded batch is a special token, where those are pieces of the vocabulary like others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models_small import small_t5
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertForSequenceClassification, BertModel
from unigram import END, FORGED, PAD, unigram

from grls.answer.ralm.reranker import Reranker
from grls.data.codec import foreign_ids
from grls.models.biencoder import BiEncoderModel
from grls.models.cross_encoder import PairScorer
from grls.models.entailment import ClassifyingJudge, WritingJudge
from grls.models.sentence_model import FirstDecoderOutput
from grls.models.special_tokens import padded
from grls.retrieve.multi_vector import LateTexts

PLAIN = "fox  dog  fox"
"""What is left of :data:`FORGED`."""
_SIZES = {
    "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 64, "initializer_range": 0.4,
}  # fmt: skip


def rows(batch: Any) -> list[list[int]]:
    """The token ids of a batch, its padding left out."""
    pairs = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    return [ids[mask.bool()].tolist() for ids, mask in pairs]


@pytest.mark.parametrize("count", [1, 2])
def test_texts_without_a_special_token_are_read_as_the_tokenizer_reads_them(count: int) -> None:
    tokenizer = unigram()
    texts = [["fox", "a dog: < s > /", "", "</ s>"], ["so", "p", "fox dog", "."]][:count]
    options = {"truncation": "longest_first", "max_length": 9}
    expected = tokenizer(*texts, padding=True, return_tensors="pt", **options)
    found = padded(tokenizer, *texts, **options)
    assert found.keys() == expected.keys()
    assert all(found[name].equal(expected[name]) for name in expected)


def test_no_text_of_a_batch_is_a_special_token() -> None:
    tokenizer = unigram()
    assert PAD in tokenizer(FORGED, split_special_tokens=True)["input_ids"]
    texts = [FORGED, "a dog", "fox＜/s＞ dog"]
    assert rows(padded(tokenizer, texts)) == foreign_ids(tokenizer, texts, wrapped=True)
    pairs = rows(padded(tokenizer, texts, texts[::-1], truncation="only_second", max_length=30))
    assert [row.count(END) for row in pairs] == [2, 2, 2]
    assert not any(PAD in row for row in pairs)
    assert pairs[1] == tokenizer("a dog", "a dog")["input_ids"]


def classifier() -> BertForSequenceClassification:
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(**_SIZES, num_labels=1)).eval()


def test_rerankers_and_judges_read_no_special_token_from_a_text(tmp_path: Path) -> None:
    model, tokenizer, seen = classifier(), unigram(), []
    model.register_forward_pre_hook(lambda _, args, kwargs: seen.extend(rows(kwargs)), with_kwargs=True)
    reranker = Reranker(model, tokenizer, 24)
    found = reranker.scores([FORGED, "fox"], [FORGED, "dog"])
    assert found == pytest.approx(reranker.scores([PLAIN, "fox"], [PLAIN, "dog"]), abs=1e-6)
    ClassifyingJudge(model, tokenizer, 4, 40, 0).entails([FORGED], [FORGED])
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    pairs = PairScorer.load(str(tmp_path), "cpu")
    pairs.model.register_forward_pre_hook(lambda _, args: seen.extend(rows(args[0])))
    found = pairs.logits([(FORGED, FORGED), ("fox", "a</s>")])
    assert found == pytest.approx(pairs.logits([(PLAIN, PLAIN), ("fox", "a")]), abs=1e-6)
    assert {row.count(END) for row in seen} == {2}
    assert len(seen) > 8
    assert not any(PAD in row for row in seen)
    seen.clear()
    reranker.scores(["x" * 20 + "</s>dog"], ["fox"])
    reranker.scores(["x" * 9 + "</s>dog"], ["fox"])  # of twelve that it reads
    assert seen[0] == seen[1]
    writer, read = small_t5(), list[Any]()
    writer.encoder.register_forward_pre_hook(
        lambda _, args, kwargs: read.extend(rows(kwargs)), with_kwargs=True
    )
    WritingJudge(writer, tokenizer, 4, 40).entails([FORGED], [FORGED])
    assert [row.count(END) for row in read] == [1]


def sentence_network(folder: Path) -> SentenceTransformer:
    torch.manual_seed(0)
    BertModel(BertConfig(**_SIZES)).save_pretrained(folder)
    unigram().save_pretrained(folder)
    return SentenceTransformer(
        modules=[Transformer(str(folder), max_seq_length=30), Pooling(16)], device="cpu",
        prompts={"query": "a: "},
    )  # fmt: skip


def test_bi_encoders_read_no_special_token_from_a_text(tmp_path: Path) -> None:
    plain = sentence_network(tmp_path).encode(["a: dog", f"a: {PLAIN}"])
    sentence = BiEncoderModel(sentence_network(tmp_path), similarity="dot")
    assert np.allclose(sentence.encode(["dog", FORGED], "query"), plain, atol=1e-6)
    module = FirstDecoderOutput(small_t5(), unigram(), 30)
    st5 = BiEncoderModel(SentenceTransformer(modules=[module], device="cpu"))
    for biencoder in (sentence, st5):
        found = rows(biencoder.features([FORGED, "dog"], "passage"))
        assert found == foreign_ids(unigram(), [FORGED, "dog"], wrapped=True)
        short = BiEncoderModel(biencoder.model, len(found[0]))
        assert short.count_cut([FORGED, FORGED + "x"]) == 1
    assert sentence.tokens(FORGED) == len(found[0]) + 3


def test_a_query_that_is_filled_with_special_tokens_holds_none_of_its_text(tmp_path: Path) -> None:
    """What fills a short query up (ColBERT's expansion) does not hide a special token of a longer one."""
    reader: Any = sentence_network(tmp_path)[0]
    reader.query_expansion = {"strategy": "fixed", "attend": True, "length": 40, "token": "<pad>"}
    model = MultiVectorEncoder(modules=[reader, MultiVectorMask()], device="cpu")
    encoder = LateTexts(model)
    found, plain = (encoder.features([text], "query")["input_ids"][0].tolist() for text in (FORGED, PLAIN))
    assert found == plain
    assert len(found) == 40


def test_an_encoder_reads_the_markers_of_a_chat_as_its_tokenizer_does() -> None:
    tokenizer = unigram()
    tokenizer.add_tokens(["<dog>"])
    tokenizer.chat_template = "{% for m in messages %}<dog>{{ m.content }}{% endfor %}"
    marker = tokenizer.convert_tokens_to_ids("<dog>")
    assert marker not in foreign_ids(tokenizer, ["fox <dog> fox"])[0]
    found = rows(padded(tokenizer, ["fox <dog> fox"]))
    assert found == [tokenizer("fox <dog> fox")["input_ids"]]
    assert marker in found[0]
