"""Options of the readers: how a language model is prompted, and how it writes."""

from __future__ import annotations

from dataclasses import dataclass

from grls.errors import at_least
from grls.io.recipes import rare


@dataclass(frozen=True)
class ReaderOptions:
    """How a language model reads and writes.

    Args:
        chat: Write the prompt with the model's chat template.
        max_new_tokens: Length limit of an output, in tokens.
        batch_size: Questions answered together.

    Raises:
        ConfigError: A number is below 1.
    """

    chat: bool = rare(False)
    max_new_tokens: int = 32
    batch_size: int = rare(8)

    def __post_init__(self) -> None:
        at_least(1, "reader.", **{name: value for name, value in vars(self).items() if name != "chat"})


@dataclass(frozen=True)
class DirectOptions(ReaderOptions):
    """How a language model answers in one go.

    Args:
        depth: Length of the ranking that is written; the model reads its first k passages.
    """

    depth: int = 10


@dataclass(frozen=True)
class FollowUpOptions(ReaderOptions):
    """How a language model answers with follow-up questions.

    Args:
        questions: Largest number of follow-up questions; then the model is asked for the answer.
    """

    questions: int = 4


USUAL_DIRECT = DirectOptions()
USUAL_FOLLOW_UP = FollowUpOptions()
