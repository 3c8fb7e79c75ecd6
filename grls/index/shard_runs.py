"""Builds an index from shards of a corpus: each shard is sorted alone, then all are merged exactly.

A shard becomes sorted runs on disk (:mod:`grls.index.external_sort.runs`), whose passages have their numbers
in the whole corpus. The merge of all runs has the same bytes as an index that one process builds. Workers and
the folder of the shards: :mod:`grls.cluster`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grls.cluster.plan import Done, Shard
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.corpus_table import BATCH
from grls.data.spans import Spans
from grls.index.base import Segment
from grls.index.build import index_on_disk, refuse_unindexable, token_sequences, token_type, warn_of_cut
from grls.index.external_sort.runs import Sequences, SortedRun, Spill
from grls.index.external_sort.stream import Runs
from grls.index.rows import Form
from grls.index.storage import save_runs
from grls.io.counts import counted
from grls.io.progress import waiting


class ShardSorter:
    """The work of a shard: its passages as tokens, sorted, in runs.

    The runs are the folders ``run-0``, ``run-1`` and so on.

    Args:
        listed: All passages, or spans.
        codec: Turns passages into tokens.
        memory: Memory for sorting in bytes.
    """

    def __init__(self, listed: Corpus | Spans, codec: Codec, memory: int):
        refuse_unindexable(listed)
        self._listed = listed
        self._codec = codec
        self._memory = memory

    def __call__(self, shard: Shard, folder: Path) -> dict[str, Any]:
        """Sort a shard; the result says how many rows each run has, the largest token, and what was cut."""
        before = self._codec.cut_passages
        spill = Spill(folder, self._codec.end, self._memory, shard.first)
        spill.take(self._tokens(shard))
        cut = self._codec.cut_passages - before
        return {"rows": [run.rows for run in spill.runs], "top": spill.top, "cut": cut}

    def _tokens(self, shard: Shard) -> Iterator[Sequences]:
        kind = token_type(self._codec)
        for first in range(shard.first, shard.end, BATCH):
            passages = self._listed.passages(range(first, min(first + BATCH, shard.end)))
            yield token_sequences(self._codec.passages(passages), kind)


def index_of_shards(
    shards: Sequence[Done],
    codec: Codec,
    memory: int,
    form: Form = "whole",
    scratch: str | Path | None = None,
    progress: bool = False,
) -> Segment:
    """Merge all shards and DONE into one index, in a temporary folder that is deleted with it.

    Args:
        shards: All shards of a corpus, in order.
        codec: The codec of the shards.
        memory: Memory for sorting in bytes.
        form: ``whole`` or ``prefixes``.
        scratch: The folder of the temporary folder; None: the system's.
        progress: Show that the merge is running.
    """
    passages = shards[-1].shard.end
    warn_of_cut(sum(done.result["cut"] for done in shards), passages, codec)

    def save(folder: Path) -> None:
        place = folder.with_name("done")
        place.mkdir()
        last = Spill(place, codec.end, memory, passages)
        last.take([token_sequences([codec.done_sequence], token_type(codec))])
        runs = [run for done in shards for run in _runs(done)]
        top = max([last.top, *(done.result["top"] for done in shards)])
        save_runs(Runs((*runs, *last.runs), passages + 1, top), folder, codec.end, memory, form)

    with waiting(f"merge {counted(len(shards), 'shard')}", progress):
        return index_on_disk(save, scratch)


def _runs(done: Done) -> list[SortedRun]:
    return [SortedRun(done.folder / f"run-{n}", rows) for n, rows in enumerate(done.result["rows"])]
