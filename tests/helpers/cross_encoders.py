"""Tiny cross-encoders over the words of the small data set."""

from pathlib import Path

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from small_data import tiny_bert
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, GPT2Config, GPT2LMHeadModel

CHAT = "{% for m in messages %}{{ m.role }} {{ m.content }} [SEP] {% endfor %}calm [CLS]"
"""A template for a query and a passage, with special tokens of its own."""


def plain_classifier(folder: Path, labels: int = 1, seed: int = 0, width: int = 16) -> Path:
    """A random BERT classifier as transformers saves it."""
    torch.manual_seed(seed)
    tiny_bert(folder, layers=1, width=width)
    config = BertConfig.from_pretrained(folder, num_labels=labels)
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(5)  # so that passages differ
    model.save_pretrained(folder)
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder


def cross_encoder(folder: Path, labels: int = 1, seed: int = 0, width: int = 16) -> Path:
    """The same as sentence-transformers saves it; its own activation is a sigmoid."""
    plain = plain_classifier(folder.with_name(f"{folder.name}-plain"), labels, seed, width)
    model = CrossEncoder(str(plain), device="cpu", trust_remote_code=False)
    model.save(str(folder), create_model_card=False)
    return folder


def causal_reranker(folder: Path, yes: int = 9, no: int = 12, template: str | None = None) -> Path:
    """A causal model with learned positions, padded on the left: the library's scores depend on the batch."""
    tokenizer = BertTokenizer.from_pretrained(tiny_bert(folder / "bert"))
    tokenizer.chat_template = template
    torch.manual_seed(3)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64, "initializer_range": 0.3}
    network = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), pad_token_id=0, **sizes))
    for part in (network, tokenizer):
        part.save_pretrained(folder / "lm")
    reader = Transformer(str(folder / "lm"), transformer_task="text-generation")
    CrossEncoder(modules=[reader, LogitScore(yes, no)], device="cpu").save(
        str(folder / "model"), create_model_card=False
    )
    return folder / "model"
