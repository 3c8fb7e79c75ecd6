"""A tokenizer whose special tokens are pieces like others, as in T5's and XLM-R's vocabularies."""

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
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
