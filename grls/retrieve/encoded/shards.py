"""The passages of a corpus, encoded in shards: in this process, or by workers.

Each finished shard is on disk, so memory does not grow with the corpus, and a killed run encodes the missing
shards alone. What a shard holds differs by kind: :mod:`grls.retrieve.dense.shards`,
:mod:`grls.retrieve.sparse.shards`, :mod:`grls.retrieve.multi_vector.shards`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from grls.cluster.options import USUAL_WORKERS, Workers
from grls.cluster.places import refuse_other_reading, shards_folder
from grls.cluster.plan import Done, Shard, ShardPlan, Work
from grls.cluster.work import done_by_workers
from grls.data.corpus import Corpus, corpus_file
from grls.errors import Option
from grls.models.text_encoder import TextEncoder
from grls.retrieve.encoded.encode import refuse_unusable_corpus, settings_sum

log = logging.getLogger(__name__)

PART = 1024
"""Passages that are encoded together, in batches of like lengths. With shards of a multiple of it, the
batches do not depend on the shards."""
HERE = Workers(None, USUAL_WORKERS)
"""No workers: this process encodes one shard after the other."""


def shard_size(workers: Workers | None) -> int:
    """Passages of a shard: what a kill costs in this process; more for workers, who are asked for each."""
    return PART if workers is None else 16 * PART


EncodeShard = Callable[[Any, Corpus, int, Shard, Path], int]
"""Encodes the items of a shard, in batches of so many passages, into files of a folder; returns how many
passages were cut."""


@dataclass(frozen=True)
class EncoderMaker:
    """Opens an encoder and a corpus on a worker.

    Attributes:
        load: Opens the encoder. (It is sent to the workers, so it is a function of a module with arguments.)
        encode: Encodes a shard.
        model: The place of the encoder, for errors.
        corpus: ``corpus.jsonl``.
        batch_size: Passages encoded together.
        fingerprints: Those of ``model`` and ``corpus``, which the worker must read, too.
    """

    load: Callable[[], TextEncoder]
    encode: EncodeShard
    model: str
    corpus: str
    batch_size: int
    fingerprints: dict[str, str]

    def __call__(self) -> Work:
        """Open what the work needs.

        Raises:
            MismatchError: The worker reads another model or corpus.
        """
        encoder, corpus = self.load(), Corpus.read(self.corpus)
        held = {"model": encoder.fingerprint(), "corpus": corpus.fingerprint}
        places = {"model": (self.model, "model"), "corpus": (self.corpus, "corpus")}
        refuse_other_reading(held, self.fingerprints, places)
        return self.work(encoder, corpus)

    def work(self, encoder: TextEncoder, corpus: Corpus) -> Work:
        """The work with an open encoder and corpus."""
        return partial(_encode, self.encode, encoder, corpus, self.batch_size)


def _encode(
    encode: EncodeShard, encoder: TextEncoder, corpus: Corpus, batch_size: int, shard: Shard, folder: Path
) -> dict[str, Any]:
    return {"cut": encode(encoder, corpus, batch_size, shard, folder)}


class Encoded(NamedTuple):
    """All shards of a corpus.

    Attributes:
        plan: The plan; the caller removes its folder once the passages are saved elsewhere.
        done: The shards in order.
    """

    plan: ShardPlan
    done: list[Done]


class Encoding(NamedTuple):
    """How a corpus is encoded.

    Attributes:
        what: The form of the encoded passages, which shards of other forms do not have.
        load: See :class:`EncoderMaker`.
        encode: See there.
        model: See there.
        batch_size: See there.
        output: The folder that is made; the shards stand beside it.
        workers: The workers; None: this process.
    """

    what: str
    load: Callable[[], TextEncoder]
    encode: EncodeShard
    model: str
    batch_size: int
    output: str
    workers: Workers | None = None

    def shards(self, encoder: TextEncoder, corpus: Corpus, items: int, size: int) -> Encoded:
        """Encode a corpus.

        Args:
            encoder: The model, as this process opened it.
            corpus: The N passages.
            items: Number of items: N, or more where something follows the passages.
            size: Items of a shard, unless an option says otherwise.

        Raises:
            ConfigError: The cluster cannot be used.
            DataError: The corpus cannot be used, or a shard is damaged.
            MismatchError: There are shards of other work.
        """
        refuse_unusable_corpus(corpus)
        prints = {"model": encoder.fingerprint(), "corpus": corpus.fingerprint}
        workers = self.workers or HERE
        place = str(corpus_file(corpus.source).absolute())
        maker = EncoderMaker(self.load, self.encode, self.model, place, self.batch_size, prints)
        settings = {"what": self.what, **prints, "settings": settings_sum(encoder.settings())}
        plan = ShardPlan(shards_folder(self.output), settings, items, workers.options.shard or size)
        make = maker if workers.address else partial(maker.work, encoder, corpus)
        done = done_by_workers(plan, make, workers, "embed", "passages")
        if cut := sum(one.result["cut"] for one in done):
            log.warning(encoder.cut_notice(cut, len(corpus), f"{Option('limits.input')!s} (of grls index)"))
        return Encoded(plan, done)
