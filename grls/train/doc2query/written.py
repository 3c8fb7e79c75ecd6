"""Pseudo-queries are written into a journal, within a limit of tokens, judged, and told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import query_record
from grls.data.language import guess
from grls.data.types import Query
from grls.errors import ConfigError, Option
from grls.io.files import atomic_file
from grls.io.jsonl import write_line
from grls.io.progress import counted
from grls.io.work import GrowingFile, Record, all_done
from grls.retrieve.base import Retriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.train.doc2query.generate import QueryWriter, Sifted, Task, estimated_tokens, sift
from grls.train.doc2query.questions import Endpoint, QuestionPrompt

_EXAMPLES = 10  # questions that are shown
TRIAL = 64

Say = Callable[[str], object]


def journal(output: str | Path) -> Path:
    return Path(output).with_name(f"{Path(output).name}.written.jsonl")


def priced(
    prompt: QuestionPrompt,
    corpus: Corpus,
    tasks: list[Task],
    tokens: int | None,
    option: str = "tokens",
    least: int = 1,
) -> tuple[list[Task], str]:
    """The tasks that a limit of tokens leaves, ``least`` or more, and what they cost; ``option`` names it."""
    needed = estimated_tokens(prompt, corpus, tasks)
    told = f"about {needed:,} tokens are read and written for {counted(len(tasks), 'question')}"
    if tokens is None or needed <= tokens:
        return tasks, told
    left, each = len(tasks) * tokens // needed, needed // len(tasks)
    if left < least:
        needs = f", and {least} are needed" if least > 1 else ""
        raise ConfigError(f"{Option(option, tokens)} is too little: a question takes about {each:,}{needs}.")
    return tasks[:left], f"{told}; {Option(option, tokens)!s} leaves {left:,} of them"


def written(
    opened: tuple[list[Task], QueryWriter, dict[str, Any]],
    output: str | Path,
    together: int,
    tokens: int | None = None,
    option: str = "tokens",
    say: Say = print,
    least: int = 1,
    trial: Callable[[list[Record]], object] | None = None,
) -> list[Record]:
    """The queries that an earlier run has not written are written.

    ``trial`` looks at the first :data:`TRIAL` of them, and raises if the others are not worth it.
    """
    every, writer, origin = opened
    tasks = every
    if isinstance(writer.prompt, QuestionPrompt):
        tasks, told = priced(writer.prompt, writer.corpus, tasks, tokens, option, least)
        say(told)
    elif tokens is not None:
        raise ConfigError(f"{Option(option)} is for an instructed language model: leave it out.")
    records: list[Record] = []
    for some in (tasks,) if trial is None else (tasks[:TRIAL], tasks):
        start = perf_counter()
        with all_done(
            some, writer.write, journal(output), origin, writer.name, together, "pseudo-queries", "queries",
            every, alone=isinstance(writer.writer, Endpoint),
        ) as file:  # fmt: skip
            records = list(file)
            if new := file.count - file.found:
                took = f"{perf_counter() - start:.1f} s"
                say(f"{counted(new, 'query')} written in {took}, {file.found:,} found in {file.path}")
        if trial is not None and some is not tasks:
            trial(records[:TRIAL])
    return records


def found(opened: tuple[list[Task], QueryWriter, dict[str, Any]], output: str | Path) -> list[Record]:
    """What there is of a run that was ended."""
    with GrowingFile(journal(output), opened[2]) as file:
        return list(file)


def foreign(records: Sequence[Record], corpus: Corpus) -> str:
    """That the queries are in another language than the passages; empty: they are not, or who knows."""
    spoken = guess(record["text"] for record in records if record["text"])
    read = guess(p.text for p in corpus.passages([*range(0, len(corpus), -(-len(corpus) // 200))]))
    if None in (spoken, read) or spoken == read:
        return ""
    return f"the questions seem to be in {spoken!r}, and the passages in {read!r}: take another model"


def judged(
    records: Sequence[Record],
    writer: QueryWriter,
    judges: Sequence[Retriever],
    hops: int,
    k: int,
    say: Say = print,
) -> Sifted:
    """The queries of so many hops that each judge, by ranked hops if they are two, leads back."""
    asked = isinstance(writer.prompt, QuestionPrompt)
    if hops > 1:
        judges = [hop_by_hop(judge, HopOptions(steps="ranked", max=hops)) for judge in judges]
    sifted = sift(records, writer.corpus, judges, k, asked)
    if unread := [record["failed"] for record in records if "failed" in record]:
        say(f"{counted(len(unread), 'prompt')} not read by the model, such as: {unread[0]}")
    passages = len({query.evidence[0] for query in sifted.queries})
    total = counted(len(records), "pseudo-query")
    say(f"{len(sifted.queries):,} of {total} kept, for {counted(passages, 'passage')}")
    if sifted.searched:
        say(f"round trip: {sifted.rate:.1%} of {sifted.searched:,} find their passages among the {k} best")
    if sifted.dropped:
        say(f"dropped: {sifted.reasons}")
    if asked:
        for query in sifted.queries[:: max(1, len(sifted.queries) // _EXAMPLES)][:_EXAMPLES]:
            say(f"  {query.text}  ({', '.join(query.evidence)})")
    return sifted


def save(output: str | Path, queries: Sequence[Query]) -> None:
    with atomic_file(output) as stream:
        for query in queries:
            write_line(stream, query_record(query))
