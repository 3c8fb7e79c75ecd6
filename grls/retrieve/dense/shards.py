"""The embeddings of a dense retriever, made by workers: each embeds shards of the corpus.

Legend: N passages, d embedding dimension. An item of the work is a row: row n is passage n, row N is DONE.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grls.cluster.options import Workers
from grls.cluster.plan import Done, Shard, ShardPlan, Work
from grls.cluster.work import done_by_workers
from grls.data.corpus import Corpus, corpus_file
from grls.errors import MismatchError
from grls.index.external_sort.npy import GrowingArray
from grls.models.biencoder import BiEncoderModel
from grls.models.sentence_model import Kind
from grls.retrieve.dense.encode import EMBEDDINGS, SHARD, encoded_rows, settings_sum
from grls.retrieve.encoded.encode import refuse_unusable_corpus
from grls.retrieve.generative.shards import other_on_worker, shards_folder

log = logging.getLogger(__name__)

ROWS = 16 * SHARD
"""Rows of a shard, unless an option says otherwise. With a multiple of ``SHARD`` the batches are those of one
process."""


@dataclass(frozen=True)
class EncoderMaker:
    """Opens a bi-encoder and a corpus on a worker.

    Attributes:
        model: Folder of the bi-encoder, or a hub name.
        kind: How it is opened.
        device: Where passages are encoded.
        limit: The longest input in tokens; None: that of the model.
        corpus: ``corpus.jsonl``.
        batch_size: Passages encoded together.
        fingerprints: Those of model and corpus, which the worker must read, too.
    """

    model: str
    kind: Kind
    device: str
    limit: int | None
    corpus: str
    batch_size: int
    fingerprints: tuple[str, str]

    def __call__(self) -> Work:
        """Open what the work needs.

        Raises:
            MismatchError: The worker reads another model or corpus.
        """
        biencoder = BiEncoderModel.load(self.model, self.kind, self.device, self.limit)
        corpus = Corpus.read(self.corpus)
        for place, what, held, wanted in (
            (self.model, "model", biencoder.fingerprint(), self.fingerprints[0]),
            (self.corpus, "corpus", corpus.fingerprint, self.fingerprints[1]),
        ):
            if held != wanted:
                raise MismatchError(other_on_worker(place, what))
        return partial(_embed, biencoder, corpus, self.batch_size)


def _embed(
    biencoder: BiEncoderModel, corpus: Corpus, batch_size: int, shard: Shard, folder: Path
) -> dict[str, Any]:
    """Embed the rows of a shard into a file of its folder; the result counts the passages that were cut."""
    cut = 0
    with GrowingArray(folder / EMBEDDINGS, np.float32, columns=biencoder.dimension) as file:
        for rows, short in encoded_rows(biencoder, corpus, range(shard.first, shard.end), batch_size):
            file.append(rows)
            cut += short
    return {"cut": cut}


def encode_by_workers(
    biencoder: BiEncoderModel, corpus: Corpus, maker: EncoderMaker, workers: Workers, output: str
) -> Path:
    """Let workers embed a corpus and DONE.

    Args:
        biencoder: The model, as this process opened it.
        corpus: The N passages.
        maker: Opens both on a worker.
        workers: The workers.
        output: The folder that is made; the shards stand beside it.

    Returns:
        The ``.npy`` file of the embeddings ``[N + 1, d]``, in the folder of the shards, which the caller
        removes once the file is saved elsewhere.
    """
    refuse_unusable_corpus(corpus)
    settings = {
        "what": "embeddings", "model": biencoder.fingerprint(), "corpus": corpus.fingerprint,
        "settings": settings_sum(biencoder.settings()),
    }  # fmt: skip
    plan = ShardPlan(shards_folder(output), settings, len(corpus) + 1, workers.options.shard or ROWS)
    done = done_by_workers(plan, maker, workers, "embed", "passages")
    cut = sum(one.result["cut"] for one in done)
    if cut:
        log.warning(biencoder.cut_notice(cut, len(corpus), "--limits.input (of grls index)"))
    return _joined(done, plan.folder / EMBEDDINGS, biencoder.dimension)


def _joined(done: Sequence[Done], file: Path, dimension: int) -> Path:
    with GrowingArray(file, np.float32, columns=dimension) as growing:
        for one in done:
            growing.append(np.load(one.folder / EMBEDDINGS, mmap_mode="r"))
    return file


def encoder_maker(
    model: str, kind: Kind, device: str, limit: int | None, corpus: Corpus, batch_size: int, own: str
) -> EncoderMaker:
    """The maker for a model and a corpus that this process has opened; ``own`` is the model's fingerprint."""
    place = str(Path(model).absolute()) if Path(model).exists() else model
    passages = str(corpus_file(corpus.source).absolute())
    return EncoderMaker(place, kind, device, limit, passages, batch_size, (own, corpus.fingerprint))
