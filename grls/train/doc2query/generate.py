"""Pseudo-queries: what a trained query generator asks about passages, or chains of them.

A chain begins at its passage and goes on, hop by hop, to a passage near to the last one; so a pseudo-query of
several hops has evidence in the order in which it is to be found (as the authors of arXiv 2204.13596 later
proposed for memorising hops). Each query is a draw with a seed of its own: what is written for a passage does
not depend on what else is written (but for the rounding of padded batches).

Which queries are kept is said in :mod:`grls.train.doc2query.round_trip`.
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
from grls.train.doc2query.form import QueryPrompt
from grls.train.doc2query.options import Drawing as Drawing


class Task(NamedTuple):
    """A query to be written.

    Attributes:
        chain: Passage numbers: its evidence, in order.
        draw: Which of the passage's queries it is, from 0.
    """

    chain: tuple[int, ...]
    draw: int


def tasks(numbers: Sequence[int], links: Neighbours | None, drawing: Drawing) -> list[Task]:
    """The queries to be written for some passages, with a chain each that is drawn anew.

    A chain never comes back to a passage. A passage from which no chain goes that far has no query.

    Args:
        numbers: The passages that chains begin with.
        links: What a chain may go on to; needed for more than one hop.
        drawing: How many, how long, and the seed.

    Raises:
        ConfigError: There are several hops and no links, or no passage has a chain.
    """
    if drawing.hops > 1 and links is None:
        raise ConfigError(
            "several hops need links between passages: make a file with `grls prepare neighbours`."
        )
    found = [
        Task(chain, draw)
        for number in numbers
        for draw in range(drawing.queries)
        if (chain := _chain(number, draw, links, drawing)) is not None
    ]
    if not found:
        raise ConfigError(f"no chain of {drawing.hops} passages can be drawn; lower the hops, or link more.")
    return found


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
        prompt: How it reads.
        corpus: The passages.
        drawing: How queries are drawn.
    """

    def __init__(self, writer: TextWriter, prompt: QueryPrompt, corpus: Corpus, drawing: Drawing):
        self.writer = writer
        self.prompt = prompt
        self.corpus = corpus
        self.drawing = drawing

    def write(
        self, some: Sequence[Task], decided: Callable[[int], object] | None = None
    ) -> list[dict[str, Any]]:
        """A record of each task: ``chain`` (passage ids), ``draw``, ``text``, ``ended`` (not cut off).

        A chain that is too long for the model has no text, is told of, and its record says so (``failed``).

        Args:
            some: The tasks.
            decided: Called with the number of queries that a batch has finished.

        Raises:
            ConfigError: The model has no room for any prompt.
        """
        chains = [self.corpus.passages(task.chain) for task in some]
        read = [chain[:1] if self.drawing.reads == "first" else chain for chain in chains]
        prompts = [self.prompt.source(self.prompt.passages(passages)) for passages in read]
        names = [[passage.id for passage in chain] for chain in chains]
        failed = self._too_long(names, prompts)
        if decided is not None and failed:
            decided(len(failed))
        asked = [place for place in range(len(some)) if place not in failed]
        draws = [self._draw(names[place], some[place].draw) for place in asked]
        written = iter(self.writer.write([prompts[place] for place in asked], decided, draws))
        found = []
        for place, (ids, task) in enumerate(zip(names, some, strict=True)):
            record: dict[str, Any] = {"chain": ids, "draw": task.draw, "text": "", "ended": False}
            if place in failed:
                record["failed"] = failed[place]
            else:
                one = next(written)
                record |= {"text": " ".join(one.text.split()), "ended": one.ended}
            found.append(record)
        return found

    def _too_long(self, names: Sequence[Sequence[str]], prompts: Sequence[Sequence[int]]) -> dict[int, str]:
        """The tasks whose prompts the model has no room for, and why."""
        given = [f"the passages {', '.join(map(repr, ids))}" for ids in names]
        room, new = self.writer.room, self.writer.max_new_tokens
        return too_long(given, prompts, room, new, lambda: self.prompt.source([]))

    def _draw(self, ids: Sequence[str], draw: int) -> Sampling:
        key = repr((self.drawing.seed, *ids, draw)).encode()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:7], "big")
        return Sampling(self.drawing.temperature, seed, self.drawing.top_p)
