"""Writes the pseudo-queries of a corpus to a file that grows, in this process or by workers.

A query is drawn with its own seed, and a portion of queries is padded in the same batches wherever it is
written. So workers write the bytes that one process writes, where their machines round alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from grls.answer.writer import TextWriter
from grls.cluster.options import Workers
from grls.cluster.places import alone_at_shards, refuse_other_reading, seen_elsewhere, shards_folder
from grls.cluster.plan import Shard, ShardPlan, Work
from grls.cluster.work import done_by_workers
from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours
from grls.io.files import sha256
from grls.io.resumable import GrowingFile
from grls.models.load.language import load_language_model, weights_fingerprint
from grls.models.precision_names import Numbers
from grls.train.doc2query.form import QueryForm, QueryPrompt
from grls.train.doc2query.generate import QueryWriter, Task, tasks
from grls.train.doc2query.options import Drawing

PORTION = 16
"""Batches that are written before the file grows; within them, like lengths go together."""
SHARD = 4096
"""Queries of a shard, unless an option says otherwise."""
_WRITTEN = "written.jsonl"


class OpenedQueries(NamedTuple):
    """What writes the queries of a run.

    Attributes:
        corpus: The passages.
        asked: The queries to write, in order.
        writer: Writes them.
        origin: The fingerprints and options that the queries depend on.
        portion: Queries that are written together.
    """

    corpus: Corpus
    asked: list[Task]
    writer: QueryWriter
    origin: dict[str, Any]
    portion: int

    def write(self, first: int, end: int, file: GrowingFile, report: Callable[[int], object] | None) -> None:
        """Write a range of the queries to a file, a portion at a time."""
        for start in range(first, end, self.portion):
            file.add(self.writer.write(self.asked[start : min(start + self.portion, end)], report))


@dataclass(frozen=True)
class QueryWork:
    """The options of `grls prepare pseudo-queries` that the queries depend on.

    The attributes are named like the options.
    """

    data: str
    model: str
    draw: Drawing
    links: str | None
    limit: int | None
    batch_size: int
    device: str
    precision: Numbers

    def opened(self) -> OpenedQueries:
        """Read the corpus, and open the query generator.

        Raises:
            ConfigError: The folder holds no query generator, or no chain can be drawn.
            DataError: The corpus or the links cannot be read.
        """
        corpus = Corpus.read(self.data)
        form = QueryForm.of(self.model)
        drawing = replace(self.draw, reads=self.draw.reads or ("first" if form.passages == "one" else "all"))
        near = None if self.links is None else Neighbours.read(self.links, corpus)
        asked = tasks(_chosen(len(corpus), self.limit, self.draw.seed), near, drawing)
        loaded, tokenizer = load_language_model(self.model, self.device, self.precision)
        prompt = QueryPrompt(tokenizer, not loaded.config.is_encoder_decoder, form)
        origin = {
            "weights": weights_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
            "form": form._asdict(), "corpus": corpus.fingerprint, "limit": self.limit,
            "links": None if self.links is None else sha256(self.links), **asdict(drawing),
        }  # fmt: skip
        if self.precision != "float32":
            origin["precision"] = self.precision
        texts = TextWriter(loaded, tokenizer, form.query_tokens + 1, self.batch_size)
        writer = QueryWriter(texts, prompt, corpus, drawing)
        return OpenedQueries(corpus, asked, writer, origin, self.batch_size * PORTION)

    def elsewhere(self) -> QueryWork:
        """The same with absolute paths: a worker runs in another folder."""
        links = None if self.links is None else seen_elsewhere(self.links)
        return replace(self, data=seen_elsewhere(self.data), model=seen_elsewhere(self.model), links=links)


def _chosen(count: int, limit: int | None, seed: int) -> list[int]:
    """Numbers of the passages that are written for."""
    if limit is None or limit >= count:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), limit))


@dataclass(frozen=True)
class QueryWriterMaker:
    """Opens what writes queries on a worker.

    Attributes:
        asked: The options.
        origin: The fingerprints and options that the command has read, and the worker must read, too.
        first: The query that is item 0 of the shards.
    """

    asked: QueryWork
    origin: dict[str, Any]
    first: int

    def __call__(self) -> Work:
        """Open the query generator and the corpus.

        Raises:
            MismatchError: The worker reads another query generator or corpus.
        """
        opened, asked = self.asked.opened(), self.asked
        places = dict.fromkeys(("weights", "tokenizer", "form"), (asked.model, "query generator"))
        places |= {"corpus": (asked.data, "corpus"), "links": (str(asked.links), "file of neighbours")}
        refuse_other_reading(opened.origin, self.origin, places)
        return partial(_write_shard, opened, self.first)


def _write_shard(opened: OpenedQueries, before: int, shard: Shard, folder: Path) -> dict[str, Any]:
    file = GrowingFile(folder / _WRITTEN, {}, keep=False)
    opened.write(before + shard.first, before + shard.end, file, None)
    file.close()
    return {}


def write_by_workers(
    opened: OpenedQueries, asked: QueryWork, file: GrowingFile, workers: Workers, output: str
) -> None:
    """Let workers write the queries that a file lacks, and add them in order.

    Args:
        opened: The run, as this process opened it.
        asked: Its options.
        file: The file; it holds the first queries of the run.
        workers: The workers.
        output: Path of the results; the shards stand beside it.

    Raises:
        ConfigError: The cluster cannot be used.
        MismatchError: There are shards of other work.
    """
    settings = {"what": "pseudo-queries", "batch_size": asked.batch_size, **opened.origin}
    size = workers.options.shard or SHARD
    with alone_at_shards(output):
        plan = ShardPlan.of_rest(
            shards_folder(output), settings, len(opened.asked), file.count, size, opened.portion
        )
        if file.count < len(opened.asked):
            first = plan.settings["first"]
            maker = QueryWriterMaker(asked.elsewhere(), opened.origin, first)
            for one in done_by_workers(plan, maker, workers, "pseudo-queries", "queries"):
                written = GrowingFile(one.folder / _WRITTEN, {})
                held = max(file.count - first - one.shard.first, 0)
                file.add(written.records[held:])
                written.close()
        plan.remove()
