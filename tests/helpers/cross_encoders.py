"""Tiny cross-encoders over the words of the small data set."""

from pathlib import Path

import torch
from sentence_transformers import CrossEncoder
from small_data import tiny_bert
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer


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
