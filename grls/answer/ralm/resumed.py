"""Measures texts, continues them, or collects examples; a killed run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple

import torch

from grls.answer.ralm.choose import Oracle, likelihoods
from grls.answer.ralm.reader import InContextRalm, ScoredStride, perplexity
from grls.answer.ralm.reranker import RerankExample, prefixes_of
from grls.answer.ralm.strides import Stride, strides
from grls.answer.ralm.task import TokenizedText
from grls.errors import ConfigError, MismatchError, at_least
from grls.io.files import write_json
from grls.io.progress import Progress, counted
from grls.io.resumable import GrowingFile
from grls.io.turns import turn
from grls.models.load.language import end_tokens


def measure(
    reader: InContextRalm, texts: Sequence[TokenizedText], settings: dict[str, Any], output: str, begun: float
) -> None:
    """Measure all texts: a line a stride in OUTPUT.strides.jsonl, the perplexity in OUTPUT.json.

    Args:
        reader: The language model with its retriever.
        texts: The texts.
        settings: Everything that results depend on, as JSON values.
        output: Path without ending.
        begun: Start of the run, on the clock of ``perf_counter``.
    """
    due = [
        (text.name, stride.first) for text in texts for stride in strides(len(text.tokens), reader.options)
    ]
    file = _kept(f"{output}.strides.jsonl", settings, ("text", "first"), due)
    computed = reader.scorer.computed
    with Progress(len(due), "ralm", "strides", file.count) as bar:
        for text in texts:
            done = sum(record["text"] == text.name for record in file.records)
            for block in reader.score(text.tokens, done):
                records: list[dict[str, Any]] = [{"text": text.name, **row._asdict()} for row in block]
                now, scored = perf_counter(), reader.scorer.computed
                records[0] |= {"seconds": now - begun, "computed": scored - computed}  # of the whole block
                begun, computed = now, scored
                file.add(records)
                bar.update(len(block))
    rows = [
        ScoredStride(r["first"], r["last"], tuple(r["passages"]), r["log_probability"], r["tokens"])
        for r in file.records
    ]
    measured = perplexity(rows, sum(text.words for text in texts))
    spent = {name: sum(r.get(name, 0) for r in file.records) for name in ("seconds", "computed")}
    result = {**measured._asdict(), **spent, "settings": settings}
    write_json(f"{output}.json", result)
    print(
        f"perplexity {measured.token:.3f} a token, {measured.word:.2f} a word "
        f"({counted(measured.tokens, 'token')}, {counted(measured.words, 'word')}, "
        f"{counted(measured.strides, 'stride')}, {measured.without:,} without a document; "
        f"{spent['seconds']:.0f} s)"
    )


def collect_examples(
    reader: InContextRalm,
    texts: Sequence[TokenizedText],
    settings: dict[str, Any],
    output: str,
    every: int,
    prefix_tokens: int,
) -> None:
    """Collect training examples of a reranker, a line a stride in OUTPUT.examples.jsonl.

    Args:
        reader: The language model with its retriever.
        texts: The texts.
        settings: Everything that results depend on, as JSON values.
        output: Path without ending.
        every: Take one stride out of this many.
        prefix_tokens: Tokens before a stride that the reranker will read.
    """
    due = [
        (text.name, stride.first)
        for text in texts
        for stride in strides(len(text.tokens), reader.options)[1::every]
    ]
    file = _kept(f"{output}.examples.jsonl", settings, ("text", "first"), due)
    with Progress(len(due), "examples", "strides", file.count) as bar:
        for text in texts:
            done = sum(record["text"] == text.name for record in file.records)
            for block in collect(reader, text.tokens, prefix_tokens, every, done):
                empty: dict[str, Any] = {"prefix": "", "passages": [], "scores": []}
                places = due[file.count : file.count + len(block)]
                file.add(
                    [
                        {"text": text.name, "first": first, **(row._asdict() if row else empty)}
                        for (_, first), row in zip(places, block, strict=True)
                    ]
                )
                bar.update(len(block))
    usable = sum(bool(record["passages"]) for record in file.records)
    print(f"{counted(usable, 'example')} in {output}.examples.jsonl")


def write_on(
    reader: InContextRalm, texts: Sequence[TokenizedText], settings: dict[str, Any], output: str, tokens: int
) -> None:
    """Continue each text by so many tokens, a line a text in OUTPUT.texts.jsonl."""
    file = _kept(f"{output}.texts.jsonl", settings, ("name",), [(text.name,) for text in texts])
    done = {record["name"] for record in file.records}
    waiting: Iterator[TokenizedText] = (text for text in texts if text.name not in done)
    with Progress(len(texts), "write", "texts", len(done)) as bar:
        while batch := list(islice(waiting, 8)):
            written = continue_texts(reader, [text.tokens for text in batch], tokens)
            file.add([{"name": a.name, **b._asdict()} for a, b in zip(batch, written, strict=True)])
            bar.update(len(batch))
    for record in file.records[:3]:
        print(f"{record['name']}: … {record['text']}\n")


def _kept(
    path: str, settings: dict[str, Any], fields: Sequence[str], due: Sequence[tuple[Any, ...]]
) -> GrowingFile:
    """The file of a run's records.

    Args:
        path: The file.
        settings: Everything that records depend on.
        fields: The fields that identify a record, the name of its text first.
        due: The values of these fields for all records of the run, in order.

    Raises:
        MismatchError: The file names a text that the run does not have, perhaps a renamed one.
        DataError: A record is repeated, or left out.
    """
    file = GrowingFile(path, settings)
    gone = {record.get(fields[0]) for record in file.records} - {name for name, *_ in due}
    if gone:
        raise MismatchError(
            f"{path} holds records of {min(map(str, gone))!r}, which is no text of this run; give another "
            "output, or give the text its old name."
        )
    file.refuse_other(fields, due)
    return file


# Training examples of a reranker: the likelihood of the next stride behind each candidate.
#
# Method: arXiv 2302.00083. Training: grls.train.reranker.


_BLOCK = 64


def collect(
    ralm: InContextRalm, text: Sequence[int], prefix_tokens: int = 64, every: int = 1, begin: int = 0
) -> Iterator[list[RerankExample | None]]:
    """Score the candidates of the strides of a text, block by block.

    Args:
        ralm: Model, retriever and options; its chooser sets the number of candidates.
        text: Token ids.
        prefix_tokens: Tokens before a stride that a reranker will read.
        every: Take one stride out of this many.
        begin: Strides to skip, because an earlier run has done them.

    Yields:
        An example for each stride of a block; None if nothing was retrieved.

    Raises:
        ConfigError: Fewer than two candidates are asked for, or ``every`` is not positive.
    """
    if ralm.chooser.candidates < 2 or every < 1:
        raise ConfigError(
            f"examples need candidates >= 2 and every >= 1, got {ralm.chooser.candidates} and {every}."
        )
    todo = strides(len(text), ralm.options)[1::every][begin:]
    for n in range(0, len(todo), _BLOCK):
        block = todo[n : n + _BLOCK]
        candidates = ralm.candidates_for(text, block)
        spans = [(stride.first, stride.last) for stride in block]
        scores = likelihoods(ralm.scorer, text, block, candidates, spans)
        prefixes = prefixes_of(ralm.tokenizer, text, block, prefix_tokens)
        yield [
            RerankExample(prefix, tuple(ralm.corpus.ids(numbers)), tuple(values.tolist()))
            if numbers and ralm.corpus is not None
            else None
            for prefix, numbers, values in zip(prefixes, candidates, scores, strict=True)
        ]


# Text written with retrieval: a new retrieval every s tokens (arXiv 2302.00083, generation).
#
# Within a stride the model continues from its cache. For the next stride the documents before the text may
# change, and then everything behind them is computed again. transformers' ``generate`` does the writing.


class RalmContinuation(NamedTuple):
    """The continuation of a prompt.

    Attributes:
        text: The text.
        passages: For each stride the ids of the documents before it.
        ended: False if the length limit cut the text.
    """

    text: str
    passages: tuple[tuple[str, ...], ...]
    ended: bool


def continue_texts(
    ralm: InContextRalm, prompts: Sequence[str | Sequence[int]], max_new_tokens: int, **sampling: Any
) -> list[RalmContinuation]:
    """Continue several prompts together.

    Args:
        ralm: Model, retriever and options.
        prompts: The texts, or their token ids: a text that was cut at a token may end within a character.
        max_new_tokens: Most tokens to write.
        **sampling: Options of transformers' ``generate`` (``do_sample``, ``temperature``, …); greedy by
            default.

    Raises:
        ConfigError: A prompt is empty, ``max_new_tokens`` is not positive, or the chooser is the oracle.
    """
    at_least(1, max_new_tokens=max_new_tokens)
    if isinstance(ralm.chooser, Oracle):
        raise ConfigError("the oracle needs the text that is still to be written; choose another reranking.")
    written = [ralm.tokens(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
    if not all(written):
        raise ConfigError("a prompt is empty; there is nothing to retrieve for, or to continue.")
    begins = [len(tokens) for tokens in written]
    passages_of: list[list[tuple[str, ...]]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    ends = end_tokens(ralm.model, ralm.tokenizer)
    for done in range(0, max_new_tokens, ralm.options.stride):
        live = [n for n, over in enumerate(ended) if not over]
        if not live:
            break
        count = min(ralm.options.stride, max_new_tokens - done)
        inputs = []
        for n in live:
            stride = Stride(len(written[n]), len(written[n]) + count)
            names = ralm.documents_for(written[n], [stride])[0]
            passages_of[n].append(tuple(ralm.corpus.ids(list(names))) if ralm.corpus is not None else ())
            start = ralm.scorer.start(names, stride.last)
            inputs.append([*ralm.scorer.before(names), *written[n][start:]])
        for n, tokens in zip(live, _write(ralm, inputs, count, ends, sampling), strict=True):
            stop = next((place for place, token in enumerate(tokens) if token in ends), None)
            written[n] += tokens if stop is None else tokens[:stop]
            ended[n] = stop is not None
    return [
        RalmContinuation(ralm.tokenizer.decode(tokens[begin:]), tuple(passages), over)
        for tokens, begin, passages, over in zip(written, begins, passages_of, ended, strict=True)
    ]


@torch.inference_mode()
def _write(
    ralm: InContextRalm, inputs: Sequence[Sequence[int]], count: int, ends: set[int], sampling: dict[str, Any]
) -> list[list[int]]:
    """Up to ``count`` tokens behind each input, padded on the left."""
    device = ralm.model.device
    width = max(len(tokens) for tokens in inputs)
    filling = next(iter(ends), 0)
    ids = torch.tensor([[filling] * (width - len(tokens)) + list(tokens) for tokens in inputs], device=device)
    mask = torch.tensor([[0] * (width - len(tokens)) + [1] * len(tokens) for tokens in inputs], device=device)
    options = {"do_sample": False, "pad_token_id": filling, **sampling}
    with turn(ralm.model):
        output = ralm.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=count, **options)
    rows: list[list[int]] = output[:, width:].tolist()
    return rows
