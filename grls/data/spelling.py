"""Texts that spell a token which parts the turns of a chat.

A tokenizer can be told to split the special tokens that a text spells. Some chat models mark their turns by
tokens that are added to the vocabulary, but not declared special (DeepSeek's ``<｜User｜>``, ``<|im_start|>``
of many fine-tuned models): those it always reads as one. Which they are is told by the chat template that
writes them.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from tokenizers import AddedToken


class _Known(NamedTuple):
    state: tuple[int, str]
    markers: dict[int, str]
    splitting: Any


_known: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()


def turn_markers(tokenizer: Any) -> dict[int, str]:
    """The added tokens that the chat template writes and that are not special: their spelling by their ids.

    Words and white space are none: whoever adds them to a vocabulary means text.
    """
    return _of(tokenizer).markers


def splitting(tokenizer: Any) -> Any:
    """A tokenizer that, told to split special tokens, splits turn markers as well: the same one without any.

    It is for token ids of texts alone; it has neither template nor names for its special tokens.
    """
    found = _of(tokenizer).splitting
    return tokenizer if found is None else found


def _of(tokenizer: Any) -> _Known:
    template = getattr(tokenizer, "chat_template", None)
    state = len(tokenizer), str(template or "")
    known = _known.get(tokenizer)
    if known is None or known.state != state:
        found = _found(tokenizer, state[1])
        markers = {number: str(token) for number, token in found.items()}
        known = _known[tokenizer] = _Known(state, markers, _split(tokenizer, list(found.values())))
    return known


def _found(tokenizer: Any, template: str) -> dict[int, AddedToken]:
    if not template:
        return {}
    return {
        number: token
        for number, token in tokenizer.added_tokens_decoder.items()
        if not token.special and str(token) in template and not _is_text(str(token))
    }


def _is_text(token: str) -> bool:
    return not token.strip("\u2581 \t\r\n") or token.isalnum()


def _split(tokenizer: Any, markers: list[AddedToken]) -> Any:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not markers or backend is None:  # one without such a backend splits all added tokens
        return None
    own = Tokenizer.from_str(backend.to_str())
    special = [copy(token) for token in markers]
    for token in special:
        token.special = True
    own.add_special_tokens(special)
    return PreTrainedTokenizerFast(tokenizer_object=own)  # type: ignore[no-untyped-call]
