"""Finds where a quoted key begins and ends, from token ids.

A tokenizer may write a marker alone, with the space before it, in byte pieces, or merged with the text
before it. So the text of the last tokens decides whether a key begins. A token in which more text follows
the opening marker would hide the beginning of a key; such tokens are barred from free text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from transformers import ByT5Tokenizer

from grls.data.codec import controls
from grls.errors import ConfigError
from grls.index.rows import Ints
from grls.io.locks import exclusive

OPENING, CLOSING = "«", "»"
_BROKEN = "\ufffd"
_TAIL = 8
"""The most tokens of a marker, as byte pieces."""


@dataclass
class Markers:
    """The markers as tokens.

    Args:
        opening: Token sequences after which a key begins.
        closing: The tokens that close a key.
        barred: Tokens that are not allowed in free text.
        within: Tokens that begin within a character, ascending; no quote begins with such a token.
    """

    opening: tuple[tuple[int, ...], ...]
    closing: tuple[int, ...]
    barred: Ints
    within: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def opens(self, tokens: Sequence[int]) -> bool:
        return any(tuple(tokens[-len(sequence) :]) == sequence for sequence in self.opening)


class TextMarkers(Markers):
    """The markers that open and close a key, as a transformers tokenizer writes them."""

    def __init__(self, tokenizer: Any, opening: str = OPENING, closing: str = CLOSING):
        check_markers(tokenizer, opening, closing)
        written = _written(tokenizer, opening)
        barred = _barred(tokenizer, opening, closing)
        super().__init__((written,), _written(tokenizer, closing), barred, within(tokenizer))
        self._tokenizer, self._text = tokenizer, opening
        last = (n for n, text in enumerate(token_texts(tokenizer)) if text.endswith((opening[-1], _BROKEN)))
        self._last = frozenset(last)

    def opens(self, tokens: Sequence[int]) -> bool:
        if not tokens or tokens[-1] not in self._last:
            return False
        text: str = self._tokenizer.decode(tokens[-_TAIL:])
        return text.endswith(self._text)


def check_markers(tokenizer: Any, opening: str, closing: str) -> None:
    for marker in (opening, closing):
        if not marker or marker != marker.strip():
            raise ConfigError(f"a marker is a text without white space around it, got {marker!r}.")
    if opening == closing:
        raise ConfigError(f"the markers must be two different texts, got {opening!r} twice.")
    barred = {str(tokenizer.convert_ids_to_tokens(token)) for token in controls(tokenizer)}
    for marker in (opening, closing):
        special = sorted(token for token in barred if token and token in marker)
        if special:
            raise ConfigError(
                f"the marker {marker!r} holds {special[0]!r}, a special token of the model, which stands for "
                "no text; choose another marker (the option markers)."
            )


def _written(tokenizer: Any, marker: str) -> tuple[int, ...]:
    """The tokens of a marker after a word and a space."""
    texts = ["a", f"a {marker}", marker]
    with exclusive(tokenizer):
        rows: list[list[int]] = tokenizer(texts, add_special_tokens=False)["input_ids"]
    alone, ids, written = rows
    if (
        ids[: len(alone)] == alone
        and len(ids) > len(alone)
        and tokenizer.unk_token_id not in ids[len(alone) :]
    ):
        written = ids[len(alone) :]
    if tokenizer.unk_token_id in written or tokenizer.decode(written).strip() != marker:
        raise ConfigError(
            f"the tokenizer cannot write the marker {marker!r}; choose another marker (the option markers)."
        )
    return tuple(written)


def _barred(tokenizer: Any, opening: str, closing: str) -> Ints:
    """Tokens that hold a closing marker, or the end of an opening marker followed by more text."""
    special, barred = set(tokenizer.all_special_ids), []
    ends = [opening[n:] for n in range(1, len(opening))]
    for token, text in enumerate(token_texts(tokenizer)):
        followed = opening in text and not text.endswith(opening)
        hides = followed or any(text.startswith(end) and len(text) > len(end) for end in ends)
        if token not in special and (closing in text or hides):
            barred.append(token)
    return np.array(barred, dtype=np.int64)


# A tokenizer that writes bytes (byte-level BPE, byte fallback, ByT5) may split a character into several
# tokens, or end a token within a character. Such a token alone has no text, so its bytes are used.

_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_HIDDEN)}
"""Letter of a byte-level vocabulary -> the byte that it stands for."""


@lru_cache(maxsize=8)
def token_texts(tokenizer: Any) -> tuple[str, ...]:
    return tuple(tokenizer.batch_decode([[token] for token in range(len(tokenizer))]))


@lru_cache(maxsize=8)
def token_bytes(tokenizer: Any) -> tuple[bytes, ...]:
    """The bytes of every token; of one that does not stand for bytes its text in UTF-8."""
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


def _as_bytes(name: str, kinds: set[str]) -> bytes | None:
    if "ByT5" in kinds and len(name) == 1 and ord(name) < 256:
        return name.encode("latin-1")
    if "ByteLevel" in kinds and all(letter in _BYTES for letter in name):
        return bytes(_BYTES[letter] for letter in name)
    fallback = _FALLBACK.fullmatch(name) if "ByteFallback" in kinds else None
    return bytes([int(fallback[1], 16)]) if fallback else None


def _decoders(tokenizer: Any) -> set[str]:
    if isinstance(tokenizer, ByT5Tokenizer):
        return {"ByT5"}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return set()
    state = json.loads(backend.to_str())
    decoder = state.get("decoder") or {}
    return {str(part.get("type")) for part in (decoder, *decoder.get("decoders", ()))}
