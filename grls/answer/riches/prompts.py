"""The prompt before a question, and how an answer is read.

The examples are invented; their quotes stand in no corpus, and a model that copies them cannot close them.
A fine-tuned model needs neither task nor examples: its prompt is the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.prompts import ANSWER
from grls.answer.riches.options import PromptOptions
from grls.errors import one_of

_TASK = (
    "Answer the question. First write what to look for, then quote evidence between {opening} and {closing}, "
    "as often as you need, then write the answer in a few words."
)


class SolvedQuestion(NamedTuple):
    """A question, its steps (pairs of words to look for and their evidence), and its answer."""

    question: str
    steps: tuple[tuple[str, str], ...]
    answer: str


_SINGLE = (
    SolvedQuestion(
        "which river does the old stone bridge of Talmere cross",
        (("the bridge of Talmere", "The old stone bridge of Talmere spans the river Orrin."),),
        "the Orrin",
    ),
    SolvedQuestion(
        "who painted the ceiling of the Verrin opera house",
        (
            (
                "the ceiling of the Verrin opera house",
                "The ceiling of the Verrin opera house was painted in 1871 by Ada Lomax.",
            ),
        ),
        "Ada Lomax",
    ),
    SolvedQuestion(
        "how many islands belong to the Sorley group",
        (
            (
                "the islands of the Sorley group",
                "The Sorley group has fourteen islands, two of them inhabited.",
            ),
        ),
        "fourteen",
    ),
)
_MULTI = (
    SolvedQuestion(
        "could a fully grown brindle crane rest on the roof of a Pellworm hut",
        (
            ("the weight of a brindle crane", "A fully grown brindle crane weighs about six kilograms."),
            ("what the roof of a Pellworm hut bears", "The roof of a Pellworm hut bears fifty kilograms."),
        ),
        "yes",
    ),
    SolvedQuestion(
        "was the founder of Harrow Mills alive when the telegraph reached Lund Bay",
        (
            ("the founder of Harrow Mills", "Harrow Mills was founded by Josias Crane, who died in 1849."),
            ("the telegraph in Lund Bay", "The telegraph reached Lund Bay in 1866."),
        ),
        "no",
    ),
)
_EXAMPLES: dict[str, tuple[SolvedQuestion, ...]] = {"single": _SINGLE, "multi": _MULTI, "none": ()}


@dataclass(frozen=True)
class Prompt(PromptOptions):
    """Writes the prompt before an answer."""

    def solution(self, example: SolvedQuestion) -> str:
        """The solved answer of an example, with its quotes."""
        opening, closing = self.markers
        lines = [
            (f"{sought}: " if self.keywords else "") + f"{opening} {quote} {closing}"
            for sought, quote in example.steps
        ]
        return "\n".join([*lines, f"{ANSWER} {example.answer}"])

    def inputs(self, tokenizer: Any, questions: Sequence[str]) -> list[list[int]]:
        """Token ids of the whole prompt with each question.

        Raises:
            ConfigError: ``chat`` is set and the tokenizer has no chat template, or its template refuses the
                prompt; or the kind is unknown.
        """
        one_of(_EXAMPLES, "prompt.", kind=self.kind)
        task = _TASK.format(opening=self.markers[0], closing=self.markers[1])
        examples = _EXAMPLES[self.kind]
        solved = [((f"question: {e.question}", self.solution(e)),) for e in examples]
        dialogues = [Dialogue(f"question: {question}") for question in questions]
        return few_shot(tokenizer, task if examples else "", solved, dialogues, self.chat)


def common(rows: Sequence[Sequence[int]]) -> int:
    """Length of the prefix that all rows share, at most one less than the shortest row."""
    shortest = min(len(row) for row in rows)
    same: Iterator[int] = (n for n in range(shortest - 1) if any(row[n] != rows[0][n] for row in rows))
    return next(same, shortest - 1)


def open_ended(tokenizer: Any, inputs: Sequence[list[int]]) -> list[list[int]]:
    """Inputs without the end token that some tokenizers add: a causal model would write nothing behind it."""
    end = tokenizer.eos_token_id
    return [tokens[:-1] if tokens[-1] == end else tokens for tokens in inputs]


def split_answer(text: str) -> tuple[str, str, str] | None:
    """The text before the last ``answer:``, the rest of its line, and the text behind that line.

    None if there is no ``answer:``.
    """
    start = text.lower().rfind(ANSWER)
    if start < 0:
        return None
    answer, _, rest = text[start + len(ANSWER) :].lstrip(" ").partition("\n")
    return text[:start].strip(), answer.strip(), rest.strip()
