"""The prompts of the readers. The examples are invented: their passages stand in no corpus."""

from __future__ import annotations

from collections.abc import Sequence

from grls.answer.dialogue import Turns
from grls.data.types import Passage

ANSWER = "answer:"
FOLLOW_UP = "follow-up:"
NOTHING = "evidence: nothing was found"

CLOSED_TASK = "Answer the question in a few words."
OPEN_TASK = "Answer the question in a few words, from the passages."
ITERATIVE_TASK = (
    "Answer the question. Ask follow-up questions, one at a time, and evidence for each will be shown; as "
    "soon as it suffices, write the answer in a few words."
)

_EXAMPLES = (
    (
        "who built the lighthouse at Skarne Point",
        (
            Passage("", "The lighthouse at Skarne Point was built in 1853 by Edda Voss.", "Skarne Point"),
            Passage("", "Skarne is a fishing village on the north coast.", "Skarne"),
        ),
        "Edda Voss",
    ),
    (
        "when did the Tarrow valley railway close",
        (
            Passage("", "Tarrow has a station with two platforms.", "Tarrow"),
            Passage("", "The Tarrow valley railway carried slate until it closed in 1962.", "Tarrow valley"),
        ),
        "1962",
    ),
    (
        "what is the capital of the Ostrel islands",
        (
            Passage("", "Port Merrin is the capital of the Ostrel islands.", "Port Merrin"),
            Passage("", "The Ostrel islands have nine thousand inhabitants.", "Ostrel islands"),
        ),
        "Port Merrin",
    ),
)
_DECOMPOSED = (
    (
        "in which year was the architect of the Belmar library born",
        (
            ("who was the architect of the Belmar library", "Belmar library: It was designed by Ines Holt."),
            ("when was Ines Holt born", "Ines Holt: Ines Holt (born 1911) was an architect."),
        ),
        "1911",
    ),
    (
        "who built the lighthouse at Skarne Point",
        (
            (
                "who built the lighthouse at Skarne Point",
                "Skarne Point: The lighthouse at Skarne Point was built in 1853 by Edda Voss.",
            ),
        ),
        "Edda Voss",
    ),
    (
        "is the river Onder longer than the river Wesk",
        (
            ("how long is the river Onder", "Onder: The Onder is a river of 120 kilometres."),
            ("how long is the river Wesk", "Wesk: The Wesk flows 85 kilometres to the sea."),
        ),
        "yes",
    ),
)


def shown(passage: Passage) -> str:
    """A passage as the model reads it: on one line, with its title."""
    text = " ".join(passage.text.split())
    return f"{' '.join(passage.title.split())}: {text}" if passage.title.strip() else text


def asked_directly(question: str, passages: Sequence[Passage]) -> str:
    return "\n".join([*(f"passage: {shown(passage)}" for passage in passages), f"question: {question}"])


def evidence(passages: Sequence[Passage]) -> str:
    return "\n".join(f"evidence: {shown(passage)}" for passage in passages) or NOTHING


def direct_examples(passages: bool) -> list[Turns]:
    return [
        ((asked_directly(question, read if passages else ()), f"{ANSWER} {answer}"),)
        for question, read, answer in _EXAMPLES
    ]


def iterative_examples() -> list[Turns]:
    dialogues: list[Turns] = []
    for question, steps, answer in _DECOMPOSED:
        turns = [f"question: {question}", *(f"evidence: {text}" for _, text in steps)]
        replies = [*(f"{FOLLOW_UP} {follow}" for follow, _ in steps), f"{ANSWER} {answer}"]
        dialogues.append(tuple(zip(turns, replies, strict=True)))
    return dialogues
