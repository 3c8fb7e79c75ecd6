"""Tiny models of sentence-transformers that give sparse vectors, or a vector for each token."""

import string
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.base.modules.dense import Dense
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sparse_encoder.modules import SpladePooling
from small_data import tiny_bert
from transformers import BertConfig, BertForMaskedLM, BertTokenizer


def tiny_masked(folder: Path, layers: int = 2, width: int = 16) -> Path:
    """A random masked language model over the words of the small data set."""
    torch.manual_seed(0)
    tokenizer = BertTokenizer.from_pretrained(tiny_bert(folder, layers, width))
    config = BertConfig.from_pretrained(folder)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_splade(folder: Path, layers: int = 2, width: int = 16, **options: Any) -> Path:
    """SPLADE: a masked language model and pooling, as the library saves them."""
    transformer = Transformer(str(tiny_masked(folder / "bert", layers, width)), transformer_task="fill-mask")
    model = SparseEncoder(modules=[transformer, SpladePooling("max")], device="cpu", **options)
    model.save(str(folder / "splade"), create_model_card=False)
    return folder / "splade"


def tiny_colbert(
    folder: Path, similarity: str = "maxsim", layers: int = 2, width: int = 16, **options: Any
) -> Path:
    """ColBERT: a BERT, a projection to 8 dimensions, vectors of length 1, no signs of punctuation."""
    torch.manual_seed(0)
    transformer = Transformer(str(tiny_bert(folder / "bert", layers, width)), **options)
    each = {"module_input_name": "token_embeddings"}
    projection = Dense(width, 8, bias=False, activation_function=torch.nn.Identity(), **each)
    modules = [transformer, projection, MultiVectorMask(list(string.punctuation)), Normalize(**each)]
    prompts = {"query": "is ", "document": "the "}
    model = MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts, similarity_fn_name=similarity)
    model.save(str(folder / "colbert"), create_model_card=False)
    return folder / "colbert"
