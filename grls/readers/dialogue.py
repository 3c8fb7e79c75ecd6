"""Few-shot prompts: a task, solved examples, and what is asked, as plain text or in a chat model's turns.

The module does not know what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from jinja2 import TemplateError

from grls.errors import ConfigError
from grls.spelling import splitting, turn_markers
from grls.text import foreign_ids

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
        return foreign_ids(tokenizer, texts, wrapped=True)
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
    return in_turns(
        tokenizer, [*head, *_messages(one.past), {"role": "user", "content": one.text}], one.begin
    )


def in_turns(tokenizer: Any, turns: Sequence[dict[str, str]], begin: str = "") -> list[int]:
    """Token ids of a conversation, up to where the model writes.

    Special tokens come from the template alone: what the turns say is text, however it is spelled. Where it
    spells none, the ids are those of the rendered conversation.

    Args:
        tokenizer: That of a chat model.
        turns: ``role`` and ``content`` of each turn.
        begin: What the model's own turn begins with.

    Raises:
        ConfigError: The tokenizer has no chat template, or one that refuses the turns.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("this model has no chat template: leave out --chat, or take a chat model.")
    contents = [turn["content"] for turn in turns]
    mark = _mark([*contents, begin])
    slots = [{**turn, "content": f"{_EDGE}{mark}{n}x{_EDGE}"} for n, turn in enumerate(turns)]
    frame = _render(tokenizer, slots)  # the template's own text, with a slot for what each turn says
    ids = _encode(tokenizer, _render(tokenizer, turns) + begin)
    special = _special(tokenizer)
    wanted = [token for token in _encode(tokenizer, frame) if token in special]
    if [token for token in ids if token in special] == wanted:
        return ids
    return _framed(tokenizer, frame, mark, [*contents, begin], special)


_EDGE = "\u2003"
"""White space around a slot: a template that trims what a turn says takes it away."""


def _mark(texts: Sequence[str]) -> str:
    """A word that no text holds."""
    number = 0
    while any(f"slot{number}n" in text for text in texts):
        number += 1
    return f"slot{number}n"


def _render(tokenizer: Any, turns: Sequence[dict[str, str]]) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        raise ConfigError(
            f"the model's chat template refuses the prompt ({error}): leave out --chat."
        ) from None


def _encode(tokenizer: Any, text: str, split: bool = False) -> list[int]:
    used = splitting(tokenizer) if split else tokenizer
    found = used(text, add_special_tokens=False, split_special_tokens=split, verbose=False)
    return list(found["input_ids"])


def _special(tokenizer: Any) -> dict[int, str]:
    """Spelling of each special token, and of those that part turns without being special, by its id."""
    added = {n: str(token) for n, token in tokenizer.added_tokens_decoder.items() if token.special}
    named = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    return added | named | turn_markers(tokenizer)


def _text(tokenizer: Any, text: str, special: dict[int, str]) -> list[int]:
    """Token ids of plain text; ``</s>`` may be an ordinary piece of a Unigram vocabulary: left out."""
    unknown = tokenizer.unk_token_id
    return [t for t in _encode(tokenizer, text, split=True) if t == unknown or t not in special]


def _framed(
    tokenizer: Any, frame: str, mark: str, contents: Sequence[str], special: dict[int, str]
) -> list[int]:
    """Special tokens of the frame by their ids; every stretch of text between them encoded as text."""
    numbers = {text: number for number, text in special.items()}
    spelled = "|".join(re.escape(text) for text in sorted(numbers, key=len, reverse=True))
    slot = re.compile(f"({_EDGE}?){mark}([0-9]+)x({_EDGE}?)|({spelled})")
    ids: list[int] = []
    text, place = "", 0
    for found in slot.finditer(frame):
        text += frame[place : found.start()]
        place = found.end()
        if found[4] is None:
            content = contents[int(found[2])]
            content = content if found[1] else content.lstrip()
            text += content if found[3] else content.rstrip()
        else:
            ids += [*_text(tokenizer, text, special), numbers[found[4]]]
            text = ""
    text += frame[place:] + contents[-1]
    return [*ids, *_text(tokenizer, text, special)]
