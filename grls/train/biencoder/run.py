"""Trains a bi-encoder on a data set folder: reads the data and the model, mines negatives, and fits."""

from __future__ import annotations

import logging

import torch

from grls.data.corpus import Corpus
from grls.errors import ConfigError, Option
from grls.io.ending import needing, quiet
from grls.io.files import sha256
from grls.models.biencoder import BiEncoderModel
from grls.models.load.sentence_folder import MODULES
from grls.train.biencoder.dev import Split
from grls.train.biencoder.examples import BiEncoderExamples, RetrieverMiner, TeacherScores
from grls.train.core.clock import TrainingClock, TrainingResult
from grls.train.options import BiEncoderOptions, BiEncoderTraining, as_record

with needing("train", "training a bi-encoder"):
    from grls.models.precision import accelerator
    from grls.train.biencoder.data import BiEncoderData
    from grls.train.biencoder.dev import dev_evaluator
    from grls.train.biencoder.module import BiEncoderModule
    from grls.train.core.engine import begin, fit_model, trainer_options
    from grls.train.core.processes import only_training

log = logging.getLogger(__name__)

LOGGED = 10
"""Steps between two logged losses."""


def run_biencoder(training: BiEncoderTraining, clock: TrainingClock | None = None) -> TrainingResult:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    ``clock`` limits the time; where a meter listens to it, nothing is printed.
    """
    clock = clock or TrainingClock("biencoder")
    fit, output, source = training.fit, training.output, training.source
    record = as_record(training)
    quiet()
    with only_training(output):
        check_negatives(fit)
        resumed = begin(record, output, training.resume, fit.strategy, marker=MODULES)
        data = BiEncoderData(training.data, fit, fit.length_pool)
        corpus = Corpus.read(training.data)
        train = Split(*data.read_split("train_split", training.train_split, corpus), corpus)
        dev = None
        if training.dev_split is not None:
            dev = Split(*data.read_split("dev_split", training.dev_split, corpus), corpus)
        torch.manual_seed(fit.seed)  # for random weights of a new model
        encoder = BiEncoderModel.load(source, training.kind, "cpu", training.max_tokens, fit.similarity)
        # A resumed run of adapters reads these weights again.
        data.fingerprints[f"the model {source}"] = encoder.fingerprint()
        miner = scores = None
        if training.teacher is not None:
            scores = TeacherScores.read(training.teacher, train.queries, corpus)
            data.fingerprints[f"the teacher {training.teacher}"] = sha256(training.teacher)
        elif fit.hard_negatives:
            miner = RetrieverMiner(training.negatives, corpus, fit.evidence_words)
            data.fingerprints[f"the retriever {training.negatives} (negatives)"] = miner.fingerprint()
        encoder.evidence_words = fit.evidence_words
        pairs = (train.queries, train.qrels, corpus, encoder.query_text, fit, miner, scores)
        data.encoder, data.train_examples = encoder, (examples := BiEncoderExamples(*pairs))
        check_negatives(fit, len(examples))
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
        steps = fit.steps(len(examples))
        module = BiEncoderModule(encoder, fit, steps, evaluator, examples.done)
        trainer = trainer_options(fit) | {
            "accelerator": "cpu" if fit.device == "cpu" else accelerator().type,
            "gradient_clip_val": 1.0,
            "log_every_n_steps": LOGGED,
            "limit_val_batches": None if evaluator else 0,
        }
        best = module.best if evaluator else {"save_top_k": 0}
        return fit_model(
            module, data, output, record, resumed, clock,
            trainer=trainer, best=best, steps=steps,
        )  # fmt: skip


def check_negatives(options: BiEncoderOptions, examples: int | None = None) -> None:
    for alone, cause, remedy in (
        (options.batch_size == 1, "a batch_size of 1", "raise it"),
        (examples == 1, "one training example", "add examples"),
    ):
        if alone and not options.hard_negatives:
            raise ConfigError(f"{cause} leaves no negatives: {remedy}, or set hard_negatives.")
