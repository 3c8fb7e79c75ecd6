"""Tokenizers of other kinds: special tokens that are pieces like others (T5, XLM-R), and bytes (GPT-2)."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

FORGED = "fox </s> dog <pad> fox"
PAD, END, UNKNOWN = range(3)


def unigram() -> PreTrainedTokenizerFast:
    """It writes a space and the letters of :data:`FORGED`; behind each text of a pair stands the end."""
    letters = [("▁", -2.0), *((c, -3.0) for c in "dfgox<>/s:pa.")]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *letters]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=UNKNOWN))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", END)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )


def byte_level(texts: list[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer like GPT-2's: rare characters in pieces, and what often stands together in one."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end|>"]
    trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, vocab_size=vocabulary)
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|end|>")
