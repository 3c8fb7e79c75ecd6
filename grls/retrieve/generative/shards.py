"""The index of a generative retriever, built by workers: each sorts shards of the corpus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grls.cluster.options import Workers
from grls.cluster.places import other_on_worker, seen_elsewhere, shards_folder
from grls.cluster.plan import ShardPlan, Work
from grls.cluster.work import done_by_workers
from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus, corpus_file
from grls.data.spans import Spans
from grls.errors import ConfigError, MismatchError, Option
from grls.index.base import Segment
from grls.index.options import IndexOptions, memory_bytes
from grls.index.shard_runs import ShardSorter, index_of_shards

PASSAGES = 1_000_000
"""Passages (or spans) of a shard, unless an option says otherwise."""


@dataclass(frozen=True)
class SorterMaker:
    """Opens a tokenizer and a corpus on a worker, for :class:`~grls.index.shard_runs.ShardSorter`.

    Attributes:
        model: Folder of the model, or a hub name.
        corpus: ``corpus.jsonl``.
        limits: Length limits of the codec.
        causal: Whether the model is causal.
        spans: Words of a span; None: whole passages.
        memory: Memory for sorting in bytes.
        codec_fingerprint: The fingerprint that the codec must have.
        corpus_fingerprint: The fingerprint that the corpus must have.
    """

    model: str
    corpus: str
    limits: Limits
    causal: bool
    spans: int | None
    memory: int
    codec_fingerprint: str
    corpus_fingerprint: str

    def __call__(self) -> Work:
        """Open what the work needs.

        Raises:
            MismatchError: The worker reads another corpus or tokenizer.
        """
        from grls.models.load.build import load_tokenizer

        codec = Codec(load_tokenizer(self.model), self.limits, self.causal)
        corpus = Corpus.read(self.corpus)
        if corpus.fingerprint != self.corpus_fingerprint:
            raise MismatchError(other_on_worker(self.corpus, "corpus"))
        if codec.fingerprint() != self.codec_fingerprint:
            raise MismatchError(other_on_worker(self.model, "tokenizer"))
        return ShardSorter(corpus if self.spans is None else Spans(corpus, self.spans), codec, self.memory)


def index_by_workers(
    model: str,
    listed: Corpus | Spans,
    codec: Codec,
    options: IndexOptions,
    workers: Workers,
    output: str,
    scratch: Path,
) -> tuple[Segment, ShardPlan]:
    """Build the index of a corpus by workers.

    Args:
        model: Folder of the model, or a hub name, for its tokenizer.
        listed: The corpus, or its spans.
        codec: Turns passages into tokens.
        options: Options of the index.
        workers: The workers.
        output: The folder that is made; the shards stand beside it.
        scratch: A folder for the merged index.

    Returns:
        The index, and the plan, whose folder the caller removes once the index is saved.

    Raises:
        ConfigError: Only the backend ``array`` is built by workers; or the cluster cannot be used.
        MismatchError: Shards of other work are there.
    """
    if options.backend != "array":
        raise ConfigError(
            f"{Option('ray')} builds indexes of the backend 'array' only; got {options.backend!r}."
        )
    spans = None if isinstance(listed, Corpus) else listed.words
    corpus = listed if isinstance(listed, Corpus) else listed.corpus
    memory = memory_bytes(options.memory)
    settings: dict[str, Any] = {
        "what": "index", "codec": codec.fingerprint(), "corpus": corpus.fingerprint, "spans": spans,
    }  # fmt: skip
    plan = ShardPlan(shards_folder(output), settings, len(listed), workers.options.shard or PASSAGES)
    place = str(corpus_file(corpus.source).absolute())
    maker = SorterMaker(
        seen_elsewhere(model), place, codec.limits, codec.causal, spans, memory, settings["codec"],
        settings["corpus"],
    )  # fmt: skip
    done = done_by_workers(plan, maker, workers, "sort", "passages")
    return index_of_shards(done, codec, memory, options.form, scratch, progress=True), plan
