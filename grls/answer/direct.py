"""Answers in one go: from the passages retrieved for the question, or without passages (closed book).

These are the baselines of RICHES (arXiv 2407.00361) that retrieve first, or never. The module does not know
the retriever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.prompts import ANSWER, CLOSED_TASK, OPEN_TASK, asked_directly, direct_examples
from grls.answer.retrievers import FindsPassages
from grls.answer.writer import TextWriter
from grls.answer.written import Written, written_from
from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.io.progress import counted
from grls.runs.results import find_passages

log = logging.getLogger(__name__)


@dataclass(eq=False)
class DirectReader:
    """Answers each question once.

    Args:
        source: Retrieves the passages; None: the model is asked without passages.
        k: Passages read for a question.
        depth: Length of the rankings, if larger than k.
        chat: Write the prompt with the model's chat template.
    """

    writer: TextWriter
    source: FindsPassages | None
    corpus: Corpus
    k: int = 3
    depth: int = 0
    chat: bool = False

    def answer(
        self, queries: Sequence[Query], decided: Callable[[int], object] | None = None
    ) -> list[Written]:
        """Answer queries.

        If nothing was retrieved, the model is asked without passages, and a warning says so. If the model has
        too few positions, passages are left out from the end of the list. A question that is too long even
        without passages has no answer; an error is logged. ``decided`` is called with the number of queries
        answered since the last call.
        """
        rankings: Sequence[Sequence[Hit]] = [()] * len(queries)
        if self.source is not None:
            rankings = self.source.retrieve(queries, max(self.k, self.depth))
        ids = [[hit.id for hit in ranking[: self.k]] for ranking in rankings]
        texts = find_passages(self.corpus, (i for first in ids for i in first))
        prompts, read = [], []
        for query, first in zip(queries, ids, strict=True):
            for count in range(len(first), -1, -1):
                prompt = self._prompt(query, [texts[i] for i in first[:count]])
                if len(prompt) <= self.writer.room:
                    break
            prompts.append(prompt)
            read.append(tuple(first[:count]))
        cut = sum(map(len, ids)) - sum(map(len, read))
        self.writer.spent.cut += cut
        if cut:
            log.warning("left out, for the model has no room: %s.", counted(cut, "passage"))
        without = sum(not passages for passages in read)
        if self.source is not None and self.k and without:
            log.warning(
                "answered without passages, for nothing was retrieved: %d of %s.",
                without,
                counted(len(read), "query"),
            )
        names = [f"the query {query.id!r}" for query in queries]
        written = self.writer.write_each(names, prompts, lambda: self._prompt(Query("", ""), []), decided)
        return [
            Written("", False, ranking=tuple(ranking), failed=result)
            if isinstance(result, str)
            else written_from([("", passages)], texts, result.text, result.ended, ranking)
            for passages, ranking, result in zip(read, rankings, written, strict=True)
        ]

    def _prompt(self, query: Query, passages: list[Passage]) -> list[int]:
        task = OPEN_TASK if passages else CLOSED_TASK
        dialogue = Dialogue(asked_directly(query.text, passages), begin=ANSWER)
        examples = direct_examples(bool(passages))
        return few_shot(self.writer.tokenizer, task, examples, [dialogue], self.chat)[0]
