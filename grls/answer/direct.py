"""Answers in one go: from the passages retrieved for the question, or without passages (closed book).

These are the baselines of RICHES (arXiv 2407.00361) that retrieve first, or never. The module does not know
the retriever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.prompts import ANSWER, CLOSED_TASK, OPEN_TASK, asked_directly, direct_examples
from grls.answer.writer import TextWriter, too_long
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.io.progress import counted
from grls.runs.results import find_passages

log = logging.getLogger(__name__)


class FollowUpStep(NamedTuple):
    """A follow-up question that the model wrote, and the ids of the passages that were shown for it."""

    question: str
    passages: tuple[str, ...]


class WrittenAnswer(NamedTuple):
    """The answer that a reader wrote for a query.

    Attributes:
        answer: The answer; empty if none was written.
        ended: False if the length limit cut the answer.
        read: Ids of the passages that the model read, in order.
        ranking: The retrieved passages, best first.
        steps: The follow-up questions, in order; empty if the question itself was the query.
        cut: Number of passages left out because the model has no room for them.
        failed: Why nothing was written for the query; empty if something was.
    """

    answer: str
    ended: bool
    read: tuple[str, ...]
    ranking: tuple[Hit, ...]
    steps: tuple[FollowUpStep, ...] = ()
    cut: int = 0
    failed: str = ""


class FindsPassages(Protocol):
    """A retriever, or a finished run."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[list[Hit]]:
        """The first k passages of each query."""
        ...


class DirectReader:
    """Answers each question once.

    Args:
        chat: Write the prompt with the model's chat template.
    """

    def __init__(self, writer: TextWriter, corpus: Corpus, chat: bool = False):
        self.writer = writer
        self.corpus = corpus
        self.chat = chat

    def retrieve_and_answer(
        self,
        queries: Sequence[Query],
        source: FindsPassages | None,
        k: int,
        depth: int,
        decided: Callable[[int], object] | None = None,
    ) -> list[WrittenAnswer]:
        """Answer queries (:meth:`answer`) from the first k passages that a retriever or finished run has.

        ``depth`` is the length of the rankings, if larger than k.
        """
        if source is None:
            return self.answer(queries, [[] for _ in queries], 0, decided)
        return self.answer(queries, source.retrieve(queries, max(k, depth)), k, decided)

    def answer(
        self,
        queries: Sequence[Query],
        rankings: Sequence[Sequence[Hit]],
        k: int,
        decided: Callable[[int], object] | None = None,
    ) -> list[WrittenAnswer]:
        """Answer queries from the first k passages of each ranking.

        If nothing was retrieved, the model is asked without passages, and a warning says so. If the model has
        too few positions, passages are left out from the end of the list. A question that is too long even
        without passages has no answer; an error is logged. ``decided`` is called with the number of queries
        answered since the last call.

        Raises:
            ConfigError: The model has no room for any question, or the chat template refuses the prompt.
            DataError: A passage is not in the corpus.
        """
        ids = [[hit.id for hit in ranking[:k]] for ranking in rankings]
        texts = find_passages(self.corpus, (i for first in ids for i in first))
        prompts, read = [], []
        for query, first in zip(queries, ids, strict=True):
            for count in range(len(first), -1, -1):
                prompt = self._prompt(query, [texts[i] for i in first[:count]])
                if fits(prompt, self.writer):
                    break
            prompts.append(prompt)
            read.append(tuple(first[:count]))
        cut = sum(map(len, ids)) - sum(map(len, read))
        if cut:
            log.warning("left out, for the model has no room: %s.", counted(cut, "passage"))
        without = sum(not passages for passages in read)
        if k and without:
            log.warning(
                "answered without passages, for nothing was retrieved: %d of %s.",
                without,
                counted(len(read), "query"),
            )
        failed = unfit(queries, prompts, self.writer, lambda: self._prompt(Query("", ""), []), decided)
        fit = [prompt for index, prompt in enumerate(prompts) if index not in failed]
        written = iter(self.writer.write(fit, decided))
        answers = []
        for index, ranking in enumerate(rankings):
            if index in failed:
                answers.append(WrittenAnswer("", False, (), tuple(ranking), failed=failed[index]))
                continue
            text, _, ended, _ = next(written)
            left_out = len(ids[index]) - len(read[index])
            answers.append(WrittenAnswer(text, ended, read[index], tuple(ranking), cut=left_out))
        return answers

    def _prompt(self, query: Query, passages: list[Passage]) -> list[int]:
        task = OPEN_TASK if passages else CLOSED_TASK
        dialogue = Dialogue(asked_directly(query.text, passages), begin=ANSWER)
        examples = direct_examples(bool(passages))
        return few_shot(self.writer.tokenizer, task, examples, [dialogue], self.chat)[0]


def fits(prompt: Sequence[int], writer: TextWriter) -> bool:
    """Whether the model has room for a prompt."""
    return writer.room is None or len(prompt) <= writer.room


def unfit(
    queries: Sequence[Query],
    prompts: Sequence[Sequence[int]],
    writer: TextWriter,
    least: Callable[[], Sequence[int]],
    decided: Callable[[int], object] | None,
) -> dict[int, str]:
    """Index of each query whose prompt is too long -> the reason (:func:`grls.answer.writer.too_long`)."""
    names = [f"the query {query.id!r}" for query in queries]
    return too_long(names, prompts, writer.room, writer.max_new_tokens, least, decided)
