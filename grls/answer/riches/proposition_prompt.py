"""The prompt for the propositions of a passage, and how propositions are parsed from an output.

A proposition is a short statement of one fact that can be understood alone ("retrieval keys" in arXiv
2407.00361). The prompt of a causal model shows two passages with their propositions (invented; they stand in
no corpus); an encoder-decoder reads the passage in the form of its fine-tuning. The module does not check
that a proposition is true to its passage.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from grls.answer.dialogue import in_turns
from grls.answer.riches.prompts import common
from grls.data.codec import foreign_ids
from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.errors import ConfigError, Option

_TASK = (
    "Split the passage into propositions. A proposition is one short sentence that states one fact of the "
    "passage and can be understood alone: it names what it is about and holds no pronoun. Write one a line."
)
_EXAMPLES = (
    (
        Passage(
            "",
            "Talmere is a market town on the river Orrin. Its stone bridge, which Hugo Laske built in 1412, "
            "was widened in 1903 so that trams could cross it.",
            "Talmere",
        ),
        (
            "Talmere is a market town.",
            "Talmere lies on the river Orrin.",
            "The stone bridge of Talmere was built in 1412.",
            "Hugo Laske built the stone bridge of Talmere.",
            "The stone bridge of Talmere was widened in 1903.",
            "The stone bridge of Talmere was widened so that trams could cross it.",
        ),
    ),
    (
        Passage(
            "",
            "Lomax (1839-1902) was a painter. She studied in Verrin, where she later painted the ceiling of "
            "the opera house, and had three pupils.",
            "Ada Lomax",
        ),
        (
            "Ada Lomax was born in 1839.",
            "Ada Lomax died in 1902.",
            "Ada Lomax was a painter.",
            "Ada Lomax studied in Verrin.",
            "Ada Lomax painted the ceiling of the Verrin opera house.",
            "Ada Lomax had three pupils.",
        ),
    ),
)
_OURS = frozenset(line for _, lines in _EXAMPLES for line in lines)
_FIELDS = re.compile(r"\{(title|text)\}")
_BULLET = re.compile(r"^\s*(?:[-*•–—‣·]+|\(?(?:\d{1,3}|[a-zA-Z])[.)](?=\s))\s*")
_NUMBER = re.compile(r"\d+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')

_STOPS = ("\n\n", "\nPassage:")
"""Texts that end the propositions of a passage in a plain prompt with examples."""


class PropositionPrompt(NamedTuple):
    """Writes the prompt for a passage.

    Attributes:
        examples: Whether the prompt holds the task and examples, as a causal model needs them.
        chat: Whether the prompt is written with the model's chat template.
        template: The form of the passage, with ``{title}`` and ``{text}``; empty for the default form.
    """

    examples: bool = True
    chat: bool = False
    template: str = ""

    @property
    def lead(self) -> str:
        """The end of the prompt that already belongs to the output."""
        return "-" if self.examples and not self.chat else ""

    def shortened(self, text: str) -> str:
        """An output up to the end of its propositions."""
        for stop in _STOPS if self.lead else ():
            text = text.split(stop)[0]
        return text

    def stopped(self, text: str) -> bool:
        """Whether the propositions of an output have ended: by a blank line, or by a repeated line."""
        if self.shortened(text) != text:
            return True
        lines = [line for line in text.split("\n")[:-1] if line.strip()]
        return bool(lines) and lines[-1] in lines[:-1]

    def inputs(self, tokenizer: Any, passages: Sequence[Passage]) -> list[list[int]]:
        """Token ids of the whole prompt with each passage.

        Raises:
            ConfigError: The template lacks ``{text}``; or ``chat`` is set and the tokenizer has no chat
                template, or its template refuses the prompt.
        """
        if self.template and "{text}" not in self.template:
            raise ConfigError(
                f"{Option('template')} needs {{text}} where the passage goes; got {self.template!r}."
            )
        if self.chat:
            return [in_turns(tokenizer, self._turns(passage)) for passage in passages]
        head = ""
        if self.examples:
            solved = (f"{self.form(p)}\nPropositions:\n{_bullets(lines)}\n\n" for p, lines in _EXAMPLES)
            head = f"{_TASK}\n\n{''.join(solved)}"
        tail = f"\nPropositions:\n{self.lead}" if self.examples else ""
        texts = [f"{head}{self.form(passage)}{tail}" for passage in passages]
        return foreign_ids(tokenizer, texts, wrapped=True)

    def form(self, passage: Passage) -> str:
        """The passage as the model reads it, in one line."""
        title, text = (" ".join(part.split()) for part in (passage.title, passage.text))
        if self.template:
            fields = {"title": title, "text": text}
            return _FIELDS.sub(lambda match: fields[match.group(1)], self.template)
        line = f"{title}. {text}" if title else text
        return f"Passage: {line}" if self.examples or self.chat else line

    def fingerprint(self, tokenizer: Any) -> str:
        """A hash of everything that the prompt depends on except the passage."""
        parts = (*self, _TASK, _EXAMPLES, getattr(tokenizer, "chat_template", None) if self.chat else None)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def head(self, tokenizer: Any) -> list[int]:
        """The tokens that every input begins with."""
        rows = self.inputs(tokenizer, [Passage("", "a"), Passage("", "b", "c")])
        return rows[0][: common(rows)]

    def _turns(self, passage: Passage) -> list[dict[str, str]]:
        turns = [{"role": "system", "content": _TASK}]
        for example, lines in _EXAMPLES:
            turns.append({"role": "user", "content": self.form(example)})
            turns.append({"role": "assistant", "content": _bullets(lines)})
        return [*turns, {"role": "user", "content": self.form(passage)}]


class Parsed(NamedTuple):
    """A parsed output.

    Attributes:
        texts: The propositions, each once.
        dropped: Reason -> number of lines that were left out: ``cut`` (the length limit cut the line),
            ``twice``, ``long``, ``copied`` (from the examples), ``invented`` (with a number that the passage
            lacks), ``other`` (no statement, such as only the title).
    """

    texts: tuple[str, ...]
    dropped: dict[str, int]


def parse_propositions(text: str, ended: bool, passage: Passage, longest: int = 300) -> Parsed:
    """Parse an output: a JSON list of texts, or a proposition a line, without bullets and numbers.

    If an output is one line without a bullet (T5's tokenizers write no line break), its sentences are the
    propositions.

    Args:
        text: The output of the model.
        ended: Whether the output is complete; otherwise the last line is left out.
        passage: The passage.
        longest: Most characters of a proposition.
    """
    lines = _entries(text, ended)
    dropped: Counter[str] = Counter()
    if not ended and lines:
        lines.pop()
        dropped["cut"] += 1
    kept: dict[str, None] = {}
    numbers = set(_NUMBER.findall(f"{passage.title} {passage.text}"))
    for line in lines:
        plain_line = " ".join(_BULLET.sub("", line).split())
        fault = _fault(plain_line, kept, numbers, longest)
        if fault is None and plain_line.rstrip(" .").casefold() == passage.title.strip(" .").casefold():
            fault = "other"
        if fault is None:
            kept[plain_line] = None
        elif plain_line:
            dropped[fault] += 1
    return Parsed(tuple(kept), dict(dropped))


def _entries(text: str, ended: bool) -> list[str]:
    stripped = text.strip()
    if stripped.startswith("["):
        try:
            entries = json.loads(stripped)
        except ValueError:  # cut off, or not quite JSON: take the complete strings
            entries = [json.loads(match, strict=False) for match in _whole(stripped)]
            entries += [] if ended else [""]
        return [entry for entry in entries if isinstance(entry, str)]
    lines = stripped.split("\n")
    if len(lines) == 1 and not _BULLET.match(stripped):
        return sentences(stripped)
    return lines


def _whole(text: str) -> list[str]:
    strings = []
    for match in _STRING.findall(text):
        try:
            json.loads(match, strict=False)
        except ValueError:
            continue
        strings.append(match)
    return strings


def _fault(line: str, kept: dict[str, None], numbers: set[str], longest: int) -> str | None:
    """Why a line is left out; None for a proposition to keep."""
    if len(line) > longest:
        return "long"
    if line in kept:
        return "twice"
    if line in _OURS:
        return "copied"
    if set(_NUMBER.findall(line)) - numbers:
        return "invented"
    if line.endswith(":") or len(re.findall(r"\w+", line)) < 2 or not re.search(r"[^\W\d_]", line):
        return "other"
    return None


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
