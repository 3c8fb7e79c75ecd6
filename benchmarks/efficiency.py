"""Efficiency: a generative retriever against a bi-encoder with exact search, in one run.

    python -m benchmarks.efficiency

The comparison has the form of arXiv 2204.13596, section 5.3: the cost of the index (seconds to build, bytes)
and the cost of a query (queries a second, peak memory), for

- the bi-encoder: encoded corpus, exact maximum inner product search;
- the generator on its constraint index: greedy to the end of the passage, greedy with early stop at the
  unique prefix, beam 5 with early stop;
- the rival: transformers' ``generate`` with beam 5, constrained by a nested dict trie, same model, same score
  mode.

Both models have the same backbone (the encoder of all-MiniLM-L6-v2, extra ``local-models``) unless options
name other folders. Corpora: the corpus of a data set, and a large one from a word bigram model of it, so that
prefixes are shared as in text. Each system runs in a separate process, to measure its peak memory.
"""

from __future__ import annotations

import itertools
import random
import resource
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jsonargparse import auto_cli

from benchmarks.common import in_process, machine, print_table, seconds
from benchmarks.index import nested_dict_trie, traced_bytes
from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Passage, Query
from grls.index.build import build_index
from grls.models.biencoder import BiEncoderModel
from grls.models.load.generators import GeneratorSpec, Pretrained, WarmStart
from grls.models.text_encoder import passage_text
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever

BATCH = 8
BEAMS = 5
REPEATS = 5


class Setting(NamedTuple):
    """Settings of a process.

    Attributes:
        corpus: File of the corpus.
        data: Data set folder, for the queries.
        queries: Number of queries.
        model: Generator folder; None: a warm start whose decoder is untrained.
        biencoder: Bi-encoder folder or name.
        encoded: Passages that the bi-encoder encodes; the time for the rest is extrapolated.
    """

    corpus: str
    data: str
    queries: int
    model: str | None
    biencoder: str
    encoded: int


class Figures(NamedTuple):
    """The cost of one system.

    Attributes:
        build: Seconds to build the index.
        size: Bytes of the index.
        rate: Queries a second, median over repeats.
        peak: Peak memory of the process, MiB, minus its memory before model and corpus were loaded.
        top: Best passage of each query, as a passage number.
    """

    build: float
    size: int
    rate: float
    peak: float
    top: list[int]


def bigram_corpus(corpus: Corpus, count: int, seed: int = 0) -> list[Passage]:
    """Distinct passages drawn from the word bigrams of a corpus, starts and ends included."""
    follow: dict[str, list[str]] = {}
    for passage in corpus:
        words = ["", *passage.text.split(), ""]
        for before, after in itertools.pairwise(words):
            follow.setdefault(before, []).append(after)
    rng = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        words = [rng.choice(follow[""])]
        while words[-1] and len(words) < 60:
            words.append(rng.choice(follow[words[-1]]))
        texts[" ".join(words).strip()] = None
    return [Passage(f"p{number}", text) for number, text in enumerate(texts)]


def measure(
    batches: Sequence[Sequence[Query]], search: Callable[[Sequence[Query]], list[int]]
) -> tuple[float, list[int]]:
    """Queries a second over all batches (median of repeats after a warm-up), and the best passages."""
    search(batches[0])
    top: list[int] = []
    times = []
    for _ in range(REPEATS):
        spent, found = seconds(lambda: [search(batch) for batch in batches])
        times.append(spent)
        top = [passage for batch in found for passage in batch]
    return sum(map(len, batches)) / float(np.median(times)), top


def dense(setting: Setting) -> Figures:
    """The bi-encoder with exact maximum inner product search."""
    before = peak()
    corpus, batches = opened(setting)
    biencoder = BiEncoderModel.load(setting.biencoder, device="cpu")
    sample = corpus.passages(range(min(setting.encoded, len(corpus))))
    spent, encoded = seconds(
        lambda: biencoder.encode([passage_text(passage) for passage in sample], "passage")
    )
    build = spent * len(corpus) / len(sample)
    # Passages that are not encoded get vectors near encoded ones. Exact copies would tie, as in no real
    # corpus, and cost the search a second pass.
    rng = np.random.default_rng(0)
    vectors = np.resize(encoded, (len(corpus) + 1, encoded.shape[1])).astype(np.float32)
    vectors[len(sample) :] += 0.02 * rng.standard_normal(vectors[len(sample) :].shape, dtype=np.float32)
    retriever = DenseRetriever(biencoder, corpus, vectors)
    rate, top = measure(
        batches, lambda batch: numbers(corpus, [h[0].id for h in retriever.retrieve(batch, BEAMS)])
    )
    return Figures(build, vectors.nbytes, rate, peak() - before, top)


def generator(setting: Setting, beams: int, early_stop: bool) -> Figures:
    """Our constrained decoder."""
    before = peak()
    corpus, batches = opened(setting)
    model, codec = loaded(setting)
    build, index = seconds(lambda: build_index(corpus, codec))
    options = SearchOptions(beams=beams, early_stop=early_stop, batch_size=BATCH)
    retriever = GenerativeRetriever(model, codec, corpus, index, options)

    def search(batch: Sequence[Query]) -> list[int]:
        inputs = [codec.model_input(tokens) for tokens in retriever.encode(batch)]
        return [found[0].passage for found in retriever.search(inputs, 1, [()] * len(inputs))]

    rate, top = measure(batches, search)
    with tempfile.TemporaryDirectory() as folder:
        retriever.save_pretrained(folder)
        size = sum(file.stat().st_size for file in (Path(folder) / "index").iterdir())
    return Figures(build, size, rate, peak() - before, top)


def generate(setting: Setting) -> Figures:
    """Transformers' ``generate`` under a nested dict trie, renormalized, to the end of the passage."""
    before = peak()
    corpus, batches = opened(setting)
    model, codec = loaded(setting)
    index = build_index(corpus, codec)
    rows = [index.tokens(n).tolist() for n in range(len(corpus) + 1)]
    size = traced_bytes(lambda: nested_dict_trie(rows))
    build, trie = seconds(lambda: nested_dict_trie(rows))
    numbered = {tuple(row): number for number, row in reversed(list(enumerate(rows)))}
    longest, end, pad = max(map(len, rows)), index.rows.end, int(codec.tokenizer.pad_token_id)

    def allowed(batch: int, prefix: torch.Tensor) -> list[int]:
        node = trie
        for token in prefix.tolist()[1:]:
            node = node.get(token, {})
        return list(node) or [pad]

    def search(batch: Sequence[Query]) -> list[int]:
        tokens = codec.queries([q.id for q in batch], [q.text for q in batch], truncate=False)
        inputs = [torch.tensor(codec.model_input(row)) for row in tokens]
        padded = torch.nn.utils.rnn.pad_sequence(inputs, batch_first=True, padding_value=pad)
        output = model.generate(
            input_ids=padded, attention_mask=(padded != pad).long(), num_beams=BEAMS, do_sample=False,
            max_new_tokens=longest, prefix_allowed_tokens_fn=allowed, renormalize_logits=True,
            length_penalty=0.0,
        )  # fmt: skip
        written = [row[1:] for row in output.tolist()]
        return [numbered[tuple(row[: row.index(end) + 1])] for row in written]

    with torch.inference_mode():
        rate, top = measure(batches, search)
    return Figures(build, size, rate, peak() - before, top)


def opened(setting: Setting) -> tuple[Corpus, list[list[Query]]]:
    """The corpus, and the queries in batches."""
    queries = read_split(setting.data, "test")[0][: setting.queries]
    return Corpus.read(setting.corpus), [queries[i : i + BATCH] for i in range(0, len(queries), BATCH)]


def loaded(setting: Setting) -> tuple[Any, Codec]:
    """The generator in eval mode, and its codec."""
    torch.manual_seed(0)
    spec: GeneratorSpec = WarmStart() if setting.model is None else Pretrained(setting.model)
    model, tokenizer = spec.load()
    return model.eval(), Codec(tokenizer, Limits(passage=200))


def numbers(corpus: Corpus, ids: Sequence[str]) -> list[int]:
    """Passage numbers of ids that are in the corpus."""
    return [number for number in corpus.numbers(ids) if number is not None]


def peak() -> float:
    """Peak memory of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


SYSTEMS: dict[str, Callable[[Setting], Figures]] = {
    "bi-encoder, exact MIPS": dense,
    "generator, greedy, to the end": partial(generator, beams=1, early_stop=False),
    "generator, greedy, early stop": partial(generator, beams=1, early_stop=True),
    f"generator, beam {BEAMS}, early stop": partial(generator, beams=BEAMS, early_stop=True),
    f"HF generate, beam {BEAMS}": generate,
}
RIVAL = f"HF generate, beam {BEAMS}"
SAME = f"generator, beam {BEAMS}, early stop"
"""The system that must find the same best passages as the rival."""


def table(title: str, setting: Setting) -> None:
    """Measure every system on one corpus and print a table."""
    figures = {name: in_process(system, setting) for name, system in SYSTEMS.items()}
    bi, rival = figures["bi-encoder, exact MIPS"], figures[RIVAL]
    rows = [
        [
            name, f"{f.build:.2f}", f"{f.size / 2**20:.2f}", f"{bi.size / f.size:.1f}", f"{f.rate:.1f}",
            f"{f.rate / rival.rate:.1f}", f"{f.rate / bi.rate:.2f}", f"{f.peak:.0f}",
        ]
        for name, f in figures.items()
    ]  # fmt: skip
    header = ["system", "index build, s", "index, MiB", "times smaller than embeddings", "queries/s"]
    print_table(title, [*header, "times HF", "times bi-encoder", "peak memory, MiB"], rows)
    equal = sum(a == b for a, b in zip(figures[SAME].top, rival.top, strict=True))
    print(f"\nSame best passage, `{SAME}` and `{RIVAL}`: {equal} of {len(rival.top)}.")


def main(
    data: str = "data/entailmentbank",
    large: int = 100_000,
    queries: int = 64,
    model: str | None = None,
    biencoder: str = "all-MiniLM-L6-v2",
    encoded: int = 5_000,
) -> None:
    """Measure and print two tables.

    Args:
        data: Data set folder with corpus and test queries.
        large: Passages of the large corpus; 0 leaves it out.
        queries: Test queries, in batches of 8.
        model: Generator folder (``runs/X/retrieve/model``); null: a warm start with an untrained decoder.
        biencoder: Bi-encoder folder or name.
        encoded: Passages that the bi-encoder encodes; the seconds for the whole corpus are extrapolated.
    """
    print(machine())
    corpus = Corpus.read(data)
    setting = Setting(f"{data}/corpus.jsonl", data, queries, model, biencoder, encoded)
    table(f"{Path(data).name}: {len(corpus):,} passages", setting)
    if large:
        with tempfile.TemporaryDirectory() as folder:
            generated = Corpus.from_passages(bigram_corpus(corpus, large))
            generated.write(Path(folder) / "corpus.jsonl")
            table(
                f"word bigrams of {Path(data).name}: {large:,} passages",
                setting._replace(corpus=f"{folder}/corpus.jsonl"),
            )


if __name__ == "__main__":
    auto_cli(main)
