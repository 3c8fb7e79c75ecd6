"""What a model is told to write the propositions of a passage, and how they are read off what it wrote.

A proposition is a short statement of one fact that can be understood alone ("retrieval keys" in arXiv
2407.00361). A causal model is shown two passages with theirs (our own; they stand in no corpus); an
encoder-decoder is given the passage in the form it was fine-tuned on. Whether a proposition is true to its
passage is not known here.
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
from grls.errors import ConfigError

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
"""How a model goes on behind the propositions of a passage that stands in a row of examples."""


class PropositionPrompt(NamedTuple):
    """How a passage is given to a model.

    Attributes:
        examples: Whether the task is told and shown, as a causal model needs it.
        chat: Whether the model is a chat model, told in turns.
        template: The form of the passage, ``{title}`` and ``{text}`` in it; empty for ours.
    """

    examples: bool = True
    chat: bool = False
    template: str = ""

    @property
    def lead(self) -> str:
        """What an input ends with that belongs to the output."""
        return "-" if self.examples and not self.chat else ""

    def shortened(self, text: str) -> str:
        """An output up to where its propositions end."""
        for stop in _STOPS if self.lead else ():
            text = text.split(stop)[0]
        return text

    def stopped(self, text: str) -> bool:
        """Whether the propositions of an output have come to an end: by a blank line, or by a line again."""
        if self.shortened(text) != text:
            return True
        lines = [line for line in text.split("\n")[:-1] if line.strip()]
        return bool(lines) and lines[-1] in lines[:-1]

    def inputs(self, tokenizer: Any, passages: Sequence[Passage]) -> list[list[int]]:
        """Token ids of the whole prompt with each passage.

        Raises:
            ConfigError: The template lacks ``{text}``; or ``chat`` is set and the tokenizer has no chat
                template, or one that refuses the prompt.
        """
        if self.template and "{text}" not in self.template:
            raise ConfigError(f"--template needs {{text}} where the passage goes; got {self.template!r}.")
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
        told = f"{title}. {text}" if title else text
        return f"Passage: {told}" if self.examples or self.chat else told

    def fingerprint(self, tokenizer: Any) -> str:
        """Differs where a model is told something else."""
        told = (*self, _TASK, _EXAMPLES, getattr(tokenizer, "chat_template", None) if self.chat else None)
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()

    def head(self, tokenizer: Any) -> list[int]:
        """The tokens that every input begins with."""
        some = self.inputs(tokenizer, [Passage("", "a"), Passage("", "b", "c")])
        return some[0][: common(some)]

    def _turns(self, passage: Passage) -> list[dict[str, str]]:
        turns = [{"role": "system", "content": _TASK}]
        for some, lines in _EXAMPLES:
            turns.append({"role": "user", "content": self.form(some)})
            turns.append({"role": "assistant", "content": _bullets(lines)})
        return [*turns, {"role": "user", "content": self.form(passage)}]


class Parsed(NamedTuple):
    """What was read off an output.

    Attributes:
        texts: The propositions, each once.
        dropped: Why lines were left out, and how many: ``cut`` (the length limit came first), ``twice``,
            ``long``, ``copied`` (from the examples), ``invented`` (with a number that the passage lacks),
            ``other`` (no statement, as the title alone).
    """

    texts: tuple[str, ...]
    dropped: dict[str, int]


def parse_propositions(text: str, ended: bool, passage: Passage, longest: int = 300) -> Parsed:
    """Read propositions off an output: a JSON list of texts, or one a line, bullets and numbers taken off.

    Where an output is one line without a bullet (T5's tokenizers write no line break), its sentences are the
    propositions.

    Args:
        text: What the model wrote.
        ended: Whether it had come to an end; otherwise the last line is left out.
        passage: What it was written for.
        longest: Characters of a proposition, at most.
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
            found = json.loads(stripped)
        except ValueError:  # cut off, or not quite JSON: the texts that are whole
            found = [json.loads(match, strict=False) for match in _whole(stripped)]
            found += [] if ended else [""]
        return [entry for entry in found if isinstance(entry, str)]
    lines = stripped.split("\n")
    if len(lines) == 1 and not _BULLET.match(stripped):
        return sentences(stripped)
    return lines


def _whole(text: str) -> list[str]:
    found = []
    for match in _STRING.findall(text):
        try:
            json.loads(match, strict=False)
        except ValueError:
            continue
        found.append(match)
    return found


def _fault(line: str, kept: dict[str, None], numbers: set[str], longest: int) -> str | None:
    """Why a line is no proposition to keep; None where it is one."""
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
