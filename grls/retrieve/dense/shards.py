"""The embeddings of a dense retriever, made by workers: each embeds shards of the corpus.

Legend: N passages, d embedding dimension. An item of the work is a row: row n is passage n, row N is DONE.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from grls.cluster.places import seen_elsewhere
from grls.cluster.plan import Shard
from grls.data.corpus import Corpus
from grls.index.external_sort.npy import GrowingArray
from grls.io.files import atomic_path
from grls.models.biencoder import BiEncoderModel
from grls.models.sentence_model import Kind
from grls.retrieve.build import Building
from grls.retrieve.dense.encode import EMBEDDINGS, SHARD, encoded_rows
from grls.retrieve.encoded.shards import Encoding

ROWS = 16 * SHARD
"""Rows of a shard, unless an option says otherwise. With a multiple of ``SHARD`` the batches are those of one
process."""


def _embed(biencoder: BiEncoderModel, corpus: Corpus, batch_size: int, shard: Shard, folder: Path) -> int:
    """Embed the rows of a shard into a file of its folder; returns the number of passages that were cut."""
    cut = 0
    with GrowingArray(folder / EMBEDDINGS, np.float32, columns=biencoder.dimension) as file:
        for rows, short in encoded_rows(biencoder, corpus, range(shard.first, shard.end), batch_size):
            file.append(rows)
            cut += short
    return cut


def encode_by_workers(
    biencoder: BiEncoderModel, corpus: Corpus, model: str, kind: Kind, how: Building
) -> Path:
    """Let workers embed a corpus and DONE.

    Args:
        biencoder: The model, as this process opened it.
        corpus: The N passages.
        model: Folder of the model, or a hub name.
        kind: How it is opened.
        how: The options.

    Returns:
        The ``.npy`` file of the embeddings ``[N + 1, d]``, in the folder of the shards, which the caller
        removes once the file is saved elsewhere.
    """
    place = seen_elsewhere(model)
    load = partial(BiEncoderModel.load, place, kind, how.device, how.limits.input, how.similarity)
    encoding = Encoding("embeddings", load, _embed, place, how.batch_size, how.output, how.workers)
    plan, done = encoding.shards(biencoder, corpus, len(corpus) + 1, ROWS)
    file = plan.folder / EMBEDDINGS
    with atomic_path(file) as new, GrowingArray(new, np.float32, biencoder.dimension) as growing:
        for one in done:
            growing.append(np.load(one.folder / EMBEDDINGS, mmap_mode="r"))
    return file
