"""``grls prepare propositions``, keys for ``grls answer riches``; ``grls prepare pseudo-queries``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.answer.riches.options import PropositionOptions
from grls.data.dataset import query_record
from grls.data.language import guess
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, Option
from grls.io.arguments import Count
from grls.io.files import atomic_file, refuse_unwritable, write_json
from grls.io.jsonl import write_line
from grls.io.progress import counted
from grls.io.work import all_done
from grls.models.option_names import Device, Numbers
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25, Opening
from grls.train.doc2query.options import USUAL_DRAWING, Drawing


def propositions(
    *,
    output: str,
    **options: Any,
) -> None:
    """Let a language model write propositions of every passage, keys for `grls answer riches`.

    OUTPUT holds one proposition a line, with the passage it comes from; where the model writes nothing
    usable, the sentences of the passage are its propositions. OUTPUT.written.jsonl grows with the
    run, so that a run that was ended resumes when it is called again with the same options.

    Args:
        output: JSONL file to write.
        options: See :class:`~grls.answer.riches.options.PropositionOptions`.
    """
    asked = PropositionOptions(**options)
    from grls.answer.riches.propositions import open_propositions, proposition_lines

    refuse_unwritable(output)
    numbers, writer, origin = open_propositions(asked)
    start = perf_counter()
    by: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    with all_done(
        numbers, writer.write, _beside(output, "written.jsonl"), origin, writer.name, asked.batch_size,
        "propositions", "passages",
    ) as file, atomic_file(output) as stream:  # fmt: skip
        for record in file:
            for line in proposition_lines(record):
                write_line(stream, line)
            by["propositions"] += len(record["texts"])
            by[record["by"] if record["texts"] else "nothing"] += 1
            dropped.update(record["dropped"])
    write_json(_beside(output, "manifest.json"), {**origin, **by, "dropped": dict(sorted(dropped.items()))})
    print(
        f"{counted(len(numbers), 'passage')}, {counted(by['propositions'], 'proposition')} "
        f"({by['propositions'] / len(numbers):.2f} each); "
        f"instead, sentences of {counted(by['sentences'], 'passage')}; nothing of {by['nothing']:,}"
    )
    if dropped:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(dropped.items()))
        print(f"left out of what the model wrote: {reasons}")
    if new := file.count - file.found:
        print(f"{counted(new, 'passage')} in this run, {(perf_counter() - start) / new:.2f} s each")


def pseudo_queries(
    *,
    data: str,
    model: str,
    output: str,
    draw: Drawing = USUAL_DRAWING,
    endpoint: str | None = None,
    tokens: Count | None = None,
    retrievers: tuple[str, ...] = (BM25,),
    k: Count = 10,
    search: SearchOptions = USUAL_SEARCH,
    limit: Count | None = None,
    device: Device = "auto",
    precision: Numbers = "float32",
    analyzer: Analyzer = USUAL,
) -> None:
    """Let a language model write queries for passages, and keep those that lead back to them.

    OUTPUT has the form of queries.jsonl, with evidence; `--data.mix.pseudo` of training reads it.
    OUTPUT.written.jsonl keeps all written queries, so that a run that was ended resumes, and another
    retriever needs no new queries. OUTPUT.manifest.json counts the dropped queries by reason.

    Args:
        data: Data set folder, or its corpus.jsonl.
        model: A query generator that `grls train doc2query` wrote, an encoder-decoder of doc2query, or an
            instructed language model: a folder, a .gguf file or a hub name; with ``endpoint`` its name there.
        output: JSONL file to write.
        draw: Options of drawing queries.
        endpoint: Address of an OpenAI-compatible server, such as http://localhost:8000/v1; its key is in the
            environment variable OPENAI_API_KEY.
        tokens: The most tokens that an instructed model may read and write, about; fewer queries are written
            if those of all take more.
        retrievers: Retrievers that judge the queries: retriever folders of any kind over this corpus, or
            bm25; in ranked hops for queries of two. With none (``[]``) only unusable texts are dropped.
        k: A query is kept if each retriever finds its passages among its k best.
        search: Options of search of a retriever folder; ``batch_size`` is also that of the language model.
        limit: Number of passages to write queries for, drawn by the seed; null: all.
        precision: Precision of the query generator: bfloat16 only where the processor has it.
        analyzer: How bm25 splits texts into words: language, stemming and function words.
    """
    from grls.retrieve.hops.retriever import hop_by_hop
    from grls.train.doc2query.generate import PORTION, estimated_tokens, open_queries, sift
    from grls.train.doc2query.questions import GROUP, QuestionPrompt

    refuse_unwritable(output)
    tasks, writer, origin = open_queries(
        data, model, draw, limit, search.batch_size, device, precision, endpoint
    )
    corpus, asked = writer.corpus, isinstance(writer.prompt, QuestionPrompt)
    every = tasks
    if asked:
        needed = estimated_tokens(writer, tasks)
        told = f"about {needed:,} tokens are read and written for {counted(len(tasks), 'question')}"
        if tokens is not None and needed > tokens:
            tasks = tasks[: max(1, len(tasks) * tokens // needed)]
            told += f"; {Option('tokens', tokens)!s} leaves {len(tasks):,} of them"
        print(told)
    elif tokens is not None:
        raise ConfigError(f"{Option('tokens')} is for an instructed language model: leave it out.")
    judges = [open_judge(name, corpus, Opening(device, search=search), analyzer) for name in retrievers]
    if draw.hops > 1:
        judges = [hop_by_hop(judge, HopOptions(steps="ranked", max=draw.hops)) for judge in judges]
    start = perf_counter()
    with all_done(
        tasks, writer.write, _beside(output, "written.jsonl"), origin, writer.name,
        PORTION * search.batch_size if endpoint is None else GROUP, "pseudo-queries", "queries", every,
        alone=endpoint is not None,
    ) as file:  # fmt: skip
        records = list(file)
        if new := file.count - file.found:
            seconds = perf_counter() - start
            print(f"{counted(new, 'query')} written in {seconds:.1f} s, {file.found:,} found in {file.path}")
    sifted = sift(records, corpus, judges, k, asked)
    dropped = dict(sorted(sifted.dropped.items()))
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())
    if unread := [record["failed"] for record in records if "failed" in record]:
        print(f"{counted(len(unread), 'prompt')} not read by the model, such as: {unread[0]}")
    if asked:
        spoken, read = (
            guess(record["text"] for record in records if record["text"]),
            guess(p.text for p in corpus.passages([*range(0, len(corpus), -(-len(corpus) // 200))])),
        )
        if None not in (spoken, read) and spoken != read:
            print(f"the questions seem to be in {spoken!r}, and the passages in {read!r}: take another model")
    if not sifted.queries:
        raise ConfigError(
            f"none of the pseudo-queries is kept ({reasons}); raise --k, or take a better model."
        )
    with atomic_file(output) as stream:
        for query in sifted.queries:
            write_line(stream, query_record(query))
    judged = {"k": k, "retrievers": [*retrievers]} if retrievers else {}
    counts = {"kept": len(sifted.queries), "dropped": dropped}
    write_json(_beside(output, "manifest.json"), {**origin, **judged, **counts})
    written, passages = len(records), len({query.evidence[0] for query in sifted.queries})
    print(
        f"{len(sifted.queries):,} of {counted(written, 'pseudo-query')} kept, for "
        f"{counted(passages, 'passage')}"
    )
    if sifted.searched:
        print(f"round trip: {sifted.rate:.1%} of {sifted.searched:,} find their passages among the {k} best")
    if dropped:
        print(f"dropped: {reasons}")
    if asked:
        for query in sifted.queries[:: max(1, len(sifted.queries) // _EXAMPLES)][:_EXAMPLES]:
            print(f"  {query.text}  ({', '.join(query.evidence)})")


_EXAMPLES = 10  # questions that are shown


def _beside(output: str, ending: str) -> Path:
    return Path(output).with_name(f"{Path(output).name}.{ending}")
