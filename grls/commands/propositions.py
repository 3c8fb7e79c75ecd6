"""``grls prepare propositions``, keys for ``grls answer riches``; ``grls prepare pseudo-queries``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.answer.riches.options import PropositionOptions
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.io.arguments import Count
from grls.io.files import atomic_file, refuse_unwritable, write_json
from grls.io.jsonl import write_line
from grls.io.progress import counted
from grls.io.work import all_done
from grls.models.option_names import Device, Numbers
from grls.retrieve.bm25 import refuse_words
from grls.retrieve.generative.options import USUAL_SEARCH, SearchOptions
from grls.retrieve.registry import BM25, Opening, load_named
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
    from grls.train.doc2query.generate import PORTION, open_queries
    from grls.train.doc2query.questions import GROUP, QuestionPrompt
    from grls.train.doc2query.written import foreign, judged, save, written

    refuse_unwritable(output)
    opened = open_queries(data, model, draw, limit, search.batch_size, device, precision, endpoint)
    _, writer, origin = opened
    for name in retrievers:
        refuse_words(name, analyzer)
    opening = Opening(device, search=search, truncate_queries=True)  # passages may be queries
    judges = [load_named(name, writer.corpus, opening, analyzer) for name in retrievers]
    together = PORTION * search.batch_size if endpoint is None else GROUP
    records = written(opened, output, together, tokens)
    if isinstance(writer.prompt, QuestionPrompt) and (language := foreign(records, writer.corpus)):
        print(language)
    sifted = judged(records, writer, judges, draw.hops, k)
    if not sifted.queries:
        raise ConfigError(
            f"none of the pseudo-queries is kept ({sifted.reasons}); raise --k, or take a better model."
        )
    save(output, sifted.queries)
    how = {"k": k, "retrievers": [*retrievers]} if retrievers else {}
    counts = {"kept": len(sifted.queries), "dropped": dict(sorted(sifted.dropped.items()))}
    write_json(_beside(output, "manifest.json"), {**origin, **how, **counts})


def _beside(output: str, ending: str) -> Path:
    return Path(output).with_name(f"{Path(output).name}.{ending}")
