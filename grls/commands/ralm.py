"""``grls ralm``: a frozen language model that reads, or writes, with retrieved documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple

from grls.answer.ralm.choose import AsRetrieved, Chooser, Oracle, ZeroShot
from grls.answer.ralm.collect import collect
from grls.answer.ralm.exclude import without
from grls.answer.ralm.generate import continue_texts
from grls.answer.ralm.reader import InContextRalm, ScoredStride, perplexity, refuse_long_window, words_of
from grls.answer.ralm.reranker import Reranker, Trained
from grls.answer.ralm.scoring import TextScorer
from grls.answer.ralm.strides import WindowOptions, strides
from grls.commands.sources import Folders, Named, open_source
from grls.data.codec import foreign_places, tokenizer_fingerprint
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, DataError, MismatchError
from grls.io.files import read_text, refuse_unwritable, write_json
from grls.io.logs import quiet
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile
from grls.models.load.language import LanguageModel, load_language_model, weights_fingerprint
from grls.retrieve.fusion.fuse import Method as FusionMethod
from grls.runs.manifest import Steps

Rerank = Literal["none", "zero-shot", "trained", "oracle"]


class _Text(NamedTuple):
    name: str
    words: int
    tokens: list[int]


def ralm(
    model: str,
    text: str,
    output: str,
    job: Literal["perplexity", "examples", "generate"] = "perplexity",
    data: str | None = None,
    retriever: Folders = None,
    bm25: bool = False,
    steps: Steps = "single",
    chain_hops: int | None = None,
    done_bias: float = 0.0,
    fusion: FusionMethod = "interleave",
    weights: list[float] | None = None,
    stride: int = 4,
    query_tokens: int = 32,
    documents: int = 1,
    document_tokens: int = 256,
    window: int = 1024,
    cut: int = 64,
    bos: bool = True,
    rerank: Rerank = "none",
    candidates: int = 16,
    judge: str | None = None,
    judge_tokens: int = 16,
    reranker: str | None = None,
    exclude: str | None = None,
    limit: int | None = None,
    every: int = 1,
    prefix_tokens: int = 64,
    max_new_tokens: int = 64,
    device: str = "auto",
    analyzer: Analyzer = USUAL,
) -> None:
    """Read or write with retrieved documents (In-Context RALM, arXiv 2302.00083).

    ``perplexity`` writes OUTPUT.strides.jsonl (a line a stride) and OUTPUT.json; ``examples`` writes
    OUTPUT.examples.jsonl, what `grls train-reranker` learns from; ``generate`` writes on from each text, to
    OUTPUT.texts.jsonl. A killed run goes on where it stopped when it is called again with the same options.

    Args:
        model: Folder or hub name of a causal language model; a .gguf file is read, too.
        text: A text file, or a folder whose .txt files are the texts.
        output: Path of the results without ending.
        job: What to do.
        data: Corpus, or data set folder with one, for --bm25.
        retriever: Retriever folders that `grls index` wrote, generative or dense; what several find is fused.
        bm25: Retrieve with BM25 from --data. Without it and --retriever nothing is retrieved.
        steps: How each retrieves: ``single``; ``fixed``: ``chain_hops`` hops, each found passage joins the
            query; ``dynamic``: hops until DONE. The passages of a query's chains are its ranking.
        chain_hops: Hops of a chain (fixed), most hops (dynamic); null: 2.
        done_bias: Added to the log-odds of DONE (dynamic); see `grls retrieve`.
        fusion: How several are fused: interleave, rrf or sum; see `grls ensemble`.
        weights: One a retriever, BM25's last (rrf, sum); null weighs all alike.
        stride: Tokens predicted before it is retrieved anew.
        query_tokens: Tokens before a stride that are the query.
        documents: Documents put before the text.
        document_tokens: Tokens of a document at most.
        window: Tokens that the model sees at most.
        cut: Where the window is full, the text is cut from its start at multiples of so many tokens; 1 is the
            paper's way, with more strides share what they compute.
        bos: Every input begins with the tokens that the tokenizer puts before a text (beginning of sequence);
            false leaves them out.
        rerank: none: the retriever's order; zero-shot: a language model judges; trained: a reranker does;
            oracle: by the text to come, the most that reranking could gain.
        candidates: Documents to choose from.
        judge: The language model that judges (zero-shot); null: the model itself.
        judge_tokens: Last tokens of the prefix that it predicts.
        reranker: What `grls train-reranker` wrote (trained).
        exclude: A file of titles or passage ids, one a line, that must not be found: of the texts themselves.
            A line that is neither is told of.
        limit: Only the first so many tokens of each text; null takes all.
        every: Take every so many strides (examples).
        prefix_tokens: Tokens before a stride that the reranker will read (examples).
        max_new_tokens: Tokens to write (generate).
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
        analyzer: How BM25 splits texts into words: language, stemming and function words.
    """
    quiet()
    refuse_unwritable(output)
    named = Named.of(retriever, bm25, steps, chain_hops, done_bias, fusion, weights, analyzer)
    retrieves = bool(named)
    if not retrieves and (rerank != "none" or job == "examples"):
        raise ConfigError("there is nothing to rerank without --retriever or --bm25 true.")
    if not retrieves and exclude is not None:
        raise ConfigError("there is nothing to exclude without --retriever or --bm25 true.")
    documents = documents if retrieves else 0
    options = WindowOptions(stride, query_tokens, documents, document_tokens, window, cut, bos)
    source = open_source(named, data, device)
    loaded = load_language_model(model, device)
    corpus = None if source is None else source.corpus
    hidden = None if corpus is None or exclude is None else without(corpus, Path(exclude))
    found = None if source is None else source.retriever
    reader = InContextRalm(loaded.model, loaded.tokenizer, options, found, corpus, None, hidden)
    wanted = "oracle" if job == "examples" else rerank
    reader.chooser = _chooser(wanted, reader, candidates, judge, judge_tokens, reranker, device)
    texts = _texts(Path(text), loaded, limit)
    settings: dict[str, Any] = {
        "model": Path(model).name, "weights": weights_fingerprint(loaded.model),
        "tokenizer": tokenizer_fingerprint(loaded.tokenizer), **asdict(options),
        **named.settings(), "corpus": None if corpus is None else corpus.fingerprint,
        "rerank": rerank, "candidates": reader.chooser.candidates, "judge": judge,
        "judge_tokens": judge_tokens if rerank == "zero-shot" else None, "reranker": reranker,
        "exclude": None if exclude is None else _digest(read_text(exclude)),
        "texts": [_digest(json.dumps(some.tokens)) for some in texts],
    }  # fmt: skip
    if source is not None:
        settings["retriever_fingerprint"] = source.fingerprint
    if (judged_by := _judged_by(reader.chooser)) is not None:
        settings["judged_by"] = judged_by
    begun = perf_counter()
    if job == "perplexity":
        _perplexity(reader, texts, settings, output, begun)
    elif job == "examples":
        settings |= {"every": every, "prefix_tokens": prefix_tokens}
        _examples(reader, texts, settings, output, every, prefix_tokens)
    else:
        settings |= {"max_new_tokens": max_new_tokens}
        _generate(reader, texts, settings, output, max_new_tokens)


def _perplexity(
    reader: InContextRalm, texts: Sequence[_Text], settings: dict[str, Any], output: str, begun: float
) -> None:
    due = [
        (some.name, stride.first) for some in texts for stride in strides(len(some.tokens), reader.options)
    ]
    file = _kept(f"{output}.strides.jsonl", settings, ("text", "first"), due)
    computed = reader.scorer.computed
    with Progress(len(due), "ralm", "strides", file.count) as bar:
        for some in texts:
            done = sum(record["text"] == some.name for record in file.records)
            for block in reader.score(some.tokens, done):
                records: list[dict[str, Any]] = [{"text": some.name, **row._asdict()} for row in block]
                now, scored = perf_counter(), reader.scorer.computed
                records[0] |= {"seconds": now - begun, "computed": scored - computed}  # of the whole block
                begun, computed = now, scored
                file.add(records)
                bar.update(len(block))
    rows = [
        ScoredStride(r["first"], r["last"], tuple(r["passages"]), r["log_probability"], r["tokens"])
        for r in file.records
    ]
    found = perplexity(rows, sum(some.words for some in texts))
    spent = {name: sum(r.get(name, 0) for r in file.records) for name in ("seconds", "computed")}
    result = {**found._asdict(), **spent, "settings": settings}
    write_json(f"{output}.json", result)
    print(
        f"perplexity {found.token:.3f} a token, {found.word:.2f} a word ({found.tokens:,} tokens, "
        f"{found.words:,} words, {found.strides:,} strides, {found.without:,} without a document; "
        f"{spent['seconds']:.0f} s)"
    )


def _examples(
    reader: InContextRalm,
    texts: Sequence[_Text],
    settings: dict[str, Any],
    output: str,
    every: int,
    prefix_tokens: int,
) -> None:
    due = [
        (some.name, stride.first)
        for some in texts
        for stride in strides(len(some.tokens), reader.options)[1::every]
    ]
    file = _kept(f"{output}.examples.jsonl", settings, ("text", "first"), due)
    with Progress(len(due), "examples", "strides", file.count) as bar:
        for some in texts:
            done = sum(record["text"] == some.name for record in file.records)
            for block in collect(reader, some.tokens, prefix_tokens, every, done):
                empty: dict[str, Any] = {"prefix": "", "passages": [], "scores": []}
                places = due[file.count : file.count + len(block)]
                file.add(
                    [
                        {"text": some.name, "first": first, **(row._asdict() if row else empty)}
                        for (_, first), row in zip(places, block, strict=True)
                    ]
                )
                bar.update(len(block))
    usable = sum(bool(record["passages"]) for record in file.records)
    print(f"{usable:,} examples in {output}.examples.jsonl")


def _generate(
    reader: InContextRalm, texts: Sequence[_Text], settings: dict[str, Any], output: str, tokens: int
) -> None:
    file = _kept(f"{output}.texts.jsonl", settings, ("name",), [(some.name,) for some in texts])
    done = {record["name"] for record in file.records}
    waiting: Iterator[_Text] = (some for some in texts if some.name not in done)
    with Progress(len(texts), "write", "texts", len(done)) as bar:
        while batch := list(islice(waiting, 8)):
            written = continue_texts(reader, [some.tokens for some in batch], tokens)
            file.add([{"name": a.name, **b._asdict()} for a, b in zip(batch, written, strict=True)])
            bar.update(len(batch))
    for record in file.records[:3]:
        print(f"{record['name']}: … {record['text']}\n")


def _kept(
    path: str, settings: dict[str, Any], fields: Sequence[str], due: Sequence[tuple[Any, ...]]
) -> GrowingFile:
    """The records of a run.

    Args:
        path: Their file.
        settings: What they depend on.
        fields: What tells records apart, the name of their text first.
        due: The values of these for all records that will be made, in order.

    Raises:
        MismatchError: A text has another name than it had, so what was done for it cannot be told.
        DataError: A record is repeated, or left out.
    """
    file = GrowingFile(path, settings)
    gone = {record.get(fields[0]) for record in file.records} - {name for name, *_ in due}
    if gone:
        raise MismatchError(
            f"{path} holds records of {min(map(str, gone))!r}, which is no text of this run; give another "
            "output, or the text its name."
        )
    file.refuse_other(fields, due)
    return file


def _chooser(
    rerank: str,
    reader: InContextRalm,
    candidates: int,
    judge: str | None,
    judge_tokens: int,
    reranker: str | None,
    device: str,
) -> Chooser:
    """The rule that orders documents."""
    if (reranker is not None) != (rerank == "trained"):
        raise ConfigError("--rerank trained and --reranker FOLDER go together.")
    if judge is not None and rerank != "zero-shot":
        raise ConfigError("--judge goes with --rerank zero-shot.")
    if rerank != "none" and candidates < reader.options.documents:
        raise ConfigError(f"{candidates} candidates for {reader.options.documents} documents; give more.")
    if rerank == "oracle":
        return Oracle(reader.scorer, candidates)
    if rerank == "zero-shot":
        return ZeroShot(_judge(reader, judge, device), judge_tokens, candidates)
    if rerank == "trained" and reader.corpus is not None:
        loaded = Reranker.load(str(reranker), device=device, trained=True)
        return Trained(loaded, reader.tokenizer, reader.corpus, candidates)
    return AsRetrieved()


def _judged_by(chooser: Chooser) -> str | None:
    """The fingerprint of the model that orders documents, where there is one."""
    if isinstance(chooser, Trained):
        return weights_fingerprint(chooser.reranker.model)
    return weights_fingerprint(chooser.scorer.model) if isinstance(chooser, ZeroShot) else None


def _judge(reader: InContextRalm, name: str | None, device: str) -> TextScorer:
    if name is None:
        return reader.scorer
    model, tokenizer = load_language_model(name, device)
    if tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(reader.tokenizer):
        raise ConfigError(f"the judge {name!r} has another tokenizer than the model; take one of its family.")
    refuse_long_window(model, reader.options.window, f"the judge {name!r}")
    return reader.scorer_of(model)


def _texts(path: Path, loaded: LanguageModel, limit: int | None) -> list[_Text]:
    """The texts, as tokens; cut where a limit says so, and their words counted up to there."""
    if limit is not None and limit < 2:
        raise ConfigError(f"--limit must be at least 2 tokens, got {limit}.")
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DataError("no such text; expected a file, or a folder with .txt files.", path)
    found = []
    for file in files:
        text = read_text(file)
        tokens, places = foreign_places(loaded.tokenizer, [text])[0]
        tokens = tokens[:limit]
        if not tokens:
            raise DataError("the text is empty; write something into it, or take it away.", file)
        end = places[len(tokens) - 1][1]
        found.append(_Text(file.name, words_of(text[:end]), tokens))
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
