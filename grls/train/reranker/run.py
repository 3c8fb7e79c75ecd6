"""The examples that a reranker is trained on: those of files, or the hops of a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.ralm.reranker import RerankExample, example_settings, read_examples
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.files import sha256
from grls.train.core.datamodule import digest, read_named_split
from grls.train.reranker.module import RerankHops
from grls.train.reranker.options import USUAL_RERANK_HOPS, RerankHopOptions

PREFIX = 64
"""Tokens before a stride, where the examples do not record it."""


class RunExamples(NamedTuple):
    """The examples of a run; those of ``dev`` choose the best epoch.

    A resumed run must have the same fingerprints of ``files`` and the same ``settings``.
    ``prefix_tokens`` and ``evidence_words``: see :class:`grls.answer.ralm.reranker.Reranker`.
    """

    train: Sequence[RerankExample]
    dev: Sequence[RerankExample]
    files: dict[str, str]
    settings: Mapping[str, Any] = {}
    prefix_tokens: int = PREFIX
    evidence_words: int | None = None


def examples_of_files(
    train: str | None, dev: str | None, corpus: Corpus, data: str, wanted: int | None, hops: RerankHopOptions
) -> RunExamples:
    """Examples of files; if a length of prefixes is ``wanted``, theirs must be that."""
    if train is None or dev is None:
        raise ConfigError(
            f"{Option('train')} and {Option('dev')} name files of examples: give both, or neither to learn "
            f"the hops of {Option('data')}."
        )
    if hops != USUAL_RERANK_HOPS:
        raise ConfigError(
            f"{Option('hops')} is for the hops of {Option('data')}: leave it out, or leave "
            f"{Option('train')} and {Option('dev')} out."
        )
    lengths: dict[str, int] = {}
    for option, file in (("train", train), ("dev", dev)):
        stated = example_settings(file)
        if stated.get("corpus", corpus.fingerprint) != corpus.fingerprint:
            raise MismatchError(
                f"the examples of {Option(option, file)} were collected with another corpus than "
                f"{Option('data', data)}: set {Option('data')} to that corpus, or collect them again (`grls "
                "ralm examples`)."
            )
        if "prefix_tokens" in stated:
            lengths[option] = int(stated["prefix_tokens"])
    for option, tokens in lengths.items():
        if wanted is not None and tokens != wanted:
            raise MismatchError(
                f"the examples of {Option(option)} have prefixes of {tokens} tokens, got "
                f"{Option('prefix_tokens', wanted)}: leave {Option('prefix_tokens')} out, or collect them "
                f"again (`grls ralm examples` with {Option('examples.prefix_tokens', wanted)})."
            )
    if len(set(lengths.values())) > 1:
        raise MismatchError(
            f"prefixes have {lengths['train']} tokens in {Option('train')} and {lengths['dev']} in "
            f"{Option('dev')}: collect both with the same {Option('examples.prefix_tokens')}."
        )
    prefix_tokens = next(iter(lengths.values()), PREFIX if wanted is None else wanted)
    files = {"the file of training examples": sha256(train), "the file of dev examples": sha256(dev)}
    return RunExamples(read_examples(train), read_examples(dev), files, prefix_tokens=prefix_tokens)


def examples_of_hops(
    corpus: Corpus, data: str, wanted: int | None, hops: RerankHopOptions, seed: int
) -> RunExamples:
    """The hops of a data set, which have no length of prefixes that could be ``wanted``."""
    if wanted is not None:
        raise ConfigError(
            f"{Option('prefix_tokens')} is for examples of texts ({Option('train')}, {Option('dev')}): "
            "leave it out."
        )
    if not Path(data).is_dir():
        raise DataError("expected a data set folder with queries.jsonl and qrels/, to learn its hops.", data)
    names = (("train_split", hops.train_split), ("dev_split", hops.dev_split))
    splits = [read_named_split(data, split, corpus, f"{Option(f'hops.{name}')}") for name, split in names]
    train, dev = (RerankHops(*split, corpus, hops, seed) for split in splits)
    files = dict(zip(("the split of train", "the split of dev"), map(digest, splits), strict=True))
    files[f"the retriever {hops.negatives} (hops.negatives)"] = train.negatives_fingerprint
    settings = {f"hops.{name}": value for name, value in vars(hops).items()}
    return RunExamples(train, dev, files, settings, evidence_words=hops.evidence_words)
