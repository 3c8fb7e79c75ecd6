"""Few-shot prompts: a task, solved examples, and what is asked, as plain text or in a chat model's turns.

The module does not know what is asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import TemplateError

from grls.data.codec import foreign_ids
from grls.data.spelling import splitting, turn_markers
from grls.errors import ConfigError

Turns = Sequence[tuple[str, str]]
"""What was asked and what was answered, in order."""


class Dialogue(NamedTuple):
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
    tokenizer: Any, task: str, examples: Sequence[Turns], asked: Sequence[Dialogue], chat: bool
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


def _lines(one: Dialogue) -> str:
    past = "".join(f"{said}\n{reply}\n" for said, reply in one.past)
    return f"{past}{one.text}\n{one.begin}"


def _messages(turns: Turns) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for pair in turns for role, text in zip(roles, pair, strict=True)]


def _chat(tokenizer: Any, head: list[dict[str, str]], one: Dialogue) -> list[int]:
    return in_turns(
        tokenizer, [*head, *_messages(one.past), {"role": "user", "content": one.text}], one.begin
    )


def in_turns(tokenizer: Any, turns: Sequence[dict[str, str]], begin: str = "") -> list[int]:
    """Token ids of a conversation, up to where the model writes.

    Special tokens come from the template alone: what the turns say is text, however it is spelled. Where it
    spells none, the ids are those of the rendered conversation. Else a sign that stands nowhere else takes
    the place of each one that it spells, the template writes the turns, whatever it does with them (trims
    them, writes them as JSON, takes a part), and the signs are then read as the text they stand for.

    Args:
        tokenizer: That of a chat model.
        turns: ``role`` and ``content`` of each turn.
        begin: What the model's own turn begins with.

    Raises:
        ConfigError: The tokenizer has no chat template, or one that refuses the turns, or that makes special
            tokens of what they say.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("this model has no chat template: leave chat out, or take a chat model.")
    special = _special(tokenizer)
    whole = _render(tokenizer, turns) + begin
    ids = _encode(tokenizer, whole)
    wanted = _own_tokens(tokenizer, turns, special)
    if [token for token in ids if token in special] == wanted:
        return ids
    signs = _signs(special, [*(turn["content"] for turn in turns), begin, tokenizer.chat_template])
    signed = [{**turn, "content": _signed(turn["content"], signs)} for turn in turns]
    text = _render(tokenizer, signed) + _signed(begin, signs)
    found = _read(tokenizer, text, special, signs, wanted)
    same = [token for token in ids if token in special] == [token for token in found if token in special]
    return ids if same and not signs else found  # a template may leave out what says nothing


def _own_tokens(tokenizer: Any, turns: Sequence[dict[str, str]], special: dict[int, str]) -> list[int]:
    """The special tokens that the template writes around whatever the turns say.

    Raises:
        ConfigError: It reads so much into the turns that it refuses plain words.
    """
    words = [{**turn, "content": f"word{n}"} for n, turn in enumerate(turns)]
    try:
        frame = _rendered(tokenizer, words)
    except TemplateError as error:
        raise ConfigError(
            f"the chat template {_place(tokenizer)} reads into what a turn says and refuses plain words "
            f"({error}), so special tokens that a text spells cannot be told from its own: leave chat out, "
            "or let the template write each turn's content as it is."
        ) from None
    return [token for token in _encode(tokenizer, frame) if token in special]


def _render(tokenizer: Any, turns: Sequence[dict[str, str]]) -> str:
    try:
        return _rendered(tokenizer, turns)
    except TemplateError as error:
        raise ConfigError(
            f"the model's chat template refuses the prompt ({error}): leave chat out."
        ) from None


def _rendered(tokenizer: Any, turns: Sequence[dict[str, str]]) -> str:
    return str(tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True))


def _place(tokenizer: Any) -> str:
    """Where a tokenizer's chat template comes from."""
    folder = Path(str(tokenizer.name_or_path))
    file = folder / "chat_template.jinja"
    return str(file if file.is_file() else folder / "tokenizer_config.json")


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


def _signs(special: dict[int, str], texts: Sequence[str]) -> dict[str, str]:
    """For each special token that a text spells, a private character that none of the texts holds."""
    everything = "\n".join(map(str, texts))
    free = (chr(code) for code in range(0xE000, 0xF900) if chr(code) not in everything)
    return {spelled: next(free) for spelled in special.values() if spelled in everything}


def _signed(text: str, signs: dict[str, str]) -> str:
    """A text with a sign for each special token that it spells; of two at a place the longer one."""
    if not signs:
        return text
    return re.sub(_any_of(signs), lambda found: signs[found[0]], text)


def _any_of(texts: Collection[str]) -> str:
    return "|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True))


def _read(
    tokenizer: Any, text: str, special: dict[int, str], signs: dict[str, str], wanted: Sequence[int]
) -> list[int]:
    """Special tokens of a rendered conversation by their ids; every stretch of text between encoded as text.

    Raises:
        ConfigError: There are others than the template writes around the turns.
    """
    numbers = {spelled: number for number, spelled in special.items()}
    meant = {sign: spelled for spelled, sign in signs.items()}
    ids: list[int] = []
    expected = iter(wanted)
    for n, part in enumerate(re.split(f"({_any_of(numbers)})", text)):
        if n % 2 == 0:
            ids += _text(tokenizer, "".join(meant.get(character, character) for character in part), special)
            continue
        if numbers[part] not in expected:  # which goes on behind where the last one was
            raise ConfigError(
                f"the chat template {_place(tokenizer)} makes a special token ({part}) of what a turn says: "
                "leave chat out, or let the template write each turn's content as it is."
            )
        ids.append(numbers[part])
    return ids
