"""A data set of three passages, and a small model that learned to quote them."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from grls.answer.riches.options import PromptOptions
from grls.answer.riches.prompts import prompted
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.models.load.build import train_tokenizer

PASSAGES = [
    Passage("a", "The mill was built in 1820. Orla Finn owned it.", "Mill"),
    Passage("b", "The barn burned down. It was red.", "Barn"),
    Passage("c", "<b>Rain</b> fell on Monday.", "Rain & wind"),
]
QUERIES = [
    Query("q1", "who owned the mill", ("a",), ("Orla Finn",), '{"answers": ["Orla Finn"]}'),
    Query("q2", "what was red", ("b",), ("the barn",), '{"answers": ["the barn"]}'),
]
TEXTS = ["answer: Orla Finn", "Answer: so", "question: « The barn » answer: \n", " «", " »", "« »", ": « It"]


def quoting(path: Path) -> Path:
    """A data set in ``data``, and in ``model`` one that learned by heart to quote and to answer."""
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    write_dataset(path / "data", PASSAGES, QUERIES, {"test": qrels})
    seen = path / "seen"
    seen.mkdir()
    Corpus.from_passages([*PASSAGES, Passage("t", " ".join(TEXTS))]).write(seen / "corpus.jsonl")
    prompts = "\n".join(json.dumps({"_id": f"p{n}", "text": text}) for n, text in enumerate(TEXTS))
    (seen / "queries.jsonl").write_text(prompts + "\n", encoding="utf-8")
    tokenizer = train_tokenizer(seen, 400)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    _learn(model, tokenizer)
    model.save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    return path


WRITTEN = {"q1": "owner: « Orla Finn owned it. » answer: Orla Finn", "q2": "« It was red. » answer: the barn"}


def _learn(model: Any, tokenizer: Any) -> None:
    rows = []
    for query in QUERIES:
        prompt = prompted(PromptOptions(), tokenizer, [query.text], causal=True)[0]
        target = tokenizer(WRITTEN[query.id], add_special_tokens=False)["input_ids"]
        rows.append((prompt, [*target, tokenizer.eos_token_id]))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(150):
        loss = torch.zeros(())
        for prompt, target in rows:
            tokens = torch.tensor([[*prompt, *target]])
            labels = torch.tensor([[-100] * len(prompt) + target])
            loss = loss + model(input_ids=tokens, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
    model.eval()
