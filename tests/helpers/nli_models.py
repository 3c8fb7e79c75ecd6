"""Small models of entailment that learned one word: what has ``red`` in its premise follows."""

import random
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

PLAIN = ("it", "is", "the", "barn", "answer", "to", "question", "what", "so", "a", "'", ":", ".")
OTHERS = ("blue", "grey", "green")
WORDS = ("red", *OTHERS, *PLAIN, "premise", "hypothesis", "1", "0")


def _pairs(count: int) -> list[tuple[str, str, bool]]:
    """Premise, hypothesis, and whether it follows; half of the premises have the word, once."""
    draw = random.Random(0)
    found = []
    for n in range(count):
        premise = [*draw.choices(PLAIN, k=draw.randint(0, 9)), *draw.choices(OTHERS, k=draw.randint(0, 1))]
        premise += ["red"] if n % 2 else []
        draw.shuffle(premise)
        found.append((" ".join(premise or ["it"]), " ".join(draw.choices(PLAIN, k=8)), bool(n % 2)))
    return found


PAIRS = _pairs(160)


def classifier(folder: Path, labels: tuple[str, ...] = ("neutral", "entailment", "contradiction")) -> Path:
    """A BERT with 40 positions."""
    torch.manual_seed(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        id2label=dict(enumerate(labels)), label2id={label: n for n, label in enumerate(labels)},
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = BertTokenizer.from_pretrained(folder)
    encoded = tokenizer([p for p, _, _ in PAIRS], [h for _, h, _ in PAIRS], padding=True, return_tensors="pt")
    wanted = torch.tensor([1 if follows else 2 for *_, follows in PAIRS])
    if "entailment" in labels:
        _learn(model, lambda: model(**encoded, labels=wanted).loss)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def writer(folder: Path) -> Path:
    """A T5 that writes 1 or 0."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    vocabulary = {word: n for n, word in enumerate(["<pad>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="</s>", pad_token="<pad>", unk_token="<unk>", padding_side="right"
    )
    config = T5Config(
        vocab_size=len(vocabulary), d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2,
        dropout_rate=0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    encoded = tokenizer(
        [f"premise: {p} hypothesis: {h}" for p, h, _ in PAIRS], padding=True, return_tensors="pt"
    )
    encoded.pop("token_type_ids", None)
    wanted = torch.tensor([[vocabulary["1" if follows else "0"], 1] for *_, follows in PAIRS])
    _learn(model, lambda: model(**encoded, labels=wanted).loss)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _learn(model: Any, loss: Any) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(120):
        value = loss()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    assert value.item() < 0.1
    model.eval()
