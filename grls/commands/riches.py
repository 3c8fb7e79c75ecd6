"""``grls riches``: answers with the evidence retrieved while they are written."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from tqdm import tqdm

from grls.commands.output import Outcome, write_outputs
from grls.corpus import Corpus
from grls.dataset import Qrels, read_split, relevant
from grls.decode.interleave import Beam, InterleaveOptions
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.manifest import RunInfo, fingerprint_queries
from grls.evaluation.metrics.answer_f1 import answer_f1
from grls.files import atomic_file, refuse_unwritable
from grls.jsonl import write_line
from grls.logs import quiet
from grls.models.language import load_language_model
from grls.programs.keys import KeyKind, build_keys
from grls.programs.prompts import Prompt, PromptKind
from grls.programs.riches import Riches, Written
from grls.programs.view import page, terminal
from grls.types import Query


def riches(
    data: str,
    model: str,
    output: str,
    split: str = "test",
    keys: KeyKind = "sentence",
    anywhere: bool = False,
    propositions: str | None = None,
    prompt: PromptKind = "single",
    keywords: bool = True,
    chat: bool = False,
    markers: tuple[str, str] = ("«", "»"),
    beams: int = 10,
    beam: Beam = "adaptive",
    mode: ScoreMode = "full",
    whole: bool = True,
    repeat: bool = False,
    max_new_tokens: int = 128,
    max_key_tokens: int = 128,
    batch_size: int = 8,
    limit: int | None = None,
    show: int = 3,
    device: str = "auto",
    name: str | None = None,
) -> None:
    """Answer questions with interlaced retrieval (RICHES, arXiv 2407.00361).

    Writes OUTPUT.trec, OUTPUT.jsonl and OUTPUT.info.json as `grls retrieve` does (the passages of the quotes,
    in their order), OUTPUT.answers.jsonl (thoughts, quotes, answer), and OUTPUT.html to look at.

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model, causal or encoder-decoder; a .gguf file is read, too.
        output: Path of the results without ending.
        split: Which queries.
        keys: What may be quoted: sentence, paragraph, titled (with its title), title, or proposition.
        anywhere: A quote may begin anywhere in a key.
        propositions: JSONL with `passage` (its id) and `text`, for --keys proposition.
        prompt: Examples of one hop (single) or several (multi), or none for a model that was fine-tuned.
        keywords: Let the model write what to look for before each quote.
        chat: Tell the model in turns, by its chat template.
        markers: What opens and closes a quote, as '["«", "»"]'.
        beams: Beam width.
        beam: adaptive: free text greedily, quotes with the whole beam; full or greedy: both alike.
        mode: Score mode within quotes: over the vocabulary, or over what may be quoted (renormalized).
        whole: A quote ends only where a key ends.
        repeat: Allow a key twice in one answer.
        max_new_tokens: Length limit of an answer.
        max_key_tokens: Length after which a quote that may end must.
        batch_size: Questions answered together.
        limit: Answer only so many questions, the first ones; null answers all.
        show: Print so many answers.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        name: What reports call this run.
    """
    quiet()
    if limit is not None and limit < 1:
        raise ConfigError(f"--limit must be at least 1, got {limit}.")
    if batch_size < 1:
        raise ConfigError(f"--batch_size must be at least 1, got {batch_size}.")
    refuse_unwritable(output)
    options = InterleaveOptions(
        beams, beam, mode, whole, repeat, max_new_tokens, max_key_tokens, slots=batch_size
    )
    corpus = Corpus.read(data)
    queries, qrels = read_split(data, split)
    queries = queries[:limit]
    loaded, tokenizer = load_language_model(model, device)
    made = build_keys(corpus, tokenizer, keys, anywhere, propositions, markers)
    program = Riches(loaded, tokenizer, corpus, made, Prompt(prompt, markers, keywords, chat), options)
    start = perf_counter()
    with tqdm(total=len(queries), desc="riches", unit=" queries", leave=False, disable=None) as bar:
        outputs = program.answer(queries, bar.update)
    seconds = perf_counter() - start
    for query, written in list(zip(queries, outputs, strict=True))[:show]:
        print(terminal(query, written, markers, sys.stdout.isatty()) + "\n")
    _write_answers(f"{output}.answers.jsonl", queries, outputs)
    with atomic_file(f"{output}.html") as file:
        file.write(page(name or "RICHES", queries, outputs, corpus, markers))
    info = RunInfo(
        system="generator",
        name=name or f"RICHES, {keys}, {beam}",
        steps="single",
        corpus=corpus.fingerprint,
        queries=fingerprint_queries(queries),
        data=data,
        split=split,
        score_mode=mode,
        seconds=seconds,
        options={
            "model": Path(model).name, "keys": keys, "anywhere": anywhere, "prompt": prompt,
            "keywords": keywords, "chat": chat, "beams": beams, "beam": beam, "whole": whole,
            "repeat": repeat, "max_new_tokens": max_new_tokens,
        },
    )  # fmt: skip
    rankings = [written.ranking() for written in outputs]
    write_outputs(output, queries, corpus, Outcome(rankings), info)
    print(_summary(queries, outputs, qrels, seconds))


def _write_answers(file: str, queries: Sequence[Query], outputs: Sequence[Written]) -> None:
    with atomic_file(file) as stream:
        for query, written in zip(queries, outputs, strict=True):
            record: dict[str, Any] = {
                "query_id": query.id,
                "text": query.text,
                "answer": written.answer,
                "score": written.score,
                "ended": written.ended,
                "pieces": [piece._asdict() for piece in written.pieces],
                "quotes": [quote._asdict() for quote in written.quotes],
            }
            write_line(stream, record)


def _summary(queries: Sequence[Query], outputs: Sequence[Written], qrels: Qrels, seconds: float) -> str:
    """What came out, in a line or two."""
    quotes = [quote for written in outputs for quote in written.quotes]
    cut = sum(not quote.closed for quote in quotes)
    lines = [
        f"{len(queries):,} queries, {seconds / len(queries):.2f} s each; {len(quotes) / len(queries):.2f} "
        f"quotes a query, {cut} not closed at the length limit"
    ]
    judged = [(q, w) for q, w in zip(queries, outputs, strict=True) if relevant(qrels.get(q.id, {}))]
    if judged:
        ranks = [_first_gold(written, relevant(qrels[query.id])) for query, written in judged]
        shares = [f"hits@{k} {100 * sum(rank <= k for rank in ranks) / len(ranks):.1f}" for k in (1, 5)]
        lines.append(f"passages: {', '.join(shares)} ({len(judged):,} queries)")
    asked = [(query, written) for query, written in zip(queries, outputs, strict=True) if query.answers]
    if asked:
        scores = answer_f1([written.answer for _, written in asked], [q.answers for q, _ in asked])
        lines.append(
            f"answers: exact match {100 * scores['exact_match']:.1f}, F1 {100 * scores['f1']:.1f} "
            f"({len(asked):,} queries)"
        )
    return "\n".join(lines)


def _first_gold(written: Written, gold: Sequence[str]) -> float:
    """The rank of the first gold passage among those quoted; infinite where none is."""
    ranks = (rank for rank, hit in enumerate(written.ranking(), 1) if hit.id in gold)
    return next(ranks, math.inf)
