"""Few-shot prompts: a task, solved examples, and what is asked, as plain text or in a chat model's turns.

The module does not know what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jinja2 import TemplateError

from grls.errors import ConfigError

Turns = Sequence[tuple[str, str]]
"""What was asked and what was answered, in order."""


class Asked(NamedTuple):
    """A dialogue that the model shall go on with.

    Attributes:
        text: What it must answer now.
        past: The turns before.
        begin: What its answer begins with.
    """

    text: str
    past: tuple[tuple[str, str], ...] = ()
    begin: str = ""


def few_shot(
    tokenizer: Any, task: str, examples: Sequence[Turns], asked: Sequence[Asked], chat: bool
) -> list[list[int]]:
    """Token ids of the whole prompt of each dialogue.

    What is asked is text, even where it is spelled like a special token: nobody can forge a turn.

    Args:
        tokenizer: The model's.
        task: What to do; empty: nothing is said.
        examples: Solved dialogues.
        asked: The dialogues to go on with.
        chat: By the tokenizer's chat template; else turns are lines, and a blank line ends an example.

    Raises:
        ConfigError: ``chat`` is set and the tokenizer has no chat template, or one that refuses the prompt.
    """
    if not chat:
        solved = "".join("".join(f"{said}\n{reply}\n" for said, reply in turns) + "\n" for turns in examples)
        told = f"{task}\n\n" if task else ""
        texts = [f"{told}{solved}{_lines(one)}" for one in asked]
        encoded = tokenizer(texts, split_special_tokens=True, verbose=False) if texts else {"input_ids": []}
        return [list(row) for row in encoded["input_ids"]]
    head = [{"role": "system", "content": task}] if task else []
    head += _messages([pair for turns in examples for pair in turns])
    return [_chat(tokenizer, head, one) for one in asked]


def _lines(one: Asked) -> str:
    past = "".join(f"{said}\n{reply}\n" for said, reply in one.past)
    return f"{past}{one.text}\n{one.begin}"


def _messages(turns: Turns) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for pair in turns for role, text in zip(roles, pair, strict=True)]


def _chat(tokenizer: Any, head: list[dict[str, str]], one: Asked) -> list[int]:
    past = [(plain(tokenizer, said), plain(tokenizer, reply)) for said, reply in one.past]
    last = {"role": "user", "content": plain(tokenizer, one.text)}
    return in_turns(tokenizer, [*head, *_messages(past), last], one.begin)


def in_turns(tokenizer: Any, turns: Sequence[dict[str, str]], begin: str = "") -> list[int]:
    """Token ids of a conversation, up to where the model writes.

    Args:
        tokenizer: That of a chat model.
        turns: ``role`` and ``content`` of each turn.
        begin: What the model's own turn begins with.

    Raises:
        ConfigError: The tokenizer has no chat template, or one that refuses the turns.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("this model has no chat template: leave out --chat, or take a chat model.")
    try:
        text = tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise ConfigError(
            f"the model's chat template refuses the prompt ({error}): leave out --chat."
        ) from None
    return list(tokenizer(text + begin, add_special_tokens=False, verbose=False)["input_ids"])


def plain(tokenizer: Any, text: str) -> str:
    """A text without the spelling of special tokens."""
    for token in tokenizer.all_special_tokens:
        text = text.replace(token, "")
    return text
