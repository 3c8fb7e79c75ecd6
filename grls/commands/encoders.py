"""``grls train biencoder`` and ``grls train reranker``; the stages are in :mod:`grls.train.options`."""

from __future__ import annotations

from typing import Any

from grls.train.options import BiEncoderTraining, RerankerTraining


def train_biencoder(**options: Any) -> None:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    Writes OUTPUT/model (for ``grls index``), OUTPUT/logs (losses, dev recall) and
    OUTPUT/checkpoints (to resume from; they hold pickles, so do not share them). The model to start from is
    ``source``, or ``generator`` for an encoder-decoder that is not on disk.
    """
    training = BiEncoderTraining(**options)
    from grls.train.biencoder.run import run_biencoder

    run_biencoder(training)


def train_reranker(**options: Any) -> None:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9).

    The paper trains RoBERTa-base, 10,000 steps of 32 prefixes with 16 candidates each, at 1e-5; the defaults
    here are for fewer examples.

    Without --train and --dev it learns the hops of the data set: which passage follows the question and the
    passages found so far. That model is a cross-encoder, for `grls index rescored R --model OUTPUT/model`.

    Writes OUTPUT/model (for `grls ralm --rerank.by trained --rerank.reranker OUTPUT/model`), OUTPUT/logs and
    OUTPUT/checkpoints (to resume from; they hold pickles, so do not share them).
    """
    training = RerankerTraining(**options)
    from grls.train.reranker.run import run_reranker

    run_reranker(training)
