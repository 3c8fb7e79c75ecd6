"""What the tests of this folder read and do not change, made once a process."""

from pathlib import Path

import pytest
import torch
from llama_small import write_llama
from small_data import tiny_bert

from grls.data.corpus import Corpus
from grls.models.biencoder import BiEncoderModel


@pytest.fixture(scope="session")
def corpus(data: Path) -> Corpus:
    return Corpus.read(data)


@pytest.fixture(scope="session")
def llama(data: Path) -> Path:
    return write_llama(data.parent / "llama", data)


@pytest.fixture(scope="session")
def biencoder(data: Path) -> BiEncoderModel:
    torch.manual_seed(0)
    return BiEncoderModel.load(str(tiny_bert(data.parent / "bert")), device="cpu", similarity="dot")
