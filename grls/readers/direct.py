"""Answers in one go: from what was retrieved for the question, or from nothing (closed book).

The baselines of RICHES (arXiv 2407.00361) that retrieve first, or never. The module does not know who
retrieved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from grls.corpus import Corpus
from grls.errors import ConfigError
from grls.evaluation.results import find_passages
from grls.readers.dialogue import Asked, few_shot
from grls.readers.prompts import ANSWER, CLOSED_TASK, OPEN_TASK, asked_directly, direct_examples
from grls.readers.writer import TextWriter
from grls.types import Hit, Passage, Query

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """A follow-up question.

    Attributes:
        question: What was asked.
        passages: Ids of the passages that were shown for it.
    """

    question: str
    passages: tuple[str, ...]


class Reading(NamedTuple):
    """What a reader wrote for a query.

    Attributes:
        answer: The answer; empty where none was written.
        ended: False where the length limit ended it.
        read: Ids of the passages that it read, in order.
        ranking: What was retrieved, best first.
        steps: The follow-up questions, in order; none where the question itself was retrieved for.
        cut: Number of passages left out because the model has no room for them.
    """

    answer: str
    ended: bool
    read: tuple[str, ...]
    ranking: tuple[Hit, ...]
    steps: tuple[Step, ...] = ()
    cut: int = 0


class DirectReader:
    """Answers each question once.

    Args:
        writer: The language model.
        corpus: Where the texts of the passages come from.
        chat: Tell the model in turns, by its chat template.
    """

    def __init__(self, writer: TextWriter, corpus: Corpus, chat: bool = False):
        self.writer = writer
        self.corpus = corpus
        self.chat = chat

    def answer(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        k: int,
        decided: Callable[[int], object] | None = None,
    ) -> list[Reading]:
        """Answer queries from the first k passages of each ranking.

        Where there is none the model is asked as without retrieval, and that is logged. Where the model has
        too few positions, passages are left out from the end of the list.

        Args:
            queries: The queries.
            rankings: What was retrieved for each; empty lists for no retrieval.
            k: Most passages that are read; 0 reads none.
            decided: Called with the number of queries answered since the last call.

        Raises:
            ConfigError: A question alone is too long for the model, or the chat template refuses the prompt.
            DataError: A passage is not in the corpus.
        """
        ids = [[hit.id for hit in ranking[:k]] for ranking in rankings]
        texts = find_passages(self.corpus, (i for some in ids for i in some))
        prompts, read = [], []
        for query, some in zip(queries, ids, strict=True):
            prompt, kept = self._fitted(query, [texts[i] for i in some])
            prompts.append(prompt)
            read.append(tuple(some[:kept]))
        _tell(ids, read, k)
        written = self.writer.write(prompts, decided)
        return [
            Reading(one.text, one.ended, kept, tuple(ranking), cut=len(some) - len(kept))
            for one, kept, ranking, some in zip(written, read, rankings, ids, strict=True)
        ]

    def _fitted(self, query: Query, passages: list[Passage]) -> tuple[list[int], int]:
        """The prompt with as many passages as the model has room for, and their number."""
        for kept in range(len(passages), -1, -1):
            task = OPEN_TASK if kept else CLOSED_TASK
            asked = Asked(asked_directly(query.text, passages[:kept]), begin=ANSWER)
            examples = direct_examples(bool(kept))
            prompt = few_shot(self.writer.tokenizer, task, examples, [asked], self.chat)[0]
            if fits(prompt, self.writer):
                return prompt, kept
        raise too_long(query, self.writer)


def fits(prompt: Sequence[int], writer: TextWriter) -> bool:
    """Whether the model has room for a prompt."""
    return writer.room is None or len(prompt) <= writer.room


def too_long(query: Query, writer: TextWriter) -> ConfigError:
    """What is said of a question that leaves no room."""
    return ConfigError(
        f"the query {query.id!r} with the prompt takes more than the {writer.room} tokens that the model has "
        f"room for beside {writer.max_new_tokens} new ones: lower --max_new_tokens, or take another model."
    )


def _tell(ids: Sequence[Sequence[str]], read: Sequence[Sequence[str]], k: int) -> None:
    cut = sum(map(len, ids)) - sum(map(len, read))
    if cut:
        log.warning("%d passages were left out, for the model has no room for them.", cut)
    without = sum(not some for some in read)
    if k and without:
        log.warning("%d of %d queries are read without evidence: there is none.", without, len(read))
