"""Trains a reranker of documents from files of examples, or on hops of a data set: reads them, and fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from grls.answer.ralm.reranker import Reranker, RerankExample, example_settings, read_examples
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.io.ending import needing, quiet
from grls.io.files import refuse_foreign, sha256
from grls.train.reranker.module import RerankHops
from grls.train.reranker.options import (
    USUAL_RERANK_HOPS,
    USUAL_RERANKER,
    RerankerOptions,
    RerankHopOptions,
)

with needing("train", "training a reranker"):
    from grls.train.core.checkpoints import RunState
    from grls.train.core.datamodule import digest, read_named_split
    from grls.train.core.processes import only_training
    from grls.train.reranker.module import fit_reranker

PREFIX = 64
"""Tokens before a stride, where the examples do not record it."""


def run_reranker(
    *,
    train: str | None = None,
    dev: str | None = None,
    data: str,
    output: str,
    encoder: str = "all-MiniLM-L6-v2",
    prefix_tokens: int | None = None,
    max_tokens: int = 256,
    fit: RerankerOptions = USUAL_RERANKER,
    hops: RerankHopOptions = USUAL_RERANK_HOPS,
    resume: bool = False,
    device: str = "auto",
) -> float:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9), or one of hops.

    Writes ``output/model``, ``output/logs`` and ``output/checkpoints``.

    The arguments are the options of `grls train reranker` (:func:`grls.commands.train.train_reranker`); null
    is None.

    Returns:
        The best dev loss (nats a stride, or a hop).

    Raises:
        ConfigError: An option cannot work, or the training has diverged.
        DataError: A file is malformed, or a passage of an example is not in the corpus.
        MismatchError: The files do not belong together, or the run to resume had other options.
        WriteError: The output cannot be written, or another training writes it.
    """
    quiet()
    refuse_foreign(f"{output}/model", "config.json")
    with only_training(output):
        corpus = Corpus.read(data)
        of_hops = train is None and dev is None
        read = (corpus, data, prefix_tokens, hops)
        examples = _of_hops(*read, fit.seed) if of_hops else _of_files(train, dev, *read)
        torch.manual_seed(fit.seed)  # for the new head of an encoder without one
        reading = examples.prefix_tokens, max_tokens, device
        reranker = Reranker.load(encoder, *reading, evidence_words=examples.evidence_words)
        settings = {"encoder": encoder, "prefix_tokens": examples.prefix_tokens, "max_tokens": max_tokens}
        files = {
            "the corpus": corpus.fingerprint,
            "the tokenizer of the encoder": tokenizer_fingerprint(reranker.tokenizer),
        }
        options = {name: f"fit.{name}" for name in vars(fit)}
        state = RunState({**settings, **examples.settings, **vars(fit)}, {**files, **examples.files}, options)
        return fit_reranker(
            reranker, None if of_hops else corpus, examples.train, examples.dev, output, fit, resume, state
        )


class _Examples(NamedTuple):
    """The examples of a run.

    Attributes:
        train: The training examples.
        dev: Examples that choose the best epoch.
        files: Fingerprints of the files that they are made of.
        settings: Options of their making, which a resumed run must have in common.
        prefix_tokens: Tokens of a prefix.
        evidence_words: See :class:`grls.answer.ralm.reranker.Reranker`.
    """

    train: Sequence[RerankExample]
    dev: Sequence[RerankExample]
    files: dict[str, str]
    settings: Mapping[str, Any] = MappingProxyType({})
    prefix_tokens: int = PREFIX
    evidence_words: int | None = None


def _of_files(
    train: str | None, dev: str | None, corpus: Corpus, data: str, wanted: int | None, hops: RerankHopOptions
) -> _Examples:
    """Examples of files; MismatchError if they have another length of prefixes than ``wanted``."""
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
                f"again (`grls ralm examples {Option('examples.prefix_tokens', wanted)}`)."
            )
    if len(set(lengths.values())) > 1:
        raise MismatchError(
            f"prefixes have {lengths['train']} tokens in {Option('train')} and {lengths['dev']} in "
            f"{Option('dev')}: collect both with the same {Option('examples.prefix_tokens')}."
        )
    prefix_tokens = next(iter(lengths.values()), PREFIX if wanted is None else wanted)
    files = {"the file of training examples": sha256(train), "the file of dev examples": sha256(dev)}
    return _Examples(read_examples(train), read_examples(dev), files, prefix_tokens=prefix_tokens)


def _of_hops(corpus: Corpus, data: str, wanted: int | None, hops: RerankHopOptions, seed: int) -> _Examples:
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
    return _Examples(train, dev, files, settings, evidence_words=hops.evidence_words)
