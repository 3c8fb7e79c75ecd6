"""``grls pseudo-queries``: queries for passages that have none, written by a trained query generator."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from grls.answer.writer import TextWriter
from grls.commands.opening import refuse_other_corpus
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.dataset import query_record
from grls.data.neighbours import Neighbours
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.io.files import atomic_file, refuse_unwritable, sha256, write_json
from grls.io.jsonl import write_line
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile
from grls.models.load.language import load_language_model, weights_fingerprint
from grls.retrieve.base import Retriever
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.queries import check_counts
from grls.retrieve.registry import open_retriever
from grls.train.doc2query.form import QueryForm, QueryPrompt
from grls.train.doc2query.generate import Drawing, From, QueryWriter, Task, tasks
from grls.train.doc2query.round_trip import Sifted, sift

_PORTION = 16
"""Batches that are written before the file grows; within them, like lengths go together."""


def pseudo_queries(
    data: str,
    model: str,
    output: str,
    n: int = 5,
    hops: int = 1,
    links: str | None = None,
    reads: From | None = None,
    temperature: float = 1.0,
    top_p: float = 0.95,
    k: int = 10,
    retriever: str | None = None,
    filter: bool = True,
    seed: int = 0,
    batch_size: int = 32,
    limit: int | None = None,
    device: str = "auto",
    precision: Literal["float32", "bfloat16"] = "float32",
    analyzer: Analyzer = USUAL,
) -> None:
    """Let a query generator write queries for passages, and keep those that lead back to them.

    OUTPUT has lines as queries.jsonl has, with evidence; `--data.mix.pseudo` of training reads it.
    OUTPUT.written.jsonl keeps what was written, so that a run that was ended goes on where it stopped, and
    another filter needs no new queries. OUTPUT.manifest.json says what was dropped, and why.

    Args:
        data: Data set folder, or its corpus.jsonl.
        model: Folder of a query generator that `grls train` wrote.
        output: JSONL file to write.
        n: Queries a passage (with several hops: chains that begin with it).
        hops: Passages a query has for evidence; each is linked to the one before.
        links: File of `grls neighbours`, for several hops.
        reads: The query is written from the first passage of its chain, or from all; null: all, if the
            generator has learned to read several.
        temperature: Of the draws; below 1 they are nearer to what is likeliest.
        top_p: Draws are from the likeliest tokens that have this probability together.
        k: A query is kept if its (first) passage is among the k best that are retrieved for it.
        retriever: Retriever folder over this corpus that judges so, in the place of BM25.
        filter: Judge so at all; without, only what is no query is dropped.
        seed: Of all draws.
        batch_size: Queries written together.
        limit: Only for so many passages, drawn by the seed; null takes all.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        precision: In which numbers the query generator computes: bfloat16 where the processor has it.
        analyzer: How BM25 splits texts into words: language, stemming and function words.
    """
    quiet()
    check_counts(**{"--k": k, "--batch_size": batch_size, "--limit": 1 if limit is None else limit})
    refuse_unwritable(output)
    corpus = Corpus.read(data)
    form = QueryForm.read(model)
    several = reads or ("first" if form.passages == "one" else "all")
    drawing = Drawing(n, hops, several, temperature, top_p, seed)
    judge = _judge(data, corpus, retriever, device, batch_size, analyzer) if filter else None
    near = None if links is None else Neighbours.read(links, corpus)
    asked = tasks(_chosen(len(corpus), limit, seed), near, drawing)
    loaded, tokenizer = load_language_model(model, device, precision)
    prompt = QueryPrompt(tokenizer, not loaded.config.is_encoder_decoder, form)
    origin = {
        "weights": weights_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
        "form": form._asdict(), "corpus": corpus.fingerprint, "limit": limit,
        "links": None if links is None else sha256(links), **asdict(drawing),
    }  # fmt: skip
    if precision != "float32":
        origin["precision"] = precision
    file = GrowingFile(_beside(output, "written.jsonl"), origin)
    file.refuse_other(("chain", "draw"), ((corpus.ids(task.chain), task.draw) for task in asked))
    writer = TextWriter(loaded, tokenizer, form.query_tokens + 1, batch_size)
    _write(QueryWriter(writer, prompt, corpus, drawing), asked, file, batch_size)
    found = sift(file.records, corpus, judge, k)
    _keep(output, found, origin, {"k": k, "retriever": retriever or "bm25"} if filter else {})
    wanted = n * min(len(corpus), limit or len(corpus))
    print(_summary(found, len(file.records), wanted - len(asked), k))


def _beside(output: str, ending: str) -> Path:
    return Path(output).with_name(f"{Path(output).name}.{ending}")


def _judge(
    data: str, corpus: Corpus, folder: str | None, device: str, batch_size: int, analyzer: Analyzer
) -> Retriever:
    if folder is None:
        return BM25Retriever(corpus, analyzer=analyzer)
    options = SearchOptions(batch_size=batch_size, truncate_queries=True)
    opened = open_retriever(folder, device, options=options)
    refuse_other_corpus(opened, data, "", corpus)
    return opened


def _chosen(count: int, limit: int | None, seed: int) -> list[int]:
    """Numbers of the passages that are written for."""
    if limit is None or limit >= count:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), limit))


def _write(writer: QueryWriter, asked: list[Task], file: GrowingFile, batch_size: int) -> None:
    """Write what the file lacks, and say how long it took."""
    done = len(file.records)
    start = perf_counter()
    with Progress(len(asked), "pseudo-queries", "queries", done) as bar:
        for first in range(done, len(asked), batch_size * _PORTION):
            file.add(writer.write(asked[first : first + batch_size * _PORTION], bar.update))
    if done < len(asked):
        seconds = perf_counter() - start
        print(f"{len(asked) - done:,} queries written in {seconds:.1f} s, {done:,} found in {file.path}")


def _keep(output: str, found: Sifted, origin: dict[str, Any], judged: dict[str, Any]) -> None:
    """Write the queries that are kept, and what became of the others.

    Raises:
        ConfigError: None is kept.
    """
    counts = {"kept": len(found.kept), "dropped": dict(sorted(found.dropped.items()))}
    if not found.kept:
        raise ConfigError(
            f"none of the pseudo-queries is kept ({_reasons(found)}); raise --k, or train the generator "
            "for longer."
        )
    with atomic_file(output) as stream:
        for query in found.kept:
            write_line(stream, query_record(query))
    write_json(_beside(output, "manifest.json"), {**origin, **judged, **counts})


def _reasons(found: Sifted) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in sorted(found.dropped.items()))


def _summary(found: Sifted, written: int, unlinked: int, k: int) -> str:
    """What came out, in a few lines."""
    passages = len({query.evidence[0] for query in found.kept})
    lines = [f"{len(found.kept):,} of {written:,} pseudo-queries kept, for {passages:,} passages"]
    if found.asked:
        lines.append(f"round trip: {found.rate:.1%} of {found.asked:,} find their passage among the {k} best")
    if found.dropped:
        lines.append(f"dropped: {_reasons(found)}")
    if unlinked:
        lines.append(f"not written: {unlinked:,} chains that found no further passage")
    return "\n".join(lines)
