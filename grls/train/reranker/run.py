"""Trains a reranker on examples of files, or on the hops of a data set."""

from __future__ import annotations

from pathlib import Path

import torch

from grls.answer.ralm.reranker import Reranker, example_settings, read_examples
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.ending import needing, quiet
from grls.io.files import sha256
from grls.train.core.clock import TrainingClock, TrainingResult
from grls.train.options import USUAL_RERANK_HOPS, RerankerTraining, as_record

with needing("train", "training a reranker"):
    from grls.train.core.datamodule import EncoderData
    from grls.train.core.engine import begin, fit_model, trainer_options
    from grls.train.core.processes import only_training
    from grls.train.reranker.module import RerankerModule, RerankHops, WrittenExamples


def run_reranker(training: RerankerTraining, clock: TrainingClock | None = None) -> TrainingResult:
    """Train the reranker of In-Context RALM, or a cross-encoder for the hops of a data set.

    The epoch with the lowest dev loss (nats) is kept. Hops are drawn anew each epoch.
    ``clock`` limits the time; where a meter listens to it, nothing is printed.
    """
    quiet()
    options, output, record = training.fit, training.output, as_record(training)
    with only_training(output):
        resumed = begin(record, output, training.resume, options.strategy)
        corpus = Corpus.read(training.data)
        data = EncoderData(training.data, options)
        of_hops = training.train is None and training.dev is None
        (read_hops if of_hops else read_files)(data, training, corpus)
        torch.manual_seed(options.seed)  # for the new head of an encoder without one
        words = training.hops.evidence_words if of_hops else None
        reranker = Reranker.load(training.encoder, training.max_tokens, training.device, evidence_words=words)
        data.fingerprints["the corpus"] = corpus.fingerprint
        data.fingerprints["the tokenizer of the encoder"] = tokenizer_fingerprint(reranker.tokenizer)
        data.collator = list
        trainer = trainer_options(options, unused=options.lora_rank > 0) | {
            "accelerator": reranker.model.device.type,
            "log_every_n_steps": 10,
        }
        return fit_model(
            RerankerModule(reranker, options), data, output, record, resumed,
            clock or TrainingClock("reranker"), trainer=trainer, best=RerankerModule.best,
            steps=options.steps(len(data.train_examples)),
        )  # fmt: skip


def read_files(data: EncoderData, training: RerankerTraining, corpus: Corpus) -> None:
    """Read the examples of files."""
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
    for option, file in (("train", train), ("dev", dev)):
        stated = example_settings(file)
        if stated.get("corpus", corpus.fingerprint) != corpus.fingerprint:
            raise MismatchError(
                f"the examples of {Option(option, file)} were collected with another corpus than "
                f"{Option('data', training.data)}: set {Option('data')} to that corpus, or collect them "
                "again (`grls ralm examples`)."
            )
        data.fingerprints[f"the file of {option} examples"] = sha256(file)
    data.train_examples, data.dev_examples = (
        WrittenExamples(read_examples(file, corpus)) for file in (train, dev)
    )


def read_hops(data: EncoderData, training: RerankerTraining, corpus: Corpus) -> None:
    """Read the hops of a data set."""
    hops = training.hops
    if not Path(training.data).is_dir():
        raise DataError(
            "expected a data set folder with queries.jsonl and qrels/, to learn its hops.", training.data
        )
    named = {"hops.train_split": hops.train_split, "hops.dev_split": hops.dev_split}
    train_split, (queries, qrels) = (data.read_split(*option, corpus) for option in named.items())
    splits = train_split, (queries[: hops.dev_size], qrels)
    train, dev = (RerankHops(*split, corpus, hops, training.fit.seed) for split in splits)
    data.train_examples, data.dev_examples = train, dev
    data.fingerprints[f"the retriever {hops.negatives} (hops.negatives)"] = train.negatives_fingerprint
