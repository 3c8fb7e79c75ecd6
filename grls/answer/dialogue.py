"""Few-shot prompts: a task, solved examples, and a question, as plain text or in a chat model's turns."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from jinja2 import TemplateError

from grls.data.codec import foreign_ids
from grls.data.spelling import encoded_texts, turn_markers
from grls.errors import ConfigError
from grls.io.locks import exclusive

Turns = Sequence[tuple[str, str]]
"""Pairs of question and answer, in order."""


class Dialogue(NamedTuple):
    """What the model must answer now, the turns before, and the beginning of its answer."""

    text: str
    past: tuple[tuple[str, str], ...] = ()
    begin: str = ""


def few_shot(
    tokenizer: Any, task: str, examples: Sequence[Turns], dialogues: Sequence[Dialogue], chat: bool
) -> list[list[int]]:
    """Token ids of the whole prompt of each dialogue.

    A question stays text, even if it spells a special token: nobody can forge a turn. With ``chat`` the
    tokenizer's template is used; else turns are lines, and a blank line ends an example.
    """
    if not chat:
        solved = "".join(
            "".join(f"{question}\n{reply}\n" for question, reply in turns) + "\n" for turns in examples
        )
        instruction = f"{task}\n\n" if task else ""
        texts = []
        for dialogue in dialogues:
            past = "".join(f"{question}\n{reply}\n" for question, reply in dialogue.past)
            texts.append(f"{instruction}{solved}{past}{dialogue.text}\n{dialogue.begin}")
        return foreign_ids(tokenizer, texts, wrapped=True)
    head = [{"role": "system", "content": task}] if task else []
    head += _messages([pair for turns in examples for pair in turns])
    return [
        in_turns(tokenizer, [*head, *_messages(past), {"role": "user", "content": text}], begin)
        for text, past, begin in dialogues
    ]


def _messages(turns: Turns) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for pair in turns for role, text in zip(roles, pair, strict=True)]


def in_turns(tokenizer: Any, turns: Sequence[dict[str, str]], begin: str = "") -> list[int]:
    """Token ids of a conversation, up to where the model writes; ``begin`` begins its turn.

    Special tokens come from the template alone: the content of a turn stays text, however it is spelled.
    Where a turn spells one, a sign that occurs nowhere else replaces it. The template then writes the turns
    (it may trim them, write them as JSON, or take a part), and each sign is read as the text that it
    replaced.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("this model has no chat template: leave chat out, or take a chat model.")
    # Token id -> spelling of each special token, and of each turn marker that is not special.
    special = {n: str(token) for n, token in tokenizer.added_tokens_decoder.items() if token.special}
    special |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    special |= turn_markers(tokenizer)
    written = "\n".join([*(turn["content"] for turn in turns), begin])
    everything = f"{written}{tokenizer.chat_template}"
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in everything)
    signs = {token: next(free) for token in special.values() if token in written}
    signed = [{**turn, "content": _signed(turn["content"], signs)} for turn in turns]
    text = _rendered(tokenizer, signed) + _signed(begin, signs)
    numbers = {token: number for number, token in special.items()}
    # The special tokens that the template writes around plain words; it may leave out empty turns.
    words = [{**turn, "content": f"word{n}"} for n, turn in enumerate(turns)]
    expected = iter(re.findall(_any_of(numbers), _rendered(tokenizer, words)))
    for token in re.findall(_any_of(numbers), text):
        if token not in expected:  # the iterator continues behind the last match
            raise ConfigError(
                f"the chat template of {tokenizer.name_or_path} makes a special token ({token}) of a turn's "
                "content: leave chat out, or let the template write each turn's content as it is."
            )
    if not signs:
        with exclusive(tokenizer):
            encoded = tokenizer(text, add_special_tokens=False, split_special_tokens=False, verbose=False)
        return list(encoded["input_ids"])
    meant = {sign: token for token, sign in signs.items()}
    ids: list[int] = []
    for n, part in enumerate(re.split(f"({_any_of(numbers)})", text)):
        if n % 2:
            ids.append(numbers[part])
            continue
        # Plain text without special tokens; ``</s>`` may be an ordinary Unigram piece.
        plain = "".join(meant.get(character, character) for character in part)
        tokens = encoded_texts(tokenizer, [plain])["input_ids"][0]
        ids += [t for t in tokens if t == tokenizer.unk_token_id or t not in special]
    return ids


def _rendered(tokenizer: Any, turns: Sequence[dict[str, str]]) -> str:
    try:
        return str(tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True))
    except TemplateError as error:
        raise ConfigError(
            f"the model's chat template refuses the prompt ({error}): leave chat out."
        ) from None


def _signed(text: str, signs: dict[str, str]) -> str:
    """A text with a sign for each special token that it spells; of two that begin together the longer one."""
    if not signs:
        return text
    return re.sub(_any_of(signs), lambda match: signs[match[0]], text)


def _any_of(texts: Collection[str]) -> str:
    return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))
