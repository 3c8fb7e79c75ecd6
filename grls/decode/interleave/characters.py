"""Finds tokens that are parts of a character, and token sequences that are whole characters.

A tokenizer that writes bytes (byte-level BPE, byte fallback, ByT5) may split a character into several tokens,
or end a token within a character. Such a token alone has no text, so its bytes are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from transformers import ByT5Tokenizer

from grls.index.rows import Ints

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
"""Letter of a byte-level vocabulary -> the byte that it stands for."""


@lru_cache(maxsize=8)
def token_texts(tokenizer: Any) -> tuple[str, ...]:
    """The text of every token."""
    return tuple(tokenizer.batch_decode([[token] for token in range(len(tokenizer))]))


@lru_cache(maxsize=8)
def token_bytes(tokenizer: Any) -> tuple[bytes, ...]:
    """The bytes of every token; for a token that does not stand for bytes, its text in UTF-8."""
    names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    kinds, added = _decoders(tokenizer), tokenizer.get_added_vocab()
    known = ((None if name in added else _as_bytes(name or "", kinds)) for name in names)
    return tuple(
        text.encode(errors="replace") if octets is None else octets
        for octets, text in zip(known, token_texts(tokenizer), strict=True)
    )


def within(tokenizer: Any) -> Ints:
    """The tokens that begin within a character, ascending."""
    every = enumerate(token_bytes(tokenizer))
    inside = [token for token, octets in every if octets and octets[0] & 0xC0 == 0x80]
    return np.array(inside, dtype=np.int64)


def is_text(tokenizer: Any, tokens: Iterable[int]) -> bool:
    """Whether tokens are whole characters, and not only white space."""
    known = token_bytes(tokenizer)
    try:
        return bool(b"".join(known[token] for token in tokens).decode().strip())
    except UnicodeDecodeError:
        return False


def _as_bytes(name: str, kinds: set[str]) -> bytes | None:
    """The bytes of a token that stands for bytes; None if it stands for text."""
    if "ByT5" in kinds and len(name) == 1 and ord(name) < 256:
        return name.encode("latin-1")
    if "ByteLevel" in kinds and all(letter in _BYTES for letter in name):
        return bytes(_BYTES[letter] for letter in name)
    fallback = _FALLBACK.fullmatch(name) if "ByteFallback" in kinds else None
    return bytes([int(fallback[1], 16)]) if fallback else None


def _decoders(tokenizer: Any) -> set[str]:
    """The decoders of a tokenizer, by their names in its library."""
    if isinstance(tokenizer, ByT5Tokenizer):
        return {"ByT5"}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return set()
    state = json.loads(backend.to_str())
    decoder = state.get("decoder") or {}
    return {str(part.get("type")) for part in (decoder, *decoder.get("decoders", ()))}
