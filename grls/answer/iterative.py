"""Answers by decomposition: the model asks follow-up questions, and passages are retrieved for each.

The iterative baseline of RICHES (arXiv 2407.00361): in every round the model writes a follow-up question or
the answer; the passages retrieved for a follow-up are appended to the prompt. The passages shown, in this
order, are the ranking. The module does not know the retriever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.prompts import ANSWER, FOLLOW_UP, ITERATIVE_TASK, evidence, iterative_examples
from grls.answer.retrievers import FindsPassages
from grls.answer.writer import Continuation, TextWriter, too_long
from grls.answer.written import Written, written_from
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.io.progress import counted
from grls.runs.results import find_passages

log = logging.getLogger(__name__)


@dataclass
class _State:
    """A question on its way to the answer."""

    query: Query
    turn: str
    past: tuple[tuple[str, str], ...] = ()
    steps: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    pending: str = ""
    forced: bool = False
    answer: str | None = None
    ended: bool = True
    failed: str = ""

    def take(self, written: Continuation) -> None:
        """Read the model's line: a follow-up question or the answer.

        The model is asked for the answer if its follow-up is empty or was asked before, or if its line is
        neither, which may be invented evidence.
        """
        text, follow = written.text, None
        if not self.forced and text[: len(FOLLOW_UP)].casefold() == FOLLOW_UP:
            follow = text[len(FOLLOW_UP) :].strip()
        start = text.casefold().rfind(ANSWER)
        if self.forced or (follow is None and start >= 0):  # a forced prompt may end with the label
            self.answer = (text if start < 0 else text[start + len(ANSWER) :]).strip()
            self.ended = written.ended
        elif not follow or follow.casefold() in (question.casefold() for question, _ in self.steps):
            self.forced = True
        else:
            self.pending = follow


@dataclass(eq=False)
class IterativeReader:
    """Answers with follow-up questions.

    Args:
        k: Passages shown for a follow-up. A passage shown before is skipped for the next best one.
        hops: Most follow-ups of a question; then the model is asked for the answer.
        chat: Write the prompt with the model's chat template.
    """

    writer: TextWriter
    retriever: FindsPassages
    corpus: Corpus
    k: int = 1
    hops: int = 4
    chat: bool = False

    def answer(
        self, queries: Sequence[Query], decided: Callable[[int], object] | None = None
    ) -> list[Written]:
        """Answer queries, all in step with each other.

        A question that is too long for the model has no answer. ``decided`` is called with the number of
        queries answered since the last call.
        """
        states = [_State(query, f"question: {query.text}") for query in queries]
        prompts = [self._prompt(state, forced=True) for state in states]
        nothing = _State(Query("", ""), "question: ")
        names = [f"the query {query.id!r}" for query in queries]
        room, new = self.writer.room, self.writer.max_new_tokens
        failed = too_long(names, prompts, room, new, lambda: self._prompt(nothing, forced=True), decided)
        for index, why in failed.items():
            states[index].answer, states[index].failed = "", why
        cut = self.writer.spent.cut
        while active := [state for state in states if state.answer is None]:
            written = self.writer.write([self._prompt(state, state.forced) for state in active])
            for state, continuation in zip(active, written, strict=True):
                state.take(continuation)
            if pending := [state for state in active if state.pending]:
                depth = self.k + max(len(state.seen) for state in pending)
                follow_ups = [Query(state.query.id, state.pending) for state in pending]
                rankings = self.retriever.retrieve(follow_ups, depth)
                fresh = [
                    [hit.id for hit in hits if hit.id not in state.seen][: self.k]
                    for state, hits in zip(pending, rankings, strict=True)
                ]
                texts = find_passages(self.corpus, (i for ids in fresh for i in ids))
                for state, ids in zip(pending, fresh, strict=True):
                    self._show(state, ids, [texts[i] for i in ids])
            if decided is not None:
                decided(sum(state.answer is not None for state in active))
        if cut := self.writer.spent.cut - cut:
            log.warning("left out, for the model has no room: %s.", counted(cut, "passage"))
        empty = sum(not passages for state in states for _, passages in state.steps)
        if empty:
            log.warning("nothing was found for %s.", counted(empty, "follow-up question"))
        without = sum(not state.seen and not state.failed for state in states)
        if without:
            log.warning("answered without evidence: %d of %s.", without, counted(len(states), "query"))
        texts = find_passages(self.corpus, (name for state in states for name in state.seen))
        return [self._written(state, texts) for state in states]

    def _written(self, state: _State, texts: Mapping[str, Passage]) -> Written:
        """The result; a score is minus the rank."""
        if state.failed:
            return Written("", False, failed=state.failed)
        ranking = [Hit(name, float(-rank)) for rank, name in enumerate(state.seen, 1)]
        return written_from(state.steps, texts, state.answer or "", state.ended, ranking)

    def _prompt(self, state: _State, forced: bool) -> list[int]:
        dialogue = Dialogue(state.turn, state.past, ANSWER if forced else "")
        return few_shot(self.writer.tokenizer, ITERATIVE_TASK, iterative_examples(), [dialogue], self.chat)[0]

    def _show(self, state: _State, ids: list[str], passages: list[Passage]) -> None:
        """Append passages until the model has no room, the best first.

        If there is room for none, the follow-up is taken back and the model is asked for the answer.
        """
        before, past, follow = state.turn, state.past, state.pending
        state.pending = ""
        state.past = (*past, (before, f"{FOLLOW_UP} {follow}"))
        for count in range(len(ids), 0 if ids else -1, -1):
            state.turn = evidence(passages[:count])
            if len(self._prompt(state, forced=True)) <= self.writer.room:
                state.steps.append((follow, tuple(ids[:count])))
                state.seen += ids[:count]
                self.writer.spent.cut += len(ids) - count
                state.forced = len(state.steps) >= self.hops
                return
        state.turn, state.past, state.forced = before, past, True
        self.writer.spent.cut += len(ids)
