"""The server against the same searches without HTTP, a loop in one process and a plain handler, in one run.

    python -m benchmarks.serve --folder DISK
    python -m benchmarks.serve --passages '[12000, 1000000]' --folder DISK
    python -m benchmarks.serve --kind spans --folder DISK
    python -m benchmarks.serve --retriever FOLDER --data DATA

Queries a second at saturation, and p50, p95 and p99 of the seconds of a request, for several numbers of
clients; each client sends a query when the one before is answered. The rivals run in processes of their own,
the clients of the servers in this one. All results are compared with those of the loop.

- ``loop``: ``retriever.search``, one query after the other.
- ``batched``: the queue and the batches of the server, without HTTP.
- ``grls serve``: the server. Processor seconds are those of its process, since clients on the same processors
  would count in seconds of the clock. Those of HTTP are of the thread that does nothing else.
- ``plain handler``: a search a request, in FastAPI's threads.

The second table has the time to the first event of ``/v1/stream`` with three hops beside that of a
single-step search, of the same clients in alternation.

Without ``--retriever`` the passages are those of :mod:`benchmarks.scale`. The retriever has random weights
and the speed of trained weights: a generator of whole passages, or, as in the default recipe, a generator of
spans of 8 words with a bi-encoder and BM25 as priors.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jsonargparse import auto_cli

from benchmarks import scale
from benchmarks.common import machine, print_table
from benchmarks.http_clients import (
    Ranking,
    ask_all,
    ask_first_hops,
    processor_seconds,
    serve_grls,
    serve_plainly,
    serving,
)
from grls.api.searcher import Searcher
from grls.data.dataset import read_split
from grls.data.types import Hit

Written = Literal["passages", "spans"]
"""The texts that the generator writes: whole passages, or spans, with priors."""

DESCRIBED: dict[Written, str] = {
    "passages": "T5-small",
    "spans": "T5-small that writes spans, with two priors",
}
"""The kinds, for the titles of tables."""
_QUERY = 24
"""Tokens of a query, which is as much of each passage as the bi-encoder reads when the folder is built."""

HEADERS = (
    "", "clients", "queries/s", "of the loop", "p50 ms", "p95 ms", "p99 ms", "processor ms a query",
    "of it HTTP", "HTTP, % of batched", "wrong",
)  # fmt: skip


class Case(NamedTuple):
    """What a rival did for one number of clients.

    Attributes:
        rankings: The ids of the hits of each query.
        took: Seconds of each query.
        seconds: Seconds of all.
        processor: Seconds of the processors that the process of the rival used.
        http: Processor seconds of the thread that does HTTP alone.
    """

    rankings: list[Ranking]
    took: list[float]
    seconds: float
    processor: float
    http: float = 0.0


def loop(searcher: Searcher, texts: Sequence[str], k: int) -> tuple[list[Ranking], list[float], float]:
    """Results, seconds of each query, and seconds of all, in a loop of single searches."""
    rankings, took, begun = [], [], time.perf_counter()
    for text in texts:
        before = time.perf_counter()
        hits: list[Hit] = searcher.search(text, k)
        took.append(time.perf_counter() - before)
        rankings.append([hit.id for hit in hits])
    return rankings, took, time.perf_counter() - begun


def bare(pipe: Any, folder: str) -> None:
    """Do cases without HTTP, in a process of its own, until there is none; then end."""
    from grls.serve.options import RequestLimits, ServerOptions
    from grls.serve.serving import Serving

    serving = Serving(ServerOptions({"one": folder}, RequestLimits(queue=1024), device="cpu"))
    serving.load()
    served = serving.find(None)
    while (case := pipe.recv()) is not None:
        before = time.process_time()
        done = _looped(served, *case[:2]) if case[2] == 0 else batched(served.version, *case)
        pipe.send(Case(*done, time.process_time() - before))


def _looped(served: Any, texts: Sequence[str], k: int) -> tuple[list[Ranking], list[float], float]:
    return loop(served.version.searcher, texts, k)


def batched(
    version: Any, texts: Sequence[str], k: int, clients: int
) -> tuple[list[Ranking], list[float], float]:
    """The searches of so many clients through the queue of a retriever; see :func:`loop`."""
    from grls.serve.worker import BatchKey, SearchJob

    waiting, took = deque(enumerate(texts)), [0.0] * len(texts)
    rankings: list[Ranking] = [[] for _ in texts]
    key, ended = BatchKey(version.retriever(None), k, None), threading.Semaphore(0)

    def send() -> None:
        try:
            number, text = waiting.popleft()
        except IndexError:
            ended.release()
            return
        job, before = SearchJob([text], key), time.perf_counter()

        def answered(future: Future[list[list[Hit]]]) -> None:
            took[number] = time.perf_counter() - before
            rankings[number] = [hit.id for hit in future.result()[0]]
            send()

        job.future.add_done_callback(answered)
        version.worker.submit(job)

    begun = time.perf_counter()
    for _ in range(clients):
        send()
    for _ in range(clients):
        ended.acquire()
    return rankings, took, time.perf_counter() - begun


def row(name: str, clients: int, case: Case, base: Case, wrong: int, beside: Case | None = None) -> list[str]:
    """A row of the table; ``beside``: the same searches without HTTP."""
    rate, loops = (len(each.took) / each.seconds for each in (case, base))
    percentiles = [f"{1000 * np.percentile(case.took, part):.0f}" for part in (50, 95, 99)]
    spent, http = (1000 * part / len(case.took) for part in (case.processor, case.http))
    cost = ["", ""] if beside is None else [f"{http:.2f}", f"{100 * case.http / beside.processor:.1f}"]
    return [
        name, str(clients), f"{rate:.1f}", f"{rate / loops:.2f}", *percentiles, f"{spent:.1f}", *cost,
        str(wrong),
    ]  # fmt: skip


_STREAMS = 64
"""Queries of the second table."""


class Rivals:
    """The rivals over one retriever, each in a process of its own."""

    def __init__(self, folder: str, texts: Sequence[str], k: int):
        self.folder, self.texts, self.k = folder, texts, k
        self.rows: list[list[str]] = []
        self.expected: list[Ranking] = []
        self.first_hops: list[list[str]] = []

    def measure(self, clients: Sequence[int]) -> None:
        """Measure all rivals, those that are compared one after the other."""
        with ExitStack() as running:
            pipe = running.enter_context(without_http(self.folder))
            address, process = running.enter_context(serving(serve_grls, self.folder))
            self._http(address, process, self.texts[:8], 2)
            _case(pipe, self.texts[:8], self.k, 2)
            base = _case(pipe, self.texts, self.k, 0)
            self.expected = base.rankings
            self._add("loop", 1, base, base)
            for count in clients:
                texts = self._enough(count)
                beside = _case(pipe, texts, self.k, count)
                self._add("batched", count, beside, base)
                self._add("grls serve", count, self._http(address, process, texts, count), base, beside)
            for count in [count for count in clients if count <= 8]:
                self._first_hops(address, count)
        with serving(serve_plainly, self.folder) as (address, process):
            self._http(address, process, self.texts[:8], 2)
            for count in clients:
                self._add("plain handler", count, self._http(address, process, self.texts, count), base)

    def _enough(self, clients: int) -> list[str]:
        """The queries, often enough for a number of clients."""
        return list(self.texts) * max(1, -(-4 * clients // len(self.texts)))

    def _http(self, address: str, process: int, texts: Sequence[str], clients: int) -> Case:
        before = [processor_seconds(process, http) for http in (False, True)]
        done = asyncio.run(ask_all(address, texts, self.k, clients))
        after = [processor_seconds(process, http) for http in (False, True)]
        return Case(*done, after[0] - before[0], after[1] - before[1])

    def _add(self, name: str, clients: int, case: Case, base: Case, beside: Case | None = None) -> None:
        count = len(self.expected)
        wrong = sum(ranking != self.expected[n % count] for n, ranking in enumerate(case.rankings))
        self.rows.append(row(name, clients, case, base, wrong, beside))
        print(" | ".join(self.rows[-1]), flush=True)

    def _first_hops(self, address: str, clients: int) -> None:
        both = asyncio.run(ask_first_hops(address, self.texts[:_STREAMS], self.k, clients))
        medians = [1000 * float(np.median(seconds)) for seconds in both]
        tails = [1000 * float(np.percentile(seconds, 95)) for seconds in both]
        self.first_hops.append(
            [str(clients), *(f"{ms:.0f}" for ms in medians), f"{medians[1] / medians[0]:.2f}",
             *(f"{ms:.0f}" for ms in tails), f"{tails[1] / tails[0]:.2f}"]
        )  # fmt: skip
        print(" | ".join(self.first_hops[-1]), flush=True)


@contextmanager
def without_http(folder: str) -> Iterator[Any]:
    """A process for :func:`bare`; yields its end of the pipe."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=bare, args=(there, folder))
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.send(None)
        process.join()


def _case(pipe: Any, texts: Sequence[str], k: int, clients: int) -> Case:
    pipe.send((texts, k, clients))
    case: Case = pipe.recv()
    return case


def generated(folder: Path, passages: int, kind: Written) -> str:
    """The folder of a retriever over so many generated passages; it is built if it is not there."""
    name = f"serve-{passages}" if kind == "passages" else f"serve-{kind}-{passages}"
    plan = scale.Plan(str(folder / name), passages, 100, "2GB", 512, 6, 0, (), 0)
    retriever = plan.retriever if kind == "passages" else Path(plan.folder) / "hybrid"
    if not (retriever / "grls.json").is_file():
        shutil.rmtree(plan.folder, ignore_errors=True)
        scale.measure_step("generate", plan)
        if kind == "passages":
            scale.measure_step("build", plan)
        else:
            _with_priors(plan, retriever)
        shutil.rmtree(plan.data)
    return str(retriever)


def _with_priors(plan: scale.Plan, output: Path) -> None:
    """A generator of spans with a bi-encoder and BM25 that look ahead, as the default recipe has it."""
    from grls.data.identifiers import FOLDER
    from grls.identifiers.spans import Spans
    from grls.index.options import IndexOptions, LimitOptions
    from grls.io.ending import quiet
    from grls.retrieve.build import Building, build
    from grls.retrieve.compose import compose, write_retriever
    from grls.retrieve.hybrid.options import PriorOptions, PriorSpec, hybrid_spec
    from grls.retrieve.registry import Opening

    quiet()
    model, encoder, dense = (str(Path(plan.folder) / name) for name in ("model", "encoder", "dense"))
    (Path(model) / FOLDER).mkdir(exist_ok=True)
    Spans(8).write(Path(model) / FOLDER)  # as a training of spans does
    spans = IndexOptions(memory=plan.memory)
    build(model, str(plan.data), Building(str(plan.retriever), "generative", spans))
    _write_encoder(model, encoder)
    limits = LimitOptions(input=_QUERY)
    build(encoder, str(plan.data), Building(dense, "dense", limits=limits, device="cpu"))
    priors = [PriorSpec(dense), PriorSpec("bm25")]
    spec = hybrid_spec(str(plan.retriever), priors, PriorOptions()) | {"search": {"beams": 10}}
    write_retriever(compose(spec, Opening("cpu")), output, link=True)


def _write_encoder(model: str, encoder: str) -> None:
    """A BERT of the size of all-MiniLM-L6-v2 with random weights, and the tokenizer of the generator."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    tokenizer: Any = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    config_type: Any = BertConfig  # its type does not know the fields of every config
    torch.manual_seed(0)
    config = config_type(
        vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536,
    )  # fmt: skip
    BertModel(config).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)


def compare(folder: str, texts: Sequence[str], k: int, clients: Sequence[int], title: str) -> None:
    """Measure the rivals over one retriever, and print the tables."""
    rivals = Rivals(folder, texts, k)
    rivals.measure(clients)
    threads = os.environ["OMP_NUM_THREADS"]
    said = f"{title}, {len(texts)} queries, k {k}, {threads} threads a search; {machine()}"
    print_table(said, HEADERS, rivals.rows)
    header = ("clients", "search p50 ms", "first event p50 ms", "ratio", "search p95 ms", "p95 ms", "ratio")
    print_table(f"{title}: first event of a stream", header, rivals.first_hops)


def main(
    passages: tuple[int, ...] = (12_000,),
    kind: Written = "passages",
    folder: Path | None = None,
    retriever: str | None = None,
    data: str | None = None,
    split: str = "test",
    k: int = 10,
    queries: int = 256,
    clients: tuple[int, ...] = (1, 8, 32, 128),
    threads: int = 1,
) -> None:
    """Compare the server with its rivals.

    Args:
        passages: Sizes of the generated corpora.
        kind: What the generator writes: whole passages; or spans, with a bi-encoder and BM25 as priors (the
            kind of the default recipe).
        folder: Where generated retrievers are kept, to be used again; null: a temporary folder.
        retriever: Retriever folder of any kind, in place of generated ones.
        data: Data set folder, whose queries are asked, again and again if there are too few.
        split: Split of the queries.
        k: Hits of a query.
        queries: Number of queries of each case; four of each client at least.
        clients: Numbers of clients.
        threads: Threads of a search, in all processes; one leaves a processor of two to HTTP and the clients.
    """
    os.environ["OMP_NUM_THREADS"] = str(threads)  # the processes that are started inherit it
    if retriever is not None:
        rows, _ = read_split(data or str(Path(retriever) / "data"), split)
        texts = [rows[n % len(rows)].text for n in range(queries)]
        compare(retriever, texts, k, clients, retriever)
        return
    with tempfile.TemporaryDirectory(prefix="grls-serve-") as temporary:
        texts = list(scale.texts(queries, 12, seed=2))
        for count in passages:
            built = generated(folder or Path(temporary), count, kind)
            compare(built, texts, k, clients, f"{count:,} passages, {DESCRIBED[kind]}")


if __name__ == "__main__":
    auto_cli(main)
