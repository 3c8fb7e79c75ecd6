"""Scale: build, open, search, filter, add and remove with millions of passages of generated text.

    python -m benchmarks.scale --passages '[1000000]'
    python -m benchmarks.scale --passages '[1000000, 5000000, 20000000]' --folder DISK

Each step runs in a separate process, as a command does. The table names its seconds, those of the processors
(which hardly depend on what else the machine does), the highest resident memory (and how much of it is
anonymous: the rest are pages of memory-mapped files, which the system takes back when it needs them), and the
highest use of disk in the work folder while it ran. The passages are drawn like those of
:mod:`benchmarks.streams`, one token a word; the generator is a T5 with random weights, so queries a second
are those of its size, and what it finds means nothing.

With ``keep`` false the generated ``corpus.jsonl`` is removed once the retriever folder holds a copy, as a
user with little disk would do.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import END, RESERVED, in_process, machine, print_table
from benchmarks.streams import passages

WORDS = 32_000
_EVERY = 0.05
"""Seconds between two looks at memory and disk."""


class Plan(NamedTuple):
    """One corpus and how it is measured.

    Attributes:
        folder: The work folder.
        passages: Number of passages.
        tokens: Mean tokens a passage.
        memory: Memory for sorting, as in ``--index.memory``.
        width: Width of the model.
        layers: Layers of the encoder, and of the decoder.
        queries: Queries of each search.
        beams: Beam widths.
        added: Number of passages that are added.
    """

    folder: str
    passages: int
    tokens: int
    memory: str
    width: int
    layers: int
    queries: int
    beams: tuple[int, ...]
    added: int

    @property
    def data(self) -> Path:
        """The data set folder."""
        return Path(self.folder) / "data"

    @property
    def retriever(self) -> Path:
        """The retriever folder."""
        return Path(self.folder) / "retriever"


class Measured(NamedTuple):
    """What a step took.

    Attributes:
        seconds: Seconds of the step, without the start of its process.
        processor: Seconds of all processors together, the start of the process included.
        resident: Highest resident memory in bytes.
        anonymous: Highest anonymous memory in bytes.
        disk: Highest use of disk in bytes.
        notes: What else was measured.
    """

    seconds: float
    processor: float
    resident: int
    anonymous: int
    disk: int
    notes: str


def words() -> list[str]:
    """Distinct words, short ones first, so that frequent words are short."""
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = [a + b for a in letters for b in letters] + [
        a + b + c for a in letters for b in letters for c in letters
    ]
    words += [a + b + c + d for a in letters[:5] for b in letters for c in letters for d in letters]
    return words[: WORDS - RESERVED]


def texts(count: int, tokens: int, seed: int = 0) -> Iterator[str]:
    """Texts of about ``tokens`` tokens each, the end token included."""
    known = np.array(words(), dtype=object)
    for flat, offsets in passages(count, tokens, WORDS, seed=seed):
        for first, last in zip(offsets.tolist(), offsets[1:].tolist(), strict=False):
            yield " ".join(known[flat[first : last - 1] - RESERVED])


def generate(plan: Plan) -> str:
    """Write the corpus and the model."""
    plan.data.mkdir(parents=True)
    with (plan.data / "corpus.jsonl").open("w", encoding="utf-8") as stream:
        for number, text in enumerate(texts(plan.passages, plan.tokens)):
            stream.write(f'{{"_id": "{number}", "title": "", "text": "{text}", ')
            stream.write(f'"metadata": {{"year": {1990 + number % 30}}}}}\n')
    _write_model(plan)
    return f"{(plan.data / 'corpus.jsonl').stat().st_size / 1e9:.2f} GB of JSON"


def _write_model(plan: Plan) -> None:
    """A T5 with random weights, and a tokenizer that knows every word."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    known = {word: number for number, word in enumerate(["<pad>", "</s>", "<unk>", *words()])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", END)])
    wrapped: Any = PreTrainedTokenizerFast
    fast = wrapped(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    torch.manual_seed(0)
    heads = max(1, plan.width // 64)
    config_type: Any = T5Config  # its type does not know the fields of every config
    config = config_type(
        vocab_size=len(known), d_model=plan.width, d_kv=plan.width // heads, d_ff=4 * plan.width,
        num_heads=heads, num_layers=plan.layers, decoder_start_token_id=0, pad_token_id=0,
        eos_token_id=END,
    )  # fmt: skip
    T5ForConditionalGeneration(config).save_pretrained(Path(plan.folder) / "model")
    fast.save_pretrained(Path(plan.folder) / "model")


def build(plan: Plan) -> str:
    """Build the retriever folder, as `grls index` does."""
    from grls.index.options import IndexOptions
    from grls.retrieve.build import Building
    from grls.retrieve.build import build as build_folder

    building = Building(str(plan.retriever), "generative", IndexOptions(memory=plan.memory))
    build_folder(str(Path(plan.folder) / "model"), str(plan.data), building)
    size = sum(file.stat().st_size for file in (plan.retriever / "index").iterdir())
    return f"index {size / 1e9:.3f} GB, {size / plan.passages:.1f} bytes a passage"


def opened(plan: Plan, beams: int = 5) -> Any:
    """The retriever, as commands open it."""
    from grls.retrieve.generative.options import SearchOptions
    from grls.retrieve.generative.retriever import GenerativeRetriever

    return GenerativeRetriever.from_pretrained(plan.retriever, "cpu", options=SearchOptions(beams=beams))


def load(plan: Plan) -> str:
    """Open the retriever and answer a query."""
    opened(plan).retrieve([next(texts(1, 10, seed=1))], 5)
    return "with a first query"


def search(plan: Plan) -> str:
    """Search with every beam width."""
    retriever = opened(plan)
    return (
        "; ".join(f"{beams}: {_rate(retriever, plan, beams)}" for beams in plan.beams) + " queries/s a beam"
    )


def _rate(retriever: Any, plan: Plan, beams: int, **more: Any) -> str:
    """Queries a second with a beam width."""
    from dataclasses import replace

    retriever.options = replace(retriever.options, beams=beams)
    queries = list(texts(plan.queries, 12, seed=2))
    retriever.retrieve(queries[:1], beams, **more)
    start = time.perf_counter()
    retriever.retrieve(queries, beams, **more)
    return f"{len(queries) / (time.perf_counter() - start):.2f}"


def filtered(plan: Plan) -> str:
    """Make a filter over metadata, and search with it."""
    from grls.data.filters import where

    retriever = opened(plan)
    allowed = where("year=2001")
    start = time.perf_counter()
    first = retriever.retrieve([next(texts(1, 10, seed=1))], 5, allowed)
    took = time.perf_counter() - start
    assert first[0]
    start = time.perf_counter()
    return f"first query {took:.1f} s, then {_rate(retriever, plan, 5, allow=allowed)} queries/s"


def add(plan: Plan) -> str:
    """Add passages, and search."""
    from grls.data.types import Passage

    retriever = opened(plan)
    new = [Passage(f"new-{n}", text) for n, text in enumerate(texts(plan.added, plan.tokens, seed=3))]
    start = time.perf_counter()
    retriever.add(new)
    took = time.perf_counter() - start
    return f"{plan.added:,} added in {took:.1f} s, then {_rate(retriever, plan, 5)} queries/s"


def remove(plan: Plan) -> str:
    """Remove one passage in a hundred, and search."""
    retriever = opened(plan)
    start = time.perf_counter()
    retriever.remove([str(number) for number in range(0, plan.passages, 100)])
    first = retriever.retrieve([next(texts(1, 10, seed=1))], 5)
    took = time.perf_counter() - start
    assert first[0]
    return f"1 % in {took:.1f} s with a first query, then {_rate(retriever, plan, 5)} queries/s"


STEPS: dict[str, Callable[[Plan], str]] = {
    "generate": generate,
    "build": build,
    "first opening": load,
    "load": load,
    "search": search,
    "filter": filtered,
    "add": add,
    "remove": remove,
}


class _Watch(threading.Thread):
    """Looks at the anonymous memory of this process and the disk use of a folder."""

    def __init__(self, folder: Path):
        super().__init__(daemon=True)
        self.anonymous = self.disk = 0
        self._folder = folder
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(_EVERY):
            self.look()

    def look(self) -> None:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        held = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
        self.anonymous = max(self.anonymous, *(1024 * int(size) for size in held), 0)
        self.disk = max(self.disk, used(self._folder))

    def end(self) -> None:
        self._ended.set()
        self.join()
        self.look()


def used(folder: Path) -> int:
    """Bytes of disk that the files of a folder take; hard links count once."""
    sizes = {}
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                stat = (Path(path) / name).stat()
            except OSError:  # it has gone meanwhile
                continue
            sizes[stat.st_ino] = stat.st_blocks * 512
    return sum(sizes.values())


def one_step(name: str, plan: Plan) -> Measured:
    """Run a step in this process."""
    from grls.io.ending import quiet

    quiet()
    watch = _Watch(Path(plan.folder))
    watch.start()
    start = time.perf_counter()
    notes = STEPS[name](plan)
    took = time.perf_counter() - start
    watch.end()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Measured(took, time.process_time(), resident, watch.anonymous, watch.disk, notes)


def measure_step(name: str, plan: Plan) -> Measured:
    """:func:`one_step` in a separate process, whose caches of corpora are in the work folder."""
    os.environ["HF_DATASETS_CACHE"] = str(Path(plan.folder) / "cache")
    return in_process(one_step, name, plan)


def _row(name: str, plan: Plan, step: Measured) -> list[str]:
    return [
        f"{plan.passages:,}", name, f"{step.seconds:.1f}", f"{step.processor:.1f}",
        f"{step.resident / 2**20:,.0f}",
        f"{step.anonymous / 2**20:,.0f}", f"{step.disk / 1e9:.2f}", step.notes,
    ]  # fmt: skip


def main(
    passages: tuple[int, ...] = (100_000,),
    tokens: int = 100,
    memory: str = "2GB",
    width: int = 512,
    layers: int = 6,
    queries: int = 64,
    beams: tuple[int, ...] = (1, 5, 50),
    added: int = 1000,
    folder: Path | None = None,
    keep: bool = False,
    output: Path | None = None,
) -> None:
    """Measure every step for every size, and print a table.

    Args:
        passages: Sizes of the corpora.
        tokens: Mean tokens a passage.
        memory: Memory for sorting.
        width: Width of the model.
        layers: Layers of the encoder, and of the decoder.
        queries: Queries of each search.
        beams: Beam widths.
        added: Number of passages that are added.
        folder: Where work folders are made; null: the system's folder for temporary files.
        keep: Keep the generated corpus and its cache while the retriever is used.
        output: JSON file of all figures, written step by step; null: none.
    """
    print(machine(), flush=True)
    rows, figures = [], []
    for count in passages:
        with tempfile.TemporaryDirectory(prefix="grls-scale-", dir=folder) as work:
            plan = Plan(work, count, tokens, memory, width, layers, queries, beams, added)
            for name in STEPS:
                step = measure_step(name, plan)
                rows.append(_row(name, plan, step))
                print(" | ".join(rows[-1]), flush=True)
                figures.append({"passages": count, "step": name, **step._asdict()})
                if output is not None:
                    output.write_text(json.dumps(figures, indent=1), encoding="utf-8")
                if name == "build" and not keep:
                    for unneeded in (plan.data, Path(work) / "cache"):
                        shutil.rmtree(unneeded, ignore_errors=True)
    header = [
        "passages",
        "step",
        "seconds",
        "processor, s",
        "resident, MiB",
        "anonymous, MiB",
        "disk, GB",
        "also",
    ]
    print_table(f"generated text of {tokens} tokens a passage, {memory} for sorting", header, rows)


if __name__ == "__main__":
    auto_cli(main)
