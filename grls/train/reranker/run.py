"""Trains a reranker on examples of files, or on the hops of a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from grls.answer.ralm.reranker import Reranker, RerankExample, example_settings, read_examples
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.ending import needing, quiet
from grls.io.files import refuse_foreign, sha256
from grls.train.options import USUAL_RERANK_HOPS, RerankerTraining
from grls.train.result import TrainingResult

with needing("train", "training a reranker"):
    from grls.train.core.checkpoints import RunState
    from grls.train.core.datamodule import digest, read_named_split
    from grls.train.core.processes import only_training
    from grls.train.reranker.module import RerankHops, fit_reranker

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


def run_reranker(training: RerankerTraining) -> TrainingResult:
    """Train the reranker of In-Context RALM, or a cross-encoder for the hops of a data set."""
    quiet()
    fit, output = training.fit, training.output
    refuse_foreign(Path(output) / "model", "config.json")
    with only_training(output):
        corpus = Corpus.read(training.data)
        of_hops = training.train is None and training.dev is None
        examples = (examples_of_hops if of_hops else examples_of_files)(training, corpus)
        torch.manual_seed(fit.seed)  # for the new head of an encoder without one
        reading = examples.prefix_tokens, training.max_tokens, training.device
        reranker = Reranker.load(training.encoder, *reading, evidence_words=examples.evidence_words)
        settings = {
            "encoder": training.encoder, "prefix_tokens": examples.prefix_tokens,
            "max_tokens": training.max_tokens, **examples.settings,
        }  # fmt: skip
        files = {
            "the corpus": corpus.fingerprint,
            "the tokenizer of the encoder": tokenizer_fingerprint(reranker.tokenizer),
            **examples.files,
        }
        state = RunState(settings, files)
        return fit_reranker(reranker, examples.train, examples.dev, output, fit, training.resume, state)


def examples_of_files(training: RerankerTraining, corpus: Corpus) -> RunExamples:
    train, dev = training.train, training.dev
    if train is None or dev is None:
        raise ConfigError(
            f"{Option('train')} and {Option('dev')} name files of examples: give both, or neither to learn "
            f"the hops of {Option('data')}."
        )
    if training.hops != USUAL_RERANK_HOPS:
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
                f"{Option('data', training.data)}: set {Option('data')} to that corpus, or collect them "
                "again (`grls ralm examples`)."
            )
        if "prefix_tokens" in stated:
            lengths[option] = int(stated["prefix_tokens"])
    if len(set(lengths.values())) > 1:
        raise MismatchError(
            f"prefixes have {lengths['train']} tokens in {Option('train')} and {lengths['dev']} in "
            f"{Option('dev')}: collect both with the same {Option('examples.prefix_tokens')}."
        )
    prefix_tokens = next(iter(lengths.values()), PREFIX)
    files = {"the file of training examples": sha256(train), "the file of dev examples": sha256(dev)}
    examples = read_examples(train, corpus), read_examples(dev, corpus)
    return RunExamples(*examples, files, prefix_tokens=prefix_tokens)


def examples_of_hops(training: RerankerTraining, corpus: Corpus) -> RunExamples:
    hops, data = training.hops, training.data
    if not Path(data).is_dir():
        raise DataError("expected a data set folder with queries.jsonl and qrels/, to learn its hops.", data)
    names = (("train_split", hops.train_split), ("dev_split", hops.dev_split))
    splits = [read_named_split(data, split, corpus, f"{Option(f'hops.{name}')}") for name, split in names]
    train, dev = (RerankHops(*split, corpus, hops, training.fit.seed) for split in splits)
    files = dict(zip(("the split of train", "the split of dev"), map(digest, splits), strict=True))
    files[f"the retriever {hops.negatives} (hops.negatives)"] = train.negatives_fingerprint
    settings = {f"hops.{name}": value for name, value in vars(hops).items()}
    return RunExamples(train, dev, files, settings, evidence_words=hops.evidence_words)
