"""Trains a bi-encoder on a data set folder: reads the data and the model, mines negatives, and fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from grls.data.corpus import Corpus
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, Option
from grls.io.ending import needing, quiet
from grls.io.files import refuse_foreign, sha256
from grls.models.biencoder import BiEncoderModel
from grls.models.load.generators import GeneratorSpec
from grls.models.load.sentence_folder import MODULES
from grls.models.option_names import Kind
from grls.train.biencoder.dev import Split
from grls.train.biencoder.examples import BM25, BiEncoderExamples, RetrieverMiner, TeacherScores
from grls.train.biencoder.options import USUAL_FIT, BiEncoderOptions
from grls.train.core.clock import Meter, TrainingClock
from grls.train.result import TrainingResult

with needing("train", "training a bi-encoder"):
    from grls.train.biencoder.module import check_negatives, fit_biencoder
    from grls.train.core.checkpoints import RunState
    from grls.train.core.datamodule import digest, read_named_split
    from grls.train.core.processes import only_training


def run_biencoder(
    *,
    data: str,
    output: str,
    source: str | None = None,
    generator: GeneratorSpec | None = None,
    kind: Kind = "auto",
    train_split: str = "train",
    dev_split: str | None = "dev",
    max_tokens: int | None = None,
    fit: BiEncoderOptions = USUAL_FIT,
    negatives: str = BM25,
    teacher: str | None = None,
    analyzer: Analyzer = USUAL,
    resume: bool = False,
    max_seconds: float | None = None,
    meter: Meter | None = None,
) -> TrainingResult:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    The arguments are the options of `grls train biencoder`
    (:func:`grls.commands.train.train_biencoder`; null is None) and two more. ``max_seconds`` is
    the longest time of the call; when it is over, dev is measured once more and the best weights are
    kept. ``meter`` is called with every step, in place of printed lines.
    """
    quiet()
    with only_training(output):
        clock = TrainingClock("biencoder", max_seconds, meter)
        check_negatives(fit)
        if teacher is not None and negatives != BM25:
            raise ConfigError(
                f"{Option('teacher')} names the hard negatives, too: leave out {Option('negatives')}."
            )
        refuse_foreign(Path(output) / "model", MODULES)
        corpus = Corpus.read(data)
        train = Split(*read_named_split(data, train_split, corpus, "train_split"), corpus)
        dev = None
        if dev_split is not None:
            option = "dev_split, or null to train without dev"
            dev = Split(*read_named_split(data, dev_split, corpus, option), corpus)
        torch.manual_seed(fit.seed)  # for random weights of a new model
        if (source is None) == (generator is None):
            raise ConfigError(
                f"give either {Option('source')} (a folder or hub name) or {Option('generator')} (a class of "
                "models)."
            )
        if source is not None:
            encoder = BiEncoderModel.load(source, kind, "cpu", max_tokens, fit.similarity)
        else:
            assert generator is not None
            if kind == "sentence":
                raise ConfigError(
                    f"a generator makes a bi-encoder of kind st5; give {Option('source')} for kind sentence."
                )
            encoder = BiEncoderModel.from_generator(
                generator.load(), max_tokens, generator.stages(), fit.similarity or "dot"
            )
        begun = encoder.fingerprint()  # a resumed run of adapters reads these weights again
        miner = scores = None
        if teacher is not None:
            scores = TeacherScores.read(teacher, train.queries, corpus)
        elif fit.hard_negatives:
            miner = RetrieverMiner(negatives, corpus, fit.evidence_words, analyzer)
        encoder.evidence_words = fit.evidence_words
        pairs = (train.queries, train.qrels, corpus, encoder.query_text, fit, miner, scores)
        examples = BiEncoderExamples(*pairs)
        settings: dict[str, Any] = {
            "data": data, "source": source or str(generator), "kind": kind, "train_split": train_split,
            "dev_split": dev_split, "max_tokens": encoder.max_tokens, "negatives": negatives,
            "teacher": teacher, "analyzer": analyzer.settings(),
        }  # fmt: skip
        files = {
            f"the model {source or generator}": begun,
            str(Path(data) / "corpus.jsonl"): corpus.fingerprint,
        }
        for name, split in ((train_split, train), (dev_split, dev)):
            if split is not None:
                files[f"{Path(data) / 'queries.jsonl'} (split {name})"] = digest(split.queries)
                files[str(Path(data) / "qrels" / f"{name}.tsv")] = digest(split.qrels)
        if negatives != BM25 and miner is not None:
            files[f"the retriever {negatives} (negatives)"] = miner.fingerprint()
        if teacher is not None:
            files[f"the teacher {teacher}"] = sha256(teacher)
        state = RunState(settings, files, {name: f"fit.{name}" for name in vars(fit)})
        return fit_biencoder(encoder, examples, dev, fit, output, state, resume, clock)
