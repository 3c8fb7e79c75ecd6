"""Options of the readers: how a language model is prompted, and how it writes."""

from __future__ import annotations

from grls.io.arguments import Count, options


@options("reader")
class ReaderOptions:
    """How a language model reads and writes.

    Args:
        chat: Write the prompt with the model's chat template.
        max_new_tokens: Length limit of an output, in tokens.
        batch_size: Questions answered together.
    """

    chat: bool = False
    max_new_tokens: Count = 32
    batch_size: Count = 8


@options("reader")
class DirectOptions(ReaderOptions):
    """How a language model answers in one go.

    Args:
        depth: Length of the ranking that is written; the model reads its first k passages.
    """

    depth: Count = 10


@options("reader")
class FollowUpOptions(ReaderOptions):
    """How a language model answers with follow-up questions.

    Args:
        questions: Largest number of follow-up questions; then the model is asked for the answer.
    """

    questions: Count = 4


USUAL_DIRECT = DirectOptions()
USUAL_FOLLOW_UP = FollowUpOptions()
