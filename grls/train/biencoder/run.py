"""Trains a bi-encoder on a data set folder: reads the data and the model, mines negatives, and fits."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import torch

from grls.data.corpus import Corpus
from grls.errors import ConfigError, Option
from grls.io.ending import needing, quiet
from grls.io.files import refuse_foreign, sha256
from grls.models.biencoder import BiEncoderModel
from grls.models.load.sentence_folder import MODULES
from grls.train.biencoder.dev import Split
from grls.train.biencoder.examples import BM25, BiEncoderExamples, RetrieverMiner, TeacherScores
from grls.train.core.clock import TrainingClock
from grls.train.options import BiEncoderOptions, BiEncoderTraining
from grls.train.result import TrainingResult

with needing("train", "training a bi-encoder"):
    from grls.models.precision import accelerator
    from grls.train.biencoder.data import BiEncoderData
    from grls.train.biencoder.dev import dev_evaluator
    from grls.train.biencoder.module import BiEncoderModule
    from grls.train.core.checkpoints import RunState
    from grls.train.core.datamodule import digest, read_named_split
    from grls.train.core.encoder import fit_encoder
    from grls.train.core.processes import only_training

log = logging.getLogger(__name__)


def run_biencoder(training: BiEncoderTraining, clock: TrainingClock | None = None) -> TrainingResult:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    ``clock`` limits the time; where a meter listens to it, nothing is printed.
    """
    clock = clock or TrainingClock("biencoder")
    fit, data, output, source = training.fit, training.data, training.output, training.source
    quiet()
    with only_training(output):
        check_negatives(fit)
        refuse_foreign(Path(output) / "model", MODULES)
        corpus = Corpus.read(data)
        train = Split(*read_named_split(data, training.train_split, corpus, "train_split"), corpus)
        dev = None
        if training.dev_split is not None:
            option = "dev_split, or null to train without dev"
            dev = Split(*read_named_split(data, training.dev_split, corpus, option), corpus)
        torch.manual_seed(fit.seed)  # for random weights of a new model
        if source is not None:
            encoder = BiEncoderModel.load(source, training.kind, "cpu", training.max_tokens, fit.similarity)
        else:
            generator: Any = training.generator
            encoder = BiEncoderModel.from_generator(
                generator.load(), training.max_tokens, generator.stages(), fit.similarity or "dot"
            )
        begun = encoder.fingerprint()  # a resumed run of adapters reads these weights again
        miner = scores = None
        if training.teacher is not None:
            scores = TeacherScores.read(training.teacher, train.queries, corpus)
        elif fit.hard_negatives:
            miner = RetrieverMiner(training.negatives, corpus, fit.evidence_words, training.analyzer)
        encoder.evidence_words = fit.evidence_words
        pairs = (train.queries, train.qrels, corpus, encoder.query_text, fit, miner, scores)
        examples = BiEncoderExamples(*pairs)
        check_negatives(fit, len(examples))
        settings: dict[str, Any] = {
            "data": data, "source": source or str(training.generator), "kind": training.kind,
            "train_split": training.train_split, "dev_split": training.dev_split,
            "max_tokens": encoder.max_tokens, "negatives": training.negatives, "teacher": training.teacher,
            "analyzer": training.analyzer.settings(),
        }  # fmt: skip
        files = {
            f"the model {source or training.generator}": begun,
            str(Path(data) / "corpus.jsonl"): corpus.fingerprint,
        }
        for name, split in ((training.train_split, train), (training.dev_split, dev)):
            if split is not None:
                files[f"{Path(data) / 'queries.jsonl'} (split {name})"] = digest(split.queries)
                files[str(Path(data) / "qrels" / f"{name}.tsv")] = digest(split.qrels)
        if training.negatives != BM25 and miner is not None:
            files[f"the retriever {training.negatives} (negatives)"] = miner.fingerprint()
        if training.teacher is not None:
            files[f"the teacher {training.teacher}"] = sha256(training.teacher)
        if not any(weight.requires_grad for weight in encoder.model.parameters()):
            raise ConfigError(
                "the model has no weights to train (a bag of words, or frozen word embeddings): take another "
                "one."
            )
        texts = examples.passages()
        if cut := encoder.count_cut(texts):
            log.warning(
                encoder.cut_notice(cut, len(texts), f"{Option('max_tokens')!s} (of grls train biencoder)")
            )
        multistep = examples.options.multistep is True
        evaluator = None if dev is None else dev_evaluator(encoder, dev, fit, multistep)
        steps = fit.epochs * math.ceil(len(examples) / fit.batch_size)
        steps = min(fit.max_steps or steps, steps)
        state = RunState(settings, files)
        return fit_encoder(
            BiEncoderModule(encoder, fit, steps, evaluator, state, examples.done),
            {"datamodule": BiEncoderData(examples, encoder, fit)},
            output,
            training.resume,
            clock,
            examples=len(examples),
            steps=steps,
            device="cpu" if fit.device == "cpu" else accelerator().type,
            logger=fit.logger,
            gradient_clip_val=1.0,
            dev=evaluator is not None,
            log_every_n_steps=fit.log_every,
        )


def check_negatives(options: BiEncoderOptions, examples: int | None = None) -> None:
    alone = options.batch_size == 1 or not options.in_batch_negatives
    if options.hard_negatives or not (alone or examples == 1):
        return
    cause, remedy = "one training example", "add examples"
    if options.batch_size == 1:
        cause, remedy = "a batch_size of 1", "raise it"
    elif not options.in_batch_negatives:
        cause, remedy = "in_batch_negatives false", "set it to true"
    raise ConfigError(f"{cause} leaves no negatives: {remedy}, or set hard_negatives.")
