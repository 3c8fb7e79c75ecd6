"""Options of the language model of a server."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from grls.answer.dsp.options import USUAL_PROGRAM, ProgramOptions
from grls.answer.options import USUAL_FOLLOW_UP, FollowUpOptions
from grls.answer.riches.options import USUAL_KEYS, USUAL_PROMPT, KeyOptions, PromptOptions
from grls.decode.interleave.options import USUAL_INTERLEAVE, InterleaveOptions
from grls.errors import ConfigError, Option, at_least
from grls.io.recipes import list_texts

AnswerMethod = Literal[
    "direct",
    "follow-up",
    "riches",
    "openqa",
    "multihop",
    "conversational",
    "retrieve-then-read",
    "self-ask",
]
PROGRAMS = ("openqa", "multihop", "conversational", "retrieve-then-read", "self-ask")
"""The methods that are programs of demonstrate-search-predict; they need the extra ``dsp``."""


@dataclass(frozen=True)
class AnswerOptions:
    """The language model that answers questions, and how it does.

    Args:
        model: Folder, hub name or .gguf file of a language model, causal or encoder-decoder; for programs
            also a served one, as in `grls answer dsp`; null: the server answers no questions.
        methods: The methods that requests may name; the first one is the default. direct, follow-up and
            riches, or a program: openqa, multihop, conversational, retrieve-then-read, self-ask.
        k: Passages that the model reads for a question, where a request does not say.
        tokens: Largest length limit (max_new_tokens) that a request may ask for.
        queue: Questions that may wait; a further one is refused (503).
        reader: How the model reads and writes (direct, follow-up).
        keys: The keys that may be quoted (riches).
        prompt: The prompt before an answer (riches).
        search: How free text and quotes are decoded (riches).
        dsp: Options of the programs.

    Raises:
        ConfigError: A number is not positive, a method is unknown or named twice, or the model cannot be used
            in this way.
    """

    model: str | None = None
    methods: tuple[AnswerMethod, ...] = ("direct",)
    k: int = 3
    tokens: int = 256
    queue: int = 32
    reader: FollowUpOptions = USUAL_FOLLOW_UP
    keys: KeyOptions = USUAL_KEYS
    prompt: PromptOptions = USUAL_PROMPT
    search: InterleaveOptions = USUAL_INTERLEAVE
    dsp: ProgramOptions = USUAL_PROGRAM

    def __post_init__(self) -> None:
        list_texts(self, "methods")
        at_least(1, "answer.", k=self.k, tokens=self.tokens, queue=self.queue)
        known = ", ".join(get_args(AnswerMethod))
        if not self.methods or not set(self.methods) <= set(get_args(AnswerMethod)):
            raise ConfigError(
                f"{Option('answer.methods')}: expected some of {known}, got {list(self.methods)}."
            )
        if len(set(self.methods)) < len(self.methods):
            raise ConfigError(f"{Option('answer.methods')} names a method twice: {', '.join(self.methods)}.")
        if self.dsp.demonstrations.how != "none":
            raise ConfigError(
                f"{Option('answer.dsp.demonstrations')} needs the questions of a data set: leave it out."
            )
        if self.model is None:
            changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
            if changed:
                raise ConfigError(
                    f"{Option(f'answer.{changed[0]}')} needs a language model: give {Option('answer.model')}."
                )
        elif self.is_remote and not set(self.methods) <= set(PROGRAMS):
            raise ConfigError(
                "a model that is served elsewhere answers by programs alone: name some of "
                f"{', '.join(PROGRAMS)} as {Option('answer.methods')}."
            )

    @property
    def is_remote(self) -> bool:
        """Whether the model runs outside of the server."""
        return self.model is not None and self.dsp.calls.is_remote(self.model)


NO_ANSWERS = AnswerOptions()
"""No language model."""
