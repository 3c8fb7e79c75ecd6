"""A small causal model with a byte-level tokenizer, and a retriever that always finds the same for a text."""

import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from grls.data.corpus import Corpus
from grls.data.filters import Allow, Numbered
from grls.data.types import Hit, Passage, Query
from grls.errors import ConfigError

PASSAGES = [
    Passage("a", "the mill was built by the river and burned down in spring", "mill"),
    Passage("b", "a barn is red and stands behind the mill"),
    Passage("c", "rain fell on monday, and on tuesday the river rose", "rain"),
    Passage("d", "an otter is calm and quick"),
]
TEXT = "the red barn stands by the river. rain fell on the mill, and an otter was calm on monday. " * 3


def byte_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<eos>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT, *(p.text for p in PASSAGES)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<eos>")


def begun_tokenizer() -> PreTrainedTokenizerFast:
    """The same with a token (300) that it puts before every text, as those of Llama, Mistral and Gemma do."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"bos_token": "<bos>"})
    begin = [("<bos>", tokenizer.bos_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", None, begin)
    return tokenizer


def causal_model(tokenizer: PreTrainedTokenizerFast, positions: int = 128, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=positions,
        initializer_range=0.3, bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def write_model(folder: Path, positions: int = 128, seed: int = 0) -> Path:
    tokenizer = byte_tokenizer()
    causal_model(tokenizer, positions, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


class Scripted:
    """Ranks passages by a checksum of query and passage; finds nothing for a query that holds ``nothing``."""

    def __init__(self, corpus: Corpus, nothing: str = "\0"):
        self.corpus = corpus
        self.nothing = nothing
        self.queries: list[str] = []

    def retrieve(self, queries: Sequence[Query], k: int, allow: Allow = None) -> list[list[Hit]]:
        numbers = range(len(self.corpus))
        if isinstance(allow, Numbered):
            numbers = allow.passages.tolist()
        elif allow is not None:
            raise ConfigError("no such filter here")
        self.queries += [query.text for query in queries]
        ids = self.corpus.ids(list(numbers))
        found = []
        for query in queries:
            scores = {name: zlib.crc32(f"{query.text[-6:]}|{name}".encode()) for name in ids}
            best = sorted(ids, key=lambda name: -scores[name])[:k]
            found.append([] if self.nothing in query.text else [Hit(name, scores[name]) for name in best])
        return found
