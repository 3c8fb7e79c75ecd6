"""Writes pseudo-queries for passages, or chains of passages, with a trained query generator.

A chain begins with its passage and continues, hop by hop, with a neighbour of the last passage. So a
pseudo-query of several hops has evidence in the order of retrieval (as the authors of arXiv 2204.13596 later
proposed for memorising hops). Each query is drawn with its own seed: the query of a passage does not depend
on the other queries of a run (except for rounding in padded batches).

Filter of the queries: :mod:`grls.train.doc2query.round_trip`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from grls.answer.room import too_long
from grls.answer.writer import Sampling, TextWriter
from grls.data.corpus import Corpus
from grls.data.neighbours import Neighbours
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.train.doc2query.form import QueryPrompt
from grls.train.doc2query.options import Drawing as Drawing


class Task(NamedTuple):
    """A query to be written.

    Attributes:
        chain: Passage numbers of its evidence, in order.
        draw: Number of the query among the queries of the passage, from 0.
    """

    chain: tuple[int, ...]
    draw: int


def tasks(numbers: Sequence[int], links: Neighbours | None, drawing: Drawing) -> list[Task]:
    """The queries to write for passages, each with its own chain.

    A chain has no passage twice. A passage without a chain of the full length has no query.

    Args:
        numbers: The first passages of the chains.
        links: The neighbours with which a chain may continue; needed for more than one hop.
        drawing: Number of queries and hops, and the seed.

    Raises:
        ConfigError: There are several hops and no links, or no passage has a chain.
    """
    if drawing.hops > 1 and links is None:
        raise ConfigError(
            "several hops need links between passages: make a file with `grls prepare neighbours`."
        )
    drawn = [
        Task(chain, draw)
        for number in numbers
        for draw in range(drawing.queries)
        if (chain := _chain(number, draw, links, drawing)) is not None
    ]
    if not drawn:
        raise ConfigError(
            f"no chain of {counted(drawing.hops, 'passage')} can be drawn: lower the number of hops, or link "
            "more passages."
        )
    return drawn


def _chain(number: int, draw: int, links: Neighbours | None, drawing: Drawing) -> tuple[int, ...] | None:
    chain = [number]
    rng = random.Random(f"{drawing.seed}-{number}-{draw}")
    for _ in range(drawing.hops - 1):
        assert links is not None
        further = [other for other in links.of(chain[-1]) if other not in chain]
        if not further:
            return None
        chain.append(rng.choice(further))
    return tuple(chain)


class QueryWriter:
    """Writes the queries of tasks.

    Args:
        writer: The query generator.
        prompt: Makes its inputs.
        corpus: The passages.
        drawing: How queries are drawn.
    """

    def __init__(self, writer: TextWriter, prompt: QueryPrompt, corpus: Corpus, drawing: Drawing):
        self.writer = writer
        self.prompt = prompt
        self.corpus = corpus
        self.drawing = drawing

    def write(
        self, batch: Sequence[Task], decided: Callable[[int], object] | None = None
    ) -> list[dict[str, Any]]:
        """A record of each task: ``chain`` (passage ids), ``draw``, ``text``, ``ended`` (not cut off).

        A chain that is too long for the model has no text; its record has the reason under ``failed``.

        Args:
            batch: The tasks.
            decided: Called with the number of queries that a batch has finished.

        Raises:
            ConfigError: The model has no room for any prompt.
        """
        chains = [self.corpus.passages(task.chain) for task in batch]
        read = [chain[:1] if self.drawing.reads == "first" else chain for chain in chains]
        prompts = [self.prompt.source(self.prompt.passages(passages)) for passages in read]
        names = [[passage.id for passage in chain] for chain in chains]
        failed = self._too_long(names, prompts)
        if decided is not None and failed:
            decided(len(failed))
        asked = [place for place in range(len(batch)) if place not in failed]
        draws = [self._draw(names[place], batch[place].draw) for place in asked]
        written = iter(self.writer.write([prompts[place] for place in asked], decided, draws))
        records = []
        for place, (ids, task) in enumerate(zip(names, batch, strict=True)):
            record: dict[str, Any] = {"chain": ids, "draw": task.draw, "text": "", "ended": False}
            if place in failed:
                record["failed"] = failed[place]
            else:
                one = next(written)
                record |= {"text": " ".join(one.text.split()), "ended": one.ended}
            records.append(record)
        return records

    def _too_long(self, names: Sequence[Sequence[str]], prompts: Sequence[Sequence[int]]) -> dict[int, str]:
        """The tasks whose prompts are too long for the model, with the reason."""
        inputs = [f"the passages {', '.join(map(repr, ids))}" for ids in names]
        room, new = self.writer.room, self.writer.max_new_tokens
        return too_long(inputs, prompts, room, new, lambda: self.prompt.source([]))

    def _draw(self, ids: Sequence[str], draw: int) -> Sampling:
        key = repr((self.drawing.seed, *ids, draw)).encode()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
        return Sampling(self.drawing.temperature, seed, self.drawing.top_p)
