"""``grls riches``: answers with the evidence retrieved while they are written."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from tqdm import tqdm

from grls.commands.output import Outcome, write_outputs
from grls.corpus import Corpus
from grls.dataset import read_split
from grls.decode.continuations import Beam, InterleaveOptions
from grls.decode.scores import ScoreMode
from grls.errors import ConfigError
from grls.evaluation.answers import ENDING, read_answers, score_answers, summary, write_answers
from grls.evaluation.manifest import RunInfo, fingerprint_queries
from grls.files import atomic_file, refuse_unwritable
from grls.logs import quiet
from grls.models.language import load_language_model
from grls.programs.keys import KeyKind, build_keys, keys_in
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
    index: str | None = None,
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
    max_keys: int = 100,
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
        keys: What may be quoted: sentence, paragraph, titled (with its title), title, header (title and
            section header, from metadata.section), or proposition. Passages under one title or header are
            ranked by TF-IDF.
        anywhere: A quote may begin anywhere in a key.
        propositions: JSONL with `passage` (its id) and `text`, for --keys proposition, as `grls propositions`
            writes it.
        index: Folder for the keys and their index: used where it holds them, else written.
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
        max_keys: How many of the keys that hold a quote are named, and their passages retrieved, at most.
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
        beams, beam, mode, whole, repeat, max_new_tokens, max_key_tokens, slots=batch_size, keys=max_keys
    )
    corpus = Corpus.read(data)
    queries, qrels = read_split(data, split)
    queries = queries[:limit]
    loaded, tokenizer = load_language_model(model, device)
    made = (
        build_keys(corpus, tokenizer, keys, anywhere, propositions, markers) if index is None
        else keys_in(index, corpus, tokenizer, keys, anywhere, propositions, markers)
    )  # fmt: skip
    program = Riches(loaded, tokenizer, corpus, made, Prompt(prompt, markers, keywords, chat), options)
    start = perf_counter()
    with tqdm(total=len(queries), desc="riches", unit=" queries", leave=False, disable=None) as bar:
        outputs = program.answer(queries, bar.update)
    seconds = perf_counter() - start
    for query, written in list(zip(queries, outputs, strict=True))[:show]:
        print(terminal(query, written, markers, sys.stdout.isatty()) + "\n")
    answers = f"{output}{ENDING}"
    write_answers(answers, (_record(*pair) for pair in zip(queries, outputs, strict=True)))
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
            "repeat": repeat, "max_new_tokens": max_new_tokens, "max_keys": max_keys,
        },
    )  # fmt: skip
    rankings = [written.ranking() for written in outputs]
    write_outputs(output, queries, corpus, Outcome(rankings), info)
    print(summary(score_answers(read_answers(answers), queries, qrels, corpus), seconds))
    several = sum(quote.held > len(quote.keys) for written in outputs for quote in written.quotes)
    if several:
        print(f"{several} quotes are held by more keys than --max_keys lets be named")


def _record(query: Query, written: Written) -> dict[str, Any]:
    return {
        "query_id": query.id,
        "text": query.text,
        "answer": written.answer,
        "score": written.score,
        "ended": written.ended,
        "pieces": [piece._asdict() for piece in written.pieces],
        "quotes": [quote._asdict() for quote in written.quotes],
    }
