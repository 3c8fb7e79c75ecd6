"""Measures texts, continues them, or collects examples; a killed run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from time import perf_counter
from typing import Any

from grls.answer.ralm.collect import collect
from grls.answer.ralm.generate import continue_texts
from grls.answer.ralm.reader import InContextRalm, ScoredStride, perplexity
from grls.answer.ralm.strides import strides
from grls.answer.ralm.texts import TokenizedText
from grls.errors import MismatchError
from grls.io.counts import counted
from grls.io.files import write_json
from grls.io.progress import Progress
from grls.io.resumable import GrowingFile


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
