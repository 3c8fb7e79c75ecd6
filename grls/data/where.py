"""Filters over metadata as text: ``year>=2000 and (lang=de|fr or not open=true)``.

The grammar, loosest binding first::

    filter     = both { "or" both }
    both       = part { "and" part }
    part       = "not" part | "(" filter ")" | comparison
    comparison = field ("=" | "!=") value { "|" value }
               | field ("<" | "<=" | ">" | ">=") value

A field or a value is a word. If it holds white space or one of ``( ) | = < > ! " '``, it must be a text in
single or double quotes, where a backslash escapes the next character. The words ``and``, ``or``, ``not`` are
lower-case.

How values compare:

- A number (``2000``, ``-1.5``, ``1e3``) compares with numbers by value, whole numbers of any size exactly. It
  equals a text with the same letters, and is neither above nor below any text.
- ``true`` and ``false`` equal the truth values of JSON.
- Everything else, and every quoted value, is text, in the order of its characters.
- An order that no passage can have is refused, such as that of a number and a field of texts alone.
- For a list, the comparison must hold for any element; with ``!=``, no element may be equal.
- If a field is missing or null, no comparison holds, not even ``!=``. So a bare ``null`` is refused as a
  value.
- ``true``, ``false``, ``nan``, ``inf`` and ``infinity`` have no order, so they are refused after ``<``,
  ``<=``, ``>`` and ``>=``. In quotes they are ordinary text.

A filter is read in time proportional to its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grls.errors import ConfigError

MOST = 4096
"""The longest filter, in characters."""
DEPTH = 50
"""How many parentheses and ``not`` may surround a comparison."""

_TOKEN = re.compile(
    r"""(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<sign><=|>=|!=|=|<|>|\(|\)|\|)"""
    r"""|(?P<word>[^\s()|=<>!"'][^\s()|=<>!]*)""",
    re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?[0-9]+(?P<part>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?)")
_LIKE_A_NUMBER = re.compile(r"[+\-\u2212]?\.?\d[\d.,_]*(?:[eE][+-]?\d*)?")
"""Words that look like numbers and are read as text: ``.5``, ``5.``, ``1_000``, ``٣``, ``−5``."""
_UNORDERED = re.compile(r"true|false|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
"""Words that their writer does not mean as text, and that have no order."""
_IN = re.compile(r"(not\s+)?in\s*\(")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_WORDS = ("and", "or", "not")

Mask = npt.NDArray[np.bool_]
"""``[n]``: whether a filter holds for each passage."""


class FilterValue(NamedTuple):
    """The value that a field is compared with.

    Attributes:
        text: The characters of the value.
        quoted: Whether the value was in quotes, so that it is text only.
    """

    text: str
    quoted: bool = False

    @property
    def number(self) -> int | Decimal | None:
        """The exact number; None if the value is no number."""
        match = None if self.quoted else _NUMBER.fullmatch(self.text)
        if match is None:
            return None
        return Decimal(self.text) if match["part"] else int(self.text)

    def equals(self, entry: Any) -> bool:
        if isinstance(entry, bool):
            return not self.quoted and self.text == ("true" if entry else "false")
        if isinstance(entry, int | float):
            number = self.number
            return number is not None and _sign(entry, number) == 0
        return bool(entry == self.text)

    def order(self, entry: Any) -> int | None:
        """-1, 0 or 1 if an entry of the metadata is below, equal or above; None if they do not compare."""
        if isinstance(entry, bool):
            return None
        number = self.number
        if isinstance(entry, int | float):
            return None if number is None else _sign(entry, number)
        if not isinstance(entry, str) or number is not None:
            return None
        return (entry > self.text) - (entry < self.text)


@dataclass(frozen=True)
class FieldComparison:
    """A comparison of one field.

    Attributes:
        operator: ``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        values: After ``=`` and ``!=`` several values mean any of them.
    """

    field: str
    operator: str
    values: tuple[FilterValue, ...]

    def comparisons(self) -> Iterator[FieldComparison]:
        yield self

    def mask(self, of: Callable[[FieldComparison], Mask]) -> Mask:
        return of(self)

    def accepts(self, entry: Any) -> bool:
        """Whether the comparison holds for a value of the field; None: the field is missing or null."""
        if entry is None:
            return False
        elements = entry if isinstance(entry, list) else [entry]
        if self.operator in ("=", "!="):
            equal = any(value.equals(element) for element in elements for value in self.values)
            return equal == (self.operator == "=")
        orders = map(self.values[0].order, elements)
        wanted = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0)}[self.operator]
        return any(order in wanted for order in orders)

    def compares(self, entry: Any) -> bool:
        """Whether the comparison may hold for some value of the type of this one."""
        elements = entry if isinstance(entry, list) else [entry]
        return self.operator in ("=", "!=") or any(self.values[0].order(e) is not None for e in elements)


@dataclass(frozen=True)
class Joined:
    """Parts of a filter with a word.

    Attributes:
        word: ``and``: all parts must hold; ``or``: any of them; ``not``: the one part must not hold.
        parts: The parts; at least two of ``and`` and ``or``.
    """

    word: str
    parts: tuple[Expression, ...]

    def comparisons(self) -> Iterator[FieldComparison]:
        for part in self.parts:
            yield from part.comparisons()

    def mask(self, of: Callable[[FieldComparison], Mask]) -> Mask:
        joined = self.parts[0].mask(of).copy()
        for part in self.parts[1:]:
            (np.logical_and if self.word == "and" else np.logical_or)(joined, part.mask(of), out=joined)
        return ~joined if self.word == "not" else joined


Expression = FieldComparison | Joined
"""A parsed filter."""


def filter_word(text: str) -> str:
    """A field, or a value that is a text, as a filter writes it."""
    plain = re.fullmatch(r"[^\W\d_][\w-]*", text) and not _UNORDERED.fullmatch(text)
    if plain and text.lower() not in (*_WORDS, "null"):
        return text
    return "'" + re.sub(r"(['\\])", r"\\\1", text) + "'"


def parse_filter(text: str) -> Expression:
    """Read a filter; a ConfigError names the column of what does not follow the grammar."""
    if len(text) > MOST:
        raise ConfigError(f"a filter has at most {MOST:,} characters, got {len(text):,}.")
    parser = _Parser(text)
    expression = parser.joined("or", 0)
    if parser.token.kind != "end":
        raise parser.error("'and', 'or' or the end")
    return expression


def _sign(entry: float, number: int | Decimal) -> int:
    """Floats compare with floats."""
    value: Any = float(number) if isinstance(entry, float) and isinstance(number, Decimal) else number
    return int(entry > value) - int(entry < value)


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


class _Parser:
    """Recursive descent over the tokens of a text."""

    def __init__(self, text: str):
        self._text = text
        self._tokens = self._read()
        self.token = next(self._tokens)

    def joined(self, word: str, depth: int) -> Expression:
        """``filter`` (joined by "or"), or ``both`` (joined by "and")."""
        parts = [self._part(depth) if word == "and" else self.joined("and", depth)]
        while self._is(word):
            self._next()
            parts.append(self._part(depth) if word == "and" else self.joined("and", depth))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _part(self, depth: int) -> Expression:
        if depth > DEPTH:
            raise ConfigError(f"a filter has at most {DEPTH} parentheses and 'not' within one another.")
        if self._is("not"):
            self._next()
            return Joined("not", (self._part(depth + 1),))
        if self._is("(", "sign"):
            self._next()
            expression = self.joined("or", depth + 1)
            if not self._is(")", "sign"):
                raise self.error("')', 'and' or 'or'")
            self._next()
            return expression
        return self._comparison()

    def _comparison(self) -> FieldComparison:
        field = self._value("a field, 'not' or '('", names=True).text
        operator = self.token.text
        if self.token.kind != "sign" or operator in "()|":
            raise self.error("one of = != < <= > >=")
        self._next()
        ordered = operator not in ("=", "!=")
        values = [self._value("a value", ordered=ordered)]
        while self._is("|", "sign") and not ordered:
            self._next()
            values.append(self._value("a value"))
        return FieldComparison(field, operator, tuple(values))

    def _value(self, expected: str, names: bool = False, ordered: bool = False) -> FilterValue:
        token = self.token
        if token.kind not in ("word", "quoted") or (names and token.kind == "word" and token.text in _WORDS):
            raise self.error(expected)
        text, doubt = token.text, ""  # a value that is read as text, though its writer means something else
        if names or token.kind == "quoted":
            pass
        elif _LIKE_A_NUMBER.fullmatch(text) and not _NUMBER.fullmatch(text):
            doubt = f"{text!r} is no number such as 20, -1.5 or 1e3"
        elif text.lower() in ("true", "false") and text != text.lower():
            doubt = f"truth values are true and false, got {text!r}"
        elif text.lower() == "null":
            doubt = "no comparison holds for a null or missing field"
        elif ordered and _UNORDERED.fullmatch(text):
            doubt = f"nothing is above or below {text}"
        if doubt:
            raise self._error(token.start, doubt, " Quote it if it is a text.")
        self._next()
        if token.kind == "word":
            return FilterValue(text)
        return FilterValue(_ESCAPE.sub(r"\1", text[1:-1]), True)

    def _is(self, text: str, kind: str = "word") -> bool:
        return self.token.kind == kind and self.token.text == text

    def _next(self) -> None:
        self.token = next(self._tokens)

    def error(self, expected: str) -> ConfigError:
        token = self.token
        got = "the end" if token.kind == "end" else repr(token.text)
        hint = ""
        if token.kind == "word" and token.text not in _WORDS and token.text.lower() in _WORDS:
            hint = f" Write {token.text.lower()!r} in lower case, or quote it if it is a value."
        elif self._is("=", "sign"):
            hint = " One '=' compares."
        elif _IN.match(self._text, token.start):
            hint = " Write field=a|b for any of several values, field!=a|b for none."
        elif token.kind == "word":
            hint = " Put a field or value with white space in quotes."
        return self._error(token.start, f"expected {expected}, got {got}", hint)

    def _error(self, start: int, fault: str, hint: str) -> ConfigError:
        before = self._text[max(0, start - 30) : start]
        column = f"{start + 1}, behind {before!r}" if before else f"{start + 1}"
        return ConfigError(
            f"filter, column {column}: {fault}.{hint} A filter looks like 'year>=2000 and (lang=de|fr or not "
            "open=true)'."
        )

    def _read(self) -> Iterator[_Token]:
        text, start = self._text, 0
        while start < len(text):
            match = _TOKEN.match(text, start)
            if text[start].isspace():
                start += 1
            elif match is None:
                sign = "a quote that is not closed" if text[start] in "\"'" else repr(text[start])
                raise self._error(start, f"expected a field, a value or a sign, got {sign}", "")
            else:
                yield _Token(str(match.lastgroup), match[0], start)
                start = match.end()
        yield _Token("end", "", len(text))
