"""Answers in one go: from what was retrieved for the question, or from nothing (closed book).

The baselines of RICHES (arXiv 2407.00361) that retrieve first, or never. The module does not know who
retrieved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.prompts import ANSWER, CLOSED_TASK, OPEN_TASK, asked_directly, direct_examples
from grls.answer.room import too_long
from grls.answer.writer import Continuation, TextWriter
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.runs.results import find_passages

log = logging.getLogger(__name__)


class FollowUpStep(NamedTuple):
    """A follow-up question.

    Attributes:
        question: What was asked.
        passages: Ids of the passages that were shown for it.
    """

    question: str
    passages: tuple[str, ...]


class WrittenAnswer(NamedTuple):
    """What a reader wrote for a query.

    Attributes:
        answer: The answer; empty where none was written.
        ended: False where the length limit ended it.
        read: Ids of the passages that it read, in order.
        ranking: What was retrieved, best first.
        steps: The follow-up questions, in order; none where the question itself was retrieved for.
        cut: Number of passages left out because the model has no room for them.
        failed: Why nothing was written for the query; empty where something was.
    """

    answer: str
    ended: bool
    read: tuple[str, ...]
    ranking: tuple[Hit, ...]
    steps: tuple[FollowUpStep, ...] = ()
    cut: int = 0
    failed: str = ""


class FindsPassages(Protocol):
    """A retriever, or a run that it has written."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """The first k passages of each query."""
        ...


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

    def retrieve_and_answer(
        self,
        queries: Sequence[Query],
        found: FindsPassages | None,
        k: int,
        depth: int,
        decided: Callable[[int], object] | None = None,
    ) -> list[WrittenAnswer]:
        """Answer queries from the first k passages that are found for each.

        Args:
            queries: The queries.
            found: What finds passages; None: nothing does.
            k: Most passages that are read.
            depth: Length of the rankings, where it is more.
            decided: As of :meth:`answer`.
        """
        rankings: list[list[Hit]] = [[] for _ in queries]
        if found is not None:
            rankings = found.retrieve(queries, max(k, depth))
        return self.answer(queries, rankings, 0 if found is None else k, decided)

    def answer(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        k: int,
        decided: Callable[[int], object] | None = None,
    ) -> list[WrittenAnswer]:
        """Answer queries from the first k passages of each ranking.

        Where there is none the model is asked as without retrieval, and that is logged. Where the model has
        too few positions, passages are left out from the end of the list; a question that is too long alone
        has no answer, and is told of.

        Args:
            queries: The queries.
            rankings: What was retrieved for each; empty lists for no retrieval.
            k: Most passages that are read; 0 reads none.
            decided: Called with the number of queries answered since the last call.

        Raises:
            ConfigError: The model has no room for any question, or the chat template refuses the prompt.
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
        failed = unfit(queries, prompts, self.writer, lambda: self._prompt(Query("", ""), []))
        if decided is not None and failed:
            decided(len(failed))
        fit = [prompt for place, prompt in enumerate(prompts) if place not in failed]
        written = iter(self.writer.write(fit, decided))
        return [
            WrittenAnswer("", False, (), tuple(ranking), failed=failed[place])
            if place in failed
            else _reading(next(written), read[place], ranking, len(ids[place]))
            for place, ranking in enumerate(rankings)
        ]

    def _fitted(self, query: Query, passages: list[Passage]) -> tuple[list[int], int]:
        """The prompt with as many passages as the model has room for, and their number."""
        for kept in range(len(passages), 0, -1):
            prompt = self._prompt(query, passages[:kept])
            if fits(prompt, self.writer):
                return prompt, kept
        return self._prompt(query, []), 0

    def _prompt(self, query: Query, passages: list[Passage]) -> list[int]:
        task = OPEN_TASK if passages else CLOSED_TASK
        asked = Dialogue(asked_directly(query.text, passages), begin=ANSWER)
        examples = direct_examples(bool(passages))
        return few_shot(self.writer.tokenizer, task, examples, [asked], self.chat)[0]


def fits(prompt: Sequence[int], writer: TextWriter) -> bool:
    """Whether the model has room for a prompt."""
    return writer.room is None or len(prompt) <= writer.room


def unfit(
    queries: Sequence[Query],
    prompts: Sequence[Sequence[int]],
    writer: TextWriter,
    least: Callable[[], Sequence[int]],
) -> dict[int, str]:
    """The queries whose prompts a writer has no room for; see :func:`grls.answer.room.too_long`."""
    names = [f"the query {query.id!r}" for query in queries]
    return too_long(names, prompts, writer.room, writer.max_new_tokens, least)


def _reading(
    written: Continuation, read: tuple[str, ...], ranking: Sequence[Hit], shown: int
) -> WrittenAnswer:
    return WrittenAnswer(written.text, written.ended, read, tuple(ranking), cut=shown - len(read))


def _tell(ids: Sequence[Sequence[str]], read: Sequence[Sequence[str]], k: int) -> None:
    cut = sum(map(len, ids)) - sum(map(len, read))
    if cut:
        log.warning("%d passages were left out, for the model has no room for them.", cut)
    without = sum(not some for some in read)
    if k and without:
        log.warning("%d of %d queries are read without evidence: there is none.", without, len(read))
