"""Options of programs: rounds and queries, demonstrations, and calls of the language model."""

from __future__ import annotations

from typing import Literal

from grls.io.arguments import Count, NonNegativeInt, PositiveFloat, options

ProgramName = Literal["openqa", "multihop", "conversational", "vanilla", "retrieve-then-read", "self-ask"]
How = Literal["none", "labeled", "bootstrap", "nearest", "search"]
Keep = Literal["answer", "passage", "overlap"]
Summary = Literal["first", "likeliest"]
Template = Literal["lines", "chat"]

API = "api:"
"""Prefix of the name of a model that a provider serves."""
NEW_TOKENS: dict[Template, int] = {"lines": 64, "chat": 512}
"""Default length limit of an output, by template: DSPy's format writes several fields with their headers at
once, a plain line holds one field."""


@options("dsp.demonstrations")
class DemonstrationOptions:
    """Demonstrations of a program.

    Args:
        how: none; labeled: questions and answers; bootstrap: the steps of examples that the program answers
            correctly; nearest: the same, for each query from the examples most like it; search: the best of
            several bootstrapped sets on held-out examples.
        split: Split to take demonstrations from.
        count: Number of demonstrations.
        examples: Queries of that split to try: the first ones with an answer or evidence.
        keep: Which examples count as answered correctly. answer: the answer is an accepted one; passage: and
            a passage that was read has an accepted answer (the paper's test for open questions); overlap: the
            answer has an F1 of at least 0.75 with an accepted one, and a passage that was read has at least
            0.8 of the words of an accepted one (the paper's test for conversations). An example without
            accepted answers counts if all its evidence was retrieved.
        labeled: Most further examples that are shown as question and answer, without steps; they fill up what
            count and labeled make together (bootstrap, nearest and search).
    """

    how: How = "none"
    split: str = "train"
    count: Count = 3
    examples: Count = 50
    keep: Keep = "answer"
    labeled: NonNegativeInt = 0


@options("dsp.calls")
class CallOptions:
    """How a language model is called.

    Args:
        endpoint: Address of an OpenAI-compatible endpoint, such as vLLM's http://localhost:8000/v1. If it
            needs a key, put the key into VLLM_API_KEY.
        max_new_tokens: Length limit of an output, in tokens; null: 64, but 512 where the model is served: it
            writes DSPy's format, one in this process a line a field. The trace marks the outputs that were
            cut.
        threads: Queries answered at the same time.
        attempts: Most calls for one output, if the endpoint fails (DSPy waits longer each time) or the output
            cannot be read.
    """

    endpoint: str | None = None
    max_new_tokens: Count | None = None
    threads: Count = 8
    attempts: Count = 3

    def is_remote(self, model: str) -> bool:
        """Whether a model runs outside this process."""
        return self.endpoint is not None or model.startswith(API)

    def filled(self, model: str) -> tuple[Template, int]:
        """Template and length limit for a model."""
        template: Template = "chat" if self.is_remote(model) else "lines"
        return template, NEW_TOKENS[template] if self.max_new_tokens is None else self.max_new_tokens


@options("dsp")
class ProgramOptions:
    """Options of a program.

    Args:
        rounds: Most hops (multihop) or follow-up questions (self-ask).
        queries: Queries that the model writes for a retrieval (openqa: in addition to the question). Several
            queries are drawn at a temperature, and their rankings are fused.
        branches: Runs of the program at a temperature; the commonest answer wins.
        temperature: Temperature of several queries and of branches.
        summary: Which summary a hop keeps if several queries are drawn, each with one (multihop): the first,
            or the likeliest, whose tokens have the highest average log-probability, as in the paper. For that
            the language model has to give log-probabilities.
        passages: Most passages of all hops together that the answer is written from, the best of each hop in
            turn (multihop; the paper: 5); null: those of the last hop.
        fuse_question: Also retrieve for the question as it stands, and fuse that with what its rewrites find
            (conversational), as in the paper.
        own_replies: Replace the replies in the conversation before a question by the program's own answers to
            its earlier questions, as in the paper (conversational). The questions of a conversation are then
            answered in their order; an earlier question that is not asked keeps its reply of the data.
        demonstrations: Demonstrations before a question.
        calls: How the language model is called.
    """

    rounds: Count = 2
    queries: NonNegativeInt = 1
    branches: Count = 1
    temperature: PositiveFloat = 0.7
    summary: Summary = "first"
    passages: Count | None = None
    fuse_question: bool = False
    own_replies: bool = False
    demonstrations: DemonstrationOptions = DemonstrationOptions()
    calls: CallOptions = CallOptions()


USUAL_PROGRAM = ProgramOptions()
