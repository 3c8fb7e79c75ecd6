"""Padded encoder inputs of texts that come from users or a corpus: none of them spells a special token.

A tokenizer that splits the special tokens which a text spells may still write some: in a Unigram vocabulary
``</s>`` and ``<pad>`` are pieces like others. Such texts are rare, so a batch is encoded as it is, and its
texts are looked at only where it holds more special tokens than the tokenizer puts around them. The module
does not know what is encoded; :func:`grls.data.codec.foreign_ids` is the same for rows without padding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from grls.data.codec import special_ids


def padded(tokenizer: Any, *texts: Sequence[str], **options: Any) -> Any:
    """Texts, or pairs of them, as one batch of tensors.

    Args:
        tokenizer: The model's.
        texts: The texts; or the first and the second of each pair.
        options: Further ones of the tokenizer's call (``truncation``, ``max_length``).

    Returns:
        What the tokenizer gives, as tensors of B rows and the longest one's length.
    """
    ours = special_tokens(tokenizer, tokenizer(*(["a"] for _ in texts), return_tensors="pt"))
    found = _padded(tokenizer, texts, options)
    if special_tokens(tokenizer, found) > len(found["input_ids"]) * ours:
        found = _padded(tokenizer, [without_controls(tokenizer, some) for some in texts], options)
    return found


def _padded(tokenizer: Any, texts: Sequence[Sequence[str]], options: dict[str, Any]) -> Any:
    return tokenizer(
        *(list(some) for some in texts),
        padding=True,
        return_tensors="pt",
        split_special_tokens=True,
        **options,
    )


def special_tokens(tokenizer: Any, features: dict[str, Tensor | Any]) -> int:
    """How many special tokens a batch holds, its padding left out.

    Args:
        tokenizer: The model's.
        features: ``input_ids``, and ``attention_mask`` where the batch is padded.
    """
    ids, mask = features["input_ids"], features.get("attention_mask")
    filled = features.get("query_expansion_positions")  # special tokens that fill a query up to a length
    if mask is not None and filled is not None:
        mask = mask.bool() & ~filled.bool()
    barred = torch.isin(ids, torch.tensor(sorted(special_ids(tokenizer)), dtype=ids.dtype))
    return int((barred if mask is None else barred & mask.bool()).sum())


def spells_special(tokenizer: Any, texts: Sequence[str]) -> bool:
    """Whether the tokenizer reads a special token in one of the texts."""
    barred = special_ids(tokenizer)
    rows = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=False)["input_ids"]
    return any(not barred.isdisjoint(row) for row in rows)


def without_spelled(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """The texts, without the spelling of any special token; for a tokenizer that must not split them."""
    barred = special_ids(tokenizer)
    spelled = sorted((str(tokenizer.convert_ids_to_tokens(one)).strip() for one in barred), key=len)[::-1]
    return [_without(str(text), spelled) for text in texts]


def _without(text: str, spelled: Sequence[str]) -> str:
    """A text without these; what is left is looked at again, since it may spell another one."""
    before = None
    while before != text:
        before = text
        for one in spelled:
            text = text.replace(one, "")
    return text


def without_controls(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """The texts, without the characters that the tokenizer reads as a special token however they stand there.

    A text without any is left as it is.
    """
    barred = special_ids(tokenizer)
    encoded = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False)
    return [
        text if barred.isdisjoint(row) else _cut(tokenizer, text, barred)
        for text, row in zip(texts, encoded["input_ids"], strict=True)
    ]


def _cut(tokenizer: Any, text: str, barred: Collection[int]) -> str:
    """A text without its special tokens; what is left is looked at again, since it may spell another one."""
    while places := _places(tokenizer, text, barred):
        for first, last in reversed(places):
            text = text[:first] + text[max(last, first + 1) :]
    return text


def _places(tokenizer: Any, text: str, barred: Collection[int]) -> list[tuple[int, int]]:
    """Where a text's special tokens stand, in characters and in their order."""
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    if not tokenizer.is_fast:  # such tell no places: by their spelling
        found = [token for token in tokenizer(text, **options)["input_ids"] if token in barred]
        spelled = tokenizer.convert_ids_to_tokens(found[:1])
        return [(text.find(some), text.find(some) + len(some)) for some in spelled if some in text]
    encoded = tokenizer(text, return_offsets_mapping=True, **options)
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    return list(dict.fromkeys(place for token, place in pairs if token in barred))
