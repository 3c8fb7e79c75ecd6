"""The prompt before a question, and how an answer is read.

The examples are invented; a model that copies their quotes cannot close them. A fine-tuned model needs
neither task nor examples: its prompt is the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.prompts import ANSWER
from grls.answer.riches.options import PromptOptions

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


def solution(prompt: PromptOptions, example: SolvedQuestion) -> str:
    opening, closing = prompt.markers
    lines = [
        (f"{sought}: " if prompt.keywords else "") + f"{opening} {quote} {closing}"
        for sought, quote in example.steps
    ]
    return "\n".join([*lines, f"{ANSWER} {example.answer}"])


def prompted(
    prompt: PromptOptions, tokenizer: Any, questions: Sequence[str], causal: bool
) -> list[list[int]]:
    """Token ids of the whole prompt with each question.

    An end token that the tokenizer adds is left out for a causal model: it would write nothing behind it.
    """
    task = _TASK.format(opening=prompt.markers[0], closing=prompt.markers[1])
    examples = _EXAMPLES[prompt.kind]
    solved = [((f"question: {e.question}", solution(prompt, e)),) for e in examples]
    dialogues = [Dialogue(f"question: {question}") for question in questions]
    rows = few_shot(tokenizer, task if examples else "", solved, dialogues, prompt.chat)
    end = tokenizer.eos_token_id
    return [row[:-1] if causal and row[-1] == end else row for row in rows]


def split_answer(text: str) -> tuple[str, str, str] | None:
    """The text before the last ``answer:``, the rest of its line, and the text behind that line."""
    start = text.lower().rfind(ANSWER)
    if start < 0:
        return None
    answer, _, rest = text[start + len(ANSWER) :].lstrip(" ").partition("\n")
    return text[:start].strip(), answer.strip(), rest.strip()
