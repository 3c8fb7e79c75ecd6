"""Streams: an index of millions of passages from a stream of tokens, in bounded memory.

    python -m benchmarks.streams
    python -m benchmarks.streams --passages '[1000000, 5000000]' --memory 512

Passages are generated a chunk at a time. Every build runs in a separate process to measure its peak memory:
the highest resident memory, minus the memory before the build (for a build in memory this includes the
tokens). Rivals in the same run: the build in memory (at sizes up to ``rival_passages``) and marisa-trie
(``marisa_passages``: it takes a string a prefix). The design point, 20 million passages of 100 tokens, is
extrapolated from the largest size: bytes by the passage and the token; seconds in proportion to the tokens,
which is a lower bound if sorting needs more runs. Targets: at most 16 bytes a passage in addition to the
tokens, loaded in under a second; 1,000,000 passages of 80 tokens from token arrays in memory in under 5 s on
2 cores.
"""

from __future__ import annotations

import math
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jsonargparse import auto_cli

from benchmarks.common import END, RESERVED, in_process, machine, print_table, seconds
from benchmarks.decode import tokenized
from grls.index.build import index_sequences, index_tokens
from grls.index.options import Form
from grls.index.rows import Array
from grls.index.storage import load_index, save_index, save_stream
from grls.io.files import read_json

DESIGN_PASSAGES, DESIGN_TOKENS = 20_000_000, 100
CHUNK = 20_000
Method = Literal["stream", "memory", "marisa"]


class Build(NamedTuple):
    """The cost of one build.

    Attributes:
        seconds: Seconds from the token stream to the index, without generating the stream.
        saving: Seconds to write the index to disk, if that is a separate step.
        peak: Highest resident memory in bytes, minus the memory before the build.
        beside: Bytes a passage in addition to the tokens.
        stored: Bytes a passage, tokens included.
        load: Median milliseconds to open the index, checks included.
    """

    seconds: float
    saving: float
    peak: int
    beside: float
    stored: float
    load: float


def passages(
    count: int, mean_tokens: int, vocabulary: int = 32_000, branching: int = 300, seed: int = 0
) -> Iterator[tuple[Array, Array]]:
    """:func:`benchmarks.common.synthetic_passages` as a stream: tokens and offsets, a chunk at a time."""
    rng = np.random.default_rng(seed)
    words = vocabulary - RESERVED
    weights = 1.0 / np.arange(1, words + 1)
    cumulative = np.cumsum(weights / weights.sum())
    shift = rng.integers(0, words, branching)
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        lengths = np.maximum(2, rng.normal(mean_tokens, mean_tokens / 5, size).round().astype(np.int64))
        longest = int(lengths.max())
        tokens = np.empty((longest, size), dtype=np.uint16)  # a row a position: written as it is drawn
        previous = np.zeros(size, dtype=np.int64)
        for position in range(longest):
            ranks = np.searchsorted(cumulative, rng.random(size)).clip(max=words - 1)
            previous = (ranks + shift[previous % branching]) % words
            tokens[position] = previous + RESERVED
        tokens[lengths - 1, np.arange(size)] = END
        used = np.arange(longest) < lengths[:, None]
        yield tokens.T[used], np.concatenate(([0], np.cumsum(lengths)))


class Stopwatch:
    """Passes a stream on and measures the time to generate it."""

    def __init__(self, stream: Iterator[tuple[Array, Array]]):
        self.seconds = 0.0
        self._stream = stream

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        while True:
            start = time.perf_counter()
            piece = next(self._stream, None)
            self.seconds += time.perf_counter() - start
            if piece is None:
                return
            yield piece


def resident() -> int:
    """The highest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def build_index(method: Method, count: int, tokens: int, memory: int, form: Form = "whole") -> Build:
    """Build, save and open one index; call this in a separate process."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "index"
        watch = Stopwatch(passages(count, tokens))
        next(passages(CHUNK, tokens))  # memory of the generator does not belong to the build
        saving = 0.0
        before = resident()
        if method == "stream":
            took, _ = seconds(lambda: save_stream(watch, folder, END, memory, form))
            took -= watch.seconds
        else:
            chunks = list(watch)
            flat = np.concatenate([chunk for chunk, _ in chunks])
            lengths = np.concatenate([np.diff(offsets) for _, offsets in chunks])
            del chunks
            offsets = np.concatenate(([0], np.cumsum(lengths)))
            backend = "array" if method == "memory" else "marisa"
            took, index = seconds(lambda: index_tokens(flat, offsets, END, backend, form))
            saving, _ = seconds(lambda: save_index(index, folder))
        peak = resident() - before
        if method == "marisa":  # its trie is not stored
            return Build(took, saving, peak, math.nan, math.nan, math.nan)
        files = read_json(folder / "index.json")["files"]
        sizes = {name: entry["bytes"] for name, entry in files.items()}
        load = float(np.median([seconds(lambda: load_index(folder))[0] for _ in range(5)]))
        whole = sum(sizes.values())
        return Build(took, saving, peak, (whole - sizes["tokens"]) / count, whole / count, 1e3 * load)


def of_corpus(corpus: str, tokenizer: str) -> str:
    """The size of a corpus' index, on one line."""
    index = index_sequences(tokenized(corpus, tokenizer), END)
    with tempfile.TemporaryDirectory() as folder:
        save_index(index, Path(folder) / "index")
        files = read_json(Path(folder) / "index" / "index.json")["files"]
    beside = sum(entry["bytes"] for name, entry in files.items() if name != "tokens") / len(index)
    return f"{corpus}: {len(index):,} passages, {beside:.2f} bytes a passage beside the tokens"


def _row(name: str, build: Build, rival: Build | None) -> list[str]:
    ratio = "-" if rival is None else f"{build.seconds / (rival.seconds + rival.saving):.2f}"
    stored = f"{build.beside:.2f}", f"{build.stored:.1f}", f"{build.load:.0f}"
    return [
        name, f"{build.seconds:.1f}", f"{build.saving:.1f}", ratio, f"{build.peak / 2**20:.0f}",
        *("-" if value == "nan" else value for value in stored),
    ]  # fmt: skip


def main(
    passages: tuple[int, ...] = (1_000_000,),
    tokens: int = 80,
    memory: int = 256,
    rival_passages: int = 1_000_000,
    marisa_passages: int = 10_000,
    corpus: str | None = None,
    tokenizer: str | None = None,
) -> None:
    """Measure and print a table and the extrapolation.

    Args:
        passages: Sizes of the corpora.
        tokens: Mean tokens a passage.
        memory: Memory for sorting, in MiB.
        rival_passages: Largest corpus that is also built in memory.
        marisa_passages: Size of the corpus for marisa-trie.
        corpus: Data set folder; print only the size of its index.
        tokenizer: T5's tokenizer, for ``corpus``.
    """
    if (corpus is None) != (tokenizer is None):
        raise SystemExit("error: --corpus needs --tokenizer, and the other way round.")
    print(machine())
    if corpus is not None and tokenizer is not None:
        print(of_corpus(corpus, tokenizer))
        return
    limit = memory * 2**20
    rows = []
    for count in passages:
        rival = in_process(build_index, "memory", count, tokens, limit) if count <= rival_passages else None
        whole = in_process(build_index, "stream", count, tokens, limit)
        prefixes = in_process(build_index, "stream", count, tokens, limit, "prefixes")
        if rival is not None:
            rows.append(_row(f"{count:,}: in memory", rival, rival))
        rows.append(_row(f"{count:,}: stream, {memory} MiB", whole, rival))
        rows.append(_row(f"{count:,}: stream, unique prefixes", prefixes, rival))
    if marisa_passages:
        ours = in_process(build_index, "memory", marisa_passages, tokens, limit)
        rows.append(_row(f"{marisa_passages:,}: in memory", ours, ours))
        rows.append(
            _row(
                f"{marisa_passages:,}: marisa-trie",
                in_process(build_index, "marisa", marisa_passages, tokens, limit),
                ours,
            )
        )
    header = ["passages", "build, s", "saving, s", "build, ratio to in memory", "peak memory, MiB",
              "bytes a passage beside the tokens", "bytes a passage", "load, ms"]  # fmt: skip
    print_table(f"synthetic passages of about {tokens} tokens", header, rows)
    scale = DESIGN_PASSAGES * DESIGN_TOKENS / (count * tokens)
    disk = DESIGN_PASSAGES * (whole.beside + 2 * DESIGN_TOKENS) / 1e9
    print(
        f"\nExtrapolated from {count:,} to {DESIGN_PASSAGES:,} passages of {DESIGN_TOKENS} tokens: build "
        f"from {scale * whole.seconds:.0f} seconds, {disk:.1f} GB on disk; as unique prefixes "
        f"{DESIGN_PASSAGES * prefixes.stored / 1e9:.1f} GB."
    )


if __name__ == "__main__":
    auto_cli(main)
