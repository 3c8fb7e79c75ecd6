"""Texts that spell a turn marker: a token that separates the turns of a chat.

A tokenizer can split special tokens that are spelled in a text. But some chat models mark turns with added
tokens that are not declared special (DeepSeek's ``<｜User｜>``, ``<|im_start|>`` of many fine-tuned models),
and the tokenizer never splits these. They are recognized by the chat template, which writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from grls.io.locks import exclusive

if TYPE_CHECKING:
    from tokenizers import AddedToken


class _Known(NamedTuple):
    """What is known of a tokenizer.

    Attributes:
        state: The number of its tokens, and its chat template.
        markers: See :func:`turn_markers`.
        splitting: A tokenizer whose option to split special tokens also splits turn markers, for token ids of
            texts alone: it has no chat template and no names for its special tokens. None: the tokenizer
            itself, which has no turn markers.
    """

    state: tuple[int, str]
    markers: dict[int, str]
    splitting: Any


_known: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()


def turn_markers(tokenizer: Any) -> dict[int, str]:
    """Token id -> spelling, of the added tokens that the chat template writes and that are not special.

    Words and white space are left out: as added tokens they stand for text.
    """
    return _of(tokenizer).markers


def encoded_texts(tokenizer: Any, texts: Sequence[str], **options: Any) -> Any:
    """The tokenizer's output for n plain texts (with further ``options``); threads may share the tokenizer.

    No special token is added. Special tokens and turn markers that a text spells are split.
    """
    changed = _of(tokenizer).splitting
    with exclusive(tokenizer):
        return (tokenizer if changed is None else changed)(
            list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False, **options
        )


def _of(tokenizer: Any) -> _Known:
    template = getattr(tokenizer, "chat_template", None)
    state = len(tokenizer), str(template or "")
    known = _known.get(tokenizer)
    if known is None or known.state != state:
        tokens: dict[int, AddedToken] = {}
        for number, token in tokenizer.added_tokens_decoder.items() if template else ():
            text = str(token)
            stands_for_text = text.isalnum() or not text.strip("\u2581 \t\r\n")
            if not token.special and text in state[1] and not stands_for_text:
                tokens[number] = token
        markers = {number: str(token) for number, token in tokens.items()}
        backend, splitting = getattr(tokenizer, "backend_tokenizer", None), None
        if tokens and backend is not None:  # a tokenizer without a backend splits all added tokens
            from tokenizers import Tokenizer
            from transformers import PreTrainedTokenizerFast

            changed = Tokenizer.from_str(backend.to_str())
            special = [copy(token) for token in tokens.values()]
            for token in special:
                token.special = True
            changed.add_special_tokens(special)
            splitting = PreTrainedTokenizerFast(tokenizer_object=changed)  # type: ignore[no-untyped-call]
        known = _known[tokenizer] = _Known(state, markers, splitting)
    return known
