"""``grls program``: the programs of demonstrate-search-predict, and their baselines."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grls.answer.direct import WrittenAnswer
from grls.commands.output import Outcome, write_outputs
from grls.commands.read import answer_record, shown_reading
from grls.commands.sources import Folders, Named, Source, open_source
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Hit, Query
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.io.files import refuse_unwritable
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile
from grls.retrieve.fusion.fuse import Method as FusionMethod
from grls.retrieve.queries import check_counts
from grls.runs.manifest import RunInfo, Steps, fingerprint_queries

if TYPE_CHECKING:
    from grls.answer.dsp.retrieval import Retrieval

log = logging.getLogger(__name__)

API = "api:"

Program = Literal["openqa", "multihop", "conversational", "vanilla", "retrieve-then-read", "self-ask"]
Demonstrations = Literal["none", "labeled", "bootstrap", "nearest", "search"]


def program(
    action: Literal["run"],
    program: Program,
    *,
    data: str,
    lm: str,
    output: str,
    retriever: Folders = None,
    bm25: bool = False,
    steps: Steps = "single",
    chain_hops: int | None = None,
    done_bias: float = 0.0,
    fusion: FusionMethod = "interleave",
    weights: list[float] | None = None,
    split: str = "test",
    k: int = 3,
    hops: int = 2,
    queries: int = 1,
    branches: int = 1,
    temperature: float = 0.7,
    demonstrations: Demonstrations = "none",
    train: str = "train",
    demos: int = 3,
    examples: int = 50,
    endpoint: str | None = None,
    template: Literal["lines", "chat"] | None = None,
    chat: bool = False,
    max_new_tokens: int | None = None,
    batch_size: int = 8,
    threads: int = 8,
    attempts: int = 3,
    wait: float = 1.0,
    timeout: float = 60.0,
    limit: int | None = None,
    show: int = 3,
    device: str = "auto",
    name: str | None = None,
    analyzer: Analyzer = USUAL,
) -> None:
    """Answer questions with a program of demonstrate-search-predict (arXiv 2212.14024), on DSPy.

    Writes a line a query to OUTPUT.trace.jsonl as soon as it is answered: the answer, every call of the model
    and every retrieval, and what it cost. A run that was ended goes on where it stopped when it is called
    again; a query whose model failed for good is recorded as failed, and tried anew then. At the end it
    writes OUTPUT.answers.jsonl for `grls answers`, and OUTPUT.trec, OUTPUT.jsonl and OUTPUT.info.json.

    Args:
        action: run.
        program: openqa, multihop or conversational; or a baseline: vanilla, retrieve-then-read or self-ask.
        data: Data set folder.
        lm: Folder, hub name or .gguf file of a language model; with --endpoint the name it has there; or
            api:PROVIDER/MODEL as DSPy names them (api:openai/gpt-4o-mini), with its key in the environment.
        output: Path of the results without ending.
        retriever: Retriever folders that `grls index` wrote, generative or dense; what several find is fused.
        bm25: Retrieve with BM25 from the data set's corpus.
        steps: How each retrieves: ``single``; ``fixed``: ``chain_hops`` hops, each found passage joins the
            query; ``dynamic``: hops until DONE. The passages of a query's chains are its ranking.
        chain_hops: Hops of a chain (fixed), most hops (dynamic); null: 2.
        done_bias: Added to the log-odds of DONE (dynamic); see `grls retrieve`.
        fusion: How several are fused: interleave, rrf or sum; see `grls ensemble`.
        weights: One a retriever, BM25's last (rrf, sum); null weighs all alike.
        split: Which queries.
        k: Passages read, of a hop where there are several.
        hops: Most hops (multihop) or follow-up questions (self-ask).
        queries: Queries the model writes for a retrieval (openqa: beside the question); several are drawn at
            a temperature, and what they find is fused.
        branches: Run the program so many times at a temperature and take the majority's answer.
        temperature: Of several queries, and of branches.
        demonstrations: none; labeled: questions and answers; bootstrap: the steps of examples that the
            program answers rightly; nearest: the same for each query from the examples most like it; search:
            the best of several bootstrapped sets on held-out examples.
        train: Split that demonstrations come from.
        demos: Demonstrations.
        examples: Queries of that split to try, the first ones with an answer or evidence.
        endpoint: Address of an OpenAI-compatible endpoint, such as vLLM's http://localhost:8000/v1; its key,
            if it wants one, in VLLM_API_KEY.
        template: How the model is asked: lines: a line a field, for any model; chat: DSPy's own format, for
            models that keep to one. null: lines, but chat for an endpoint.
        chat: Tell a local model in turns, by its chat template.
        max_new_tokens: Length limit of what is written at once; null: 64, but 512 for the template chat. The
            trace says what was cut.
        batch_size: Prompts that a local model goes on from together.
        threads: Queries answered at the same time.
        attempts: Most calls for one output, where the model fails or writes nonsense.
        wait: Seconds before the second call; twice as long before each later one.
        timeout: Seconds to wait for an endpoint.
        limit: Only so many queries, the first ones; null takes all.
        show: Print so many answers.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
        analyzer: How BM25 splits texts into words: language, stemming and function words.
    """
    quiet()
    named = Named.of(retriever, bm25, steps, chain_hops, done_bias, fusion, weights, analyzer)
    _check(program, named, endpoint, lm, limit)
    check_counts(**{"--k": k, "--branches": branches, "--examples": examples, "--threads": threads})
    refuse_unwritable(output)
    from grls.answer.dsp import build, run  # imported late: DSPy is an extra
    from grls.answer.dsp.branch import Branch
    from grls.answer.dsp.demonstrate import dspy_examples as shown_examples
    from grls.answer.dsp.demonstrate import hushed, inputs_of

    logging.getLogger("dspy").setLevel(logging.CRITICAL)  # failures stand in the trace
    corpus = Corpus.read(data)
    asked, qrels = read_split(data, split, corpus)
    talk = program == "conversational"
    taught = [] if demonstrations == "none" else read_split(data, train, corpus)[0]
    taught = [query for query in taught if query.answers or query.evidence][:examples]
    shown = shown_examples(taught, talk) if demonstrations != "none" else []
    remote = endpoint is not None or lm.startswith(API)
    template = template or ("chat" if remote else "lines")
    max_new_tokens = build.NEW_TOKENS[template] if max_new_tokens is None else max_new_tokens
    options = {
        "program": program, "lm": lm if remote else Path(lm).name, "endpoint": endpoint,
        **named.settings(), "k": k, "hops": hops, "queries": queries,
        "branches": branches, "temperature": temperature, "demonstrations": demonstrations, "demos": demos,
        "template": template, "chat": chat, "max_new_tokens": max_new_tokens,
    }  # fmt: skip
    source = open_source(named, data, device, batch_size, split)
    retrieval = None if source is None else _retrieval(source, corpus, k)
    model, model_print = build.lm_named(lm, endpoint, max_new_tokens, batch_size, chat, timeout, device)
    adapter = build.adapter_named(template, attempts, wait)
    built = build.program_named(program, retrieval, hops, queries, temperature)
    prints = {"corpus": corpus.fingerprint, "queries": fingerprint_queries(asked)}
    if source is not None:
        prints["retriever_fingerprint"] = source.fingerprint
    prints |= {"examples": fingerprint_queries(taught)}
    if model_print is not None:
        prints["weights"] = model_print
    file = GrowingFile(f"{output}.trace.jsonl", {**options, **prints})
    run.refuse_other(file, [query.id for query in asked])
    with run.settings(model, adapter):
        built = build.demonstrated(
            built, demonstrations, shown, demos, threads, f"{output}.program.json", {**options, **prints}
        )
    built = Branch(built, branches, temperature)
    asked = asked[:limit]
    given = {query.id: inputs_of(query, talk) for query in asked}
    with (
        Progress(len(asked), program, "queries") as bar,
        hushed() if demonstrations == "nearest" else nullcontext(),
    ):
        records = run.answer_all(built, given, model, adapter, file, threads, bar.update)
    seconds = run.seconds_of(file, given)
    readings = [_reading(record) for record in records]
    for query, reading in list(zip(asked, readings, strict=True))[:show]:
        print(shown_reading(query, reading, corpus) + "\n")
    _write_answers(f"{output}{ENDING}", asked, readings, records, corpus)
    system: str = "generator"
    mode = "none"
    if source is not None:
        system, mode = source.system, source.score_mode
    info = RunInfo(
        system=system,
        name=name or (program if source is None else f"{program}, {source.label}, k={k}"),
        steps="single",
        corpus=corpus.fingerprint,
        queries=fingerprint_queries(asked),
        data=data,
        split=split,
        score_mode=_score_mode(program, queries, mode),
        seconds=seconds,
        options={**options, "cost": _total(records)},
    )
    write_outputs(output, asked, corpus, Outcome([list(one.ranking) for one in readings]), info)
    print(summary(score_answers(read_answers(f"{output}{ENDING}"), asked, qrels, corpus), seconds))
    _tell(records)


def _check(program: Program, named: Named, endpoint: str | None, lm: str, limit: int | None) -> None:
    if program == "vanilla" and named:
        raise ConfigError("the program vanilla retrieves nothing: leave out --retriever and --bm25.")
    if program != "vanilla" and not named:
        raise ConfigError("give --retriever FOLDER or --bm25 true, or both: then what they find is fused.")
    if endpoint is not None and lm.startswith(API):
        raise ConfigError("--endpoint has models of its own: give the name it has there, without `api:`.")
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit must be at least 1, got {limit}.")


def _retrieval(source: Source, corpus: Corpus, k: int) -> Retrieval:
    from grls.answer.dsp.retrieval import Retrieval

    return Retrieval(source.retriever, corpus, k, "log" if source.probable else "softmax")


def _score_mode(program: Program, queries: int, mode: str) -> str:
    """What the scores of the ranking are."""
    if program in ("multihop", "self-ask"):
        return "interleave"
    fused = (program == "openqa" and queries > 0) or (program == "conversational" and queries > 1)
    return "comb_sum" if fused else mode


def _reading(record: dict[str, Any]) -> WrittenAnswer:
    ranking = tuple(Hit(passage, score) for passage, score in record["found"])
    read = tuple(passage for passage, _ in record["read"])
    return WrittenAnswer(
        record["answer"], record.get("ended", True), read, ranking
    )  # begun before it was kept


def _write_answers(
    path: str, asked: Sequence[Query], readings: Sequence[WrittenAnswer], records: Sequence[dict[str, Any]],
    corpus: Corpus,
) -> None:  # fmt: skip
    """The answers as `grls read` writes them, with what each cost and why it failed."""
    more = ("failed", "cost")
    write_answers(
        path,
        (
            answer_record(query, reading, corpus) | {key: record[key] for key in more if key in record}
            for query, reading, record in zip(asked, readings, records, strict=True)
        ),
    )


def _total(records: Sequence[dict[str, Any]]) -> dict[str, int]:
    costs = [record["cost"] for record in records]
    return {key: sum(cost[key] for cost in costs) for key in costs[0]} if costs else {}


def _tell(records: Sequence[dict[str, Any]]) -> None:
    """What the queries cost, which failed, and where nothing was found."""
    spent = _total(records).items()
    shares = (f"{total / len(records):,.1f} {what.replace('_', ' ')}" for what, total in spent)
    print(f"a query cost {', '.join(shares)}")
    failed = [record for record in records if "failed" in record]
    if failed:
        log.warning(
            "%d of %d queries failed, such as %r (%s); call again with the same options to try them anew.",
            len(failed), len(records), failed[0]["query_id"], failed[0]["failed"],
        )  # fmt: skip
    every = [step for record in records for step in record["trace"]]
    steps = [step for step in every if step["kind"] == "retrieval"]
    empty = sum(not step["found"] for step in steps)
    if empty:
        log.warning("nothing was found in %d of %d retrievals.", empty, len(steps))
    calls = [call for step in every for call in step.get("calls", ())]
    cut = sum("cut" in call for call in calls)
    if cut:
        ended = sum(not record.get("ended", True) for record in records)
        log.warning(
            "%d of %d outputs were cut at the length limit, %d answers among them; raise --max_new_tokens.",
            cut, len(calls), ended,
        )  # fmt: skip
