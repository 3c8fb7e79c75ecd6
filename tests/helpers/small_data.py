"""A data set small enough to know by heart: animals, two traits each, two rules."""

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from grls.data.codec import Limits, add_special_tokens
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.identifiers import FOLDER
from grls.data.types import Passage, Query
from grls.identifiers.spans import Spans
from grls.models.load.build import train_tokenizer
from grls.models.load.generators import ScratchT5
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.spec import TIME

ANIMALS = ("otter", "heron", "badger", "lynx")
RULES = {"kind": ("calm", "r0"), "proud": ("quick", "r1")}

GOOD = {"_id": "p0", "title": "", "text": "the otter is calm .", "metadata": {}}
"""A line of ``corpus.jsonl``."""

TRICKY = [
    Passage("a", 'tabs\tand "quotes" and {braces}\nand a line'),
    Passage("b", ""),
    Passage("ü/½ id", "naïve façade — 水獺 🦦", "Tïtle"),
    Passage("d", "<DONE> </s> <EVIDENCE>", "<TITLE>"),
    Passage("e", ""),
]
"""Passages that are hard to carry."""


def of_spans(model: Path, folder: Path, words: int) -> Path:
    """A copy of a model, with what training on spans leaves in its folder."""
    (shutil.copytree(model, folder) / FOLDER).mkdir()
    Spans(words).write(folder / FOLDER)
    return folder


FROGS = [
    Passage("empty", "!"), Passage("p1", "green frogs eat flies"),
    Passage("p2", "flies live near ponds", title="Insects"),
    Passage("p3", "ponds hold green green water and frogs"), Passage("p4", "stone walls"),
    Passage("p5", "stone walls"),
]  # fmt: skip
"""Passages with words in common, two of them equal, and one without a word."""


def passages() -> list[Passage]:
    facts = [
        Passage(f"{animal}-{trait}", f"the {animal} is {trait} .")
        for animal in ANIMALS
        for trait in ("calm", "quick")
    ]
    rules = [Passage(name, f"if something is {a} then it is {b} .") for b, (a, name) in RULES.items()]
    return facts + rules


def queries() -> list[Query]:
    made = []
    for animal in ANIMALS:
        for trait in ("calm", "quick"):
            made.append(Query(f"q-{animal}-{trait}", f"is the {animal} {trait} ?", (f"{animal}-{trait}",)))
        for trait, (cause, rule) in RULES.items():
            evidence = (f"{animal}-{cause}", rule)
            made.append(Query(f"q-{animal}-{trait}", f"is the {animal} {trait} ?", evidence))
    return made


def write_small(folder: Path) -> Path:
    """Train 12 queries, dev 2, test 2."""
    every = queries()
    qrels = {
        split: {q.id: dict.fromkeys(q.evidence, 1) for q in some}
        for split, some in {"train": every[:12], "dev": every[12:14], "test": every[14:]}.items()
    }
    write_dataset(folder, passages(), every, qrels)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files below a folder, without the seconds that making it took."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != TIME)
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def write_jsonl(file: Path, lines: list[Any]) -> Path:
    """One line a record; strings and bytes are written as they are."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        for line in lines:
            text = line if isinstance(line, (str, bytes)) else json.dumps(line, ensure_ascii=False)
            stream.write((text.encode() if isinstance(text, str) else text) + b"\n")
    return file


def small_tokenizer(folder: Path, vocabulary: int = 120) -> PreTrainedTokenizerBase:
    """A tokenizer trained on a data set, special tokens included."""
    tokenizer = train_tokenizer(folder, vocabulary)
    add_special_tokens(tokenizer)
    return tokenizer


def scratch(folder: Path, dropout: float = 0.0) -> ScratchT5:
    return ScratchT5(
        data=str(folder), vocabulary=120, d_model=32, d_ff=64, d_kv=8, num_layers=1,
        num_decoder_layers=1, num_heads=4, dropout=dropout,
    )  # fmt: skip


def small_retriever(folder: Path, sharpness: float = 3.0, **options: Any) -> GenerativeRetriever:
    """A random model over the data set in ``folder``; ``sharpness`` spreads its scores."""
    import torch

    torch.manual_seed(0)
    model, tokenizer = scratch(folder).load()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(sharpness)
    corpus = Corpus.read(folder)
    return GenerativeRetriever.assemble(
        model.eval(), tokenizer, corpus, Limits(), options=SearchOptions(**options)
    )


def tiny_bert(folder: Path, layers: int = 2, width: int = 16) -> Path:
    """A random BERT encoder with pooler, and a word tokenizer for the small data set."""
    from transformers import BertConfig, BertModel, BertTokenizer

    words = sorted({word for p in [*passages(), *queries()] for word in p.text.split()})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2 * width, max_position_embeddings=64, initializer_range=0.3,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizer.from_pretrained(folder).save_pretrained(folder)
    return folder
