"""``grls train biencoder`` and ``grls train reranker``; the stages are in :mod:`grls.train.options`."""

from __future__ import annotations

from typing import Any

from grls.io.arguments import Count
from grls.io.ending import quiet, require
from grls.io.files import refuse_foreign
from grls.io.progress import counted
from grls.models.option_names import Device
from grls.train.biencoder.options import BiEncoderTraining
from grls.train.reranker.options import USUAL_RERANK_HOPS, USUAL_RERANKER, RerankerOptions, RerankHopOptions


def train_biencoder(**options: Any) -> None:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    Writes OUTPUT/model (for ``grls index``), OUTPUT/logs (losses, dev recall) and
    OUTPUT/checkpoints (to resume from; they hold pickles, so do not share them). The model to start from is
    ``source``, or ``generator`` for an encoder-decoder that is not on disk.
    """
    training = BiEncoderTraining(**options)
    from grls.train.biencoder.run import run_biencoder
    from grls.train.core.processes import is_first

    trained = run_biencoder(training)
    if is_first():
        print(f"{training.output}/model: {counted(trained.examples, 'example')}, {trained.seconds:.0f} s")


def train_reranker(
    *,
    train: str | None = None,
    dev: str | None = None,
    data: str,
    output: str,
    encoder: str = "all-MiniLM-L6-v2",
    prefix_tokens: Count | None = None,
    max_tokens: Count = 256,
    fit: RerankerOptions = USUAL_RERANKER,
    hops: RerankHopOptions = USUAL_RERANK_HOPS,
    resume: bool = False,
    device: Device = "auto",
) -> None:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9).

    The paper trains RoBERTa-base, 10,000 steps of 32 prefixes with 16 candidates each, at 1e-5; the defaults
    here are for fewer examples.

    Without --train and --dev it learns the hops of the data set: which passage follows the question and the
    passages found so far. That model is a cross-encoder, for `grls index rescored R --model OUTPUT/model`.

    Writes OUTPUT/model (for `grls ralm --rerank.by trained --rerank.reranker OUTPUT/model`), OUTPUT/logs and
    OUTPUT/checkpoints (to resume from; they hold pickles, so do not share them).

    Args:
        train: File of training examples, written by `grls ralm examples`; null: the hops of the data set.
        dev: File of examples that choose the best epoch, written by `grls ralm examples`; null with `train`.
        data: Data set folder, or corpus file, with which the examples were collected; without examples, the
            data set folder whose hops are learned.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder to start from.
        prefix_tokens: Length of the prefix before a stride, in tokens of the language model. It must be that
            of the examples; null takes it from them.
        max_tokens: Longest input (prefix and document), in tokens of the encoder.
        fit: Options of the training.
        hops: Options of the hops that are learned without examples.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
        device: cpu, cuda, cuda:1, …; auto takes a GPU if there is one.
    """
    require("train", "grls train reranker")
    import torch

    from grls.answer.ralm.reranker import Reranker
    from grls.data.codec import tokenizer_fingerprint
    from grls.data.corpus import Corpus
    from grls.train.core.checkpoints import RunState
    from grls.train.core.processes import is_first, only_training
    from grls.train.reranker.module import fit_reranker
    from grls.train.reranker.run import examples_of_files, examples_of_hops

    quiet()
    refuse_foreign(f"{output}/model", "config.json")
    with only_training(output):
        corpus = Corpus.read(data)
        of_hops = train is None and dev is None
        read = (corpus, data, prefix_tokens, hops)
        examples = examples_of_hops(*read, fit.seed) if of_hops else examples_of_files(train, dev, *read)
        torch.manual_seed(fit.seed)  # for the new head of an encoder without one
        reading = examples.prefix_tokens, max_tokens, device
        reranker = Reranker.load(encoder, *reading, evidence_words=examples.evidence_words)
        settings = {"encoder": encoder, "prefix_tokens": examples.prefix_tokens, "max_tokens": max_tokens}
        settings |= {**examples.settings, **vars(fit)}
        files = {
            "the corpus": corpus.fingerprint,
            "the tokenizer of the encoder": tokenizer_fingerprint(reranker.tokenizer),
            **examples.files,
        }
        state = RunState(settings, files, {name: f"fit.{name}" for name in vars(fit)})
        passages = None if of_hops else corpus
        best = fit_reranker(reranker, passages, examples.train, examples.dev, output, fit, resume, state)
    if is_first():
        unit = "hop" if of_hops else "stride"
        print(f"best dev loss {best:.4f} nats a {unit}; the reranker is in {output}/model")
