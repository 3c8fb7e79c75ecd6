"""Texts from users or a corpus as padded batches, without special tokens that a text spells.

A tokenizer that splits special tokens in a text may still produce some: a Unigram vocabulary may hold
``</s>`` as an ordinary piece. Such texts are rare. So a batch is encoded first, and its texts are checked
only if it holds more special tokens than the tokenizer adds. Rows without padding:
:func:`grls.data.codec.foreign_ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from grls.data.codec import special_ids
from grls.io.locks import exclusive


def padded(tokenizer: Any, *texts: Sequence[str], **options: Any) -> Any:
    """Texts, or pairs of texts (in two columns), as one batch of tensors, padded to the longest row."""
    options = {"padding": True, "return_tensors": "pt", "split_special_tokens": True, **options}
    return read_plain(
        tokenizer, lambda columns: tokenizer(*(list(column) for column in columns), **options), texts
    )


def read_plain(
    tokenizer: Any, read: Callable[[Sequence[Sequence[str]]], Any], columns: Sequence[Sequence[str]]
) -> Any:
    """What ``read`` makes of columns of texts; a text that spells special tokens is read without them."""
    with exclusive(tokenizer):
        features = read(columns)
        added = special_tokens(tokenizer, read([["a"] for _ in columns]))
        if special_tokens(tokenizer, features) > max(map(len, columns), default=0) * added:
            features = read([without_controls(tokenizer, column) for column in columns])
    return features


def special_tokens(tokenizer: Any, features: dict[str, Tensor | Any]) -> int:
    """The number of special tokens in a batch, without its padding."""
    if "input_ids" not in features:  # a reader of another form
        return 0
    ids, mask = features["input_ids"], features.get("attention_mask")
    filled = features.get("query_expansion_positions")  # special tokens that fill a query to a fixed length
    if mask is not None and filled is not None:
        mask = mask.bool() & ~filled.bool()
    barred = torch.isin(ids, torch.tensor(sorted(special_ids(tokenizer)), dtype=ids.dtype))
    return int((barred if mask is None else barred & mask.bool()).sum())


def spells_special(tokenizer: Any, texts: Sequence[str]) -> bool:
    barred = special_ids(tokenizer)
    rows = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=False)["input_ids"]
    return any(not barred.isdisjoint(row) for row in rows)


def without_spelled(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """The texts without the spellings of special tokens, for a tokenizer that must not split them."""
    barred = special_ids(tokenizer)
    spelled = sorted((str(tokenizer.convert_ids_to_tokens(token)).strip() for token in barred), key=len)[::-1]
    cleared = []
    for text in map(str, texts):
        before = None
        while before != text:  # the rest is checked again, since it may spell another special token
            before = text
            for token in spelled:
                text = text.replace(token, "")
        cleared.append(text)
    return cleared


def without_controls(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """The texts without the characters that the tokenizer reads as special tokens even if it splits them."""
    barred = special_ids(tokenizer)
    encoded = tokenizer(list(texts), add_special_tokens=False, split_special_tokens=True, verbose=False)
    cleared = []
    for text, row in zip(texts, encoded["input_ids"], strict=True):
        if not barred.isdisjoint(row):
            while spans := _special_spans(tokenizer, text, barred):
                for first, last in reversed(spans):
                    text = text[:first] + text[max(last, first + 1) :]
        cleared.append(text)
    return cleared


def _special_spans(tokenizer: Any, text: str, barred: Collection[int]) -> list[tuple[int, int]]:
    """The special tokens of a text in order, as (first character, end)."""
    options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    if not tokenizer.is_fast:  # a slow tokenizer returns no offsets: search for the spelling
        special = [token for token in tokenizer(text, **options)["input_ids"] if token in barred]
        spelled = tokenizer.convert_ids_to_tokens(special[:1])
        return [(text.find(token), text.find(token) + len(token)) for token in spelled if token in text]
    encoded = tokenizer(text, return_offsets_mapping=True, **options)
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    return list(dict.fromkeys(span for token, span in pairs if token in barred))
