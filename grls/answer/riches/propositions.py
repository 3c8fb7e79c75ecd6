"""Propositions of passages, written by a language model: the best keys of RICHES.

A proposition is a short statement of one fact that can be understood alone ("retrieval keys" in arXiv
2407.00361). The prompt of a causal model shows two invented passages with their propositions; an
encoder-decoder reads the passage in the form of its fine-tuning. Nothing checks that a proposition is
true to its passage.

Models write greedily, a batch of passages of similar length at a time. A model that repeats a line is in a
loop, and is stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.riches.options import PropositionOptions
from grls.answer.writer import Continuation, TextWriter, common
from grls.data.codec import foreign_ids, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.errors import ConfigError, Option
from grls.io.work import Record
from grls.models.load.language import load_language_model, model_fingerprint

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

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the propositions of a passage in a plain prompt with examples."""
        return ("\n\n", "\nPassage:") if self.lead else ()

    def repeats(self, text: str) -> bool:
        """Whether the last whole line stands there twice: the model is in a loop."""
        lines = [line for line in f"{self.lead} {text}".split("\n")[:-1] if line.strip()]
        return bool(lines) and lines[-1] in lines[:-1]

    def inputs(self, tokenizer: Any, passages: Sequence[Passage]) -> list[list[int]]:
        if self.template and "{text}" not in self.template:
            raise ConfigError(
                f"{Option('template')} needs {{text}} where the passage goes; got {self.template!r}."
            )
        if not self.examples and not self.chat:
            return foreign_ids(tokenizer, [self.form(passage) for passage in passages], wrapped=True)
        ask = "" if self.chat else "\nPropositions:"
        solved = [((self.form(p) + ask, "\n".join(f"- {line}" for line in lines)),) for p, lines in _EXAMPLES]
        dialogues = [Dialogue(self.form(passage) + ask, begin=self.lead) for passage in passages]
        return few_shot(tokenizer, _TASK, solved, dialogues, self.chat)

    def form(self, passage: Passage) -> str:
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


_LONGEST = 300
"""Characters of a proposition; longer ones are left out."""


def parse_propositions(text: str, ended: bool, passage: Passage) -> tuple[tuple[str, ...], dict[str, int]]:
    """Parse an output: a JSON list of texts, or a proposition a line, without bullets and numbers.

    If an output is one line without a bullet (T5's tokenizers write no line break), its sentences are the
    propositions. Returns the propositions, each once, and reason -> number of lines that were left out:
    ``cut`` (the length limit cut the line), ``twice``, ``long``,
    ``copied`` (from the examples), ``invented`` (with a number that the passage lacks), ``other`` (no
    statement, such as only the title).
    """
    stripped = text.strip()
    lines = stripped.split("\n")
    if stripped.startswith("["):
        try:
            entries = json.loads(stripped)
        except ValueError:  # cut off, or not quite JSON: take the complete strings
            entries = []
            for match in _STRING.findall(stripped):
                with suppress(ValueError):
                    entries.append(json.loads(match, strict=False))
            entries += [] if ended else [""]
        lines = [entry for entry in entries if isinstance(entry, str)]
    elif len(lines) == 1 and not _BULLET.match(stripped):
        lines = sentences(stripped)
    dropped: Counter[str] = Counter()
    if not ended and lines:
        lines.pop()
        dropped["cut"] += 1
    texts: dict[str, None] = {}
    numbers = set(_NUMBER.findall(f"{passage.title} {passage.text}"))
    for line in lines:
        plain = " ".join(_BULLET.sub("", line).split())
        plain = plain.encode("utf-8", "replace").decode()  # JSON may spell half of a surrogate pair
        if not plain:
            continue
        if len(plain) > _LONGEST:
            dropped["long"] += 1
        elif plain in texts:
            dropped["twice"] += 1
        elif plain in _OURS:
            dropped["copied"] += 1
        elif set(_NUMBER.findall(plain)) - numbers:
            dropped["invented"] += 1
        elif (
            plain.endswith(":")
            or len(re.findall(r"\w+", plain)) < 2
            or not re.search(r"[^\W\d_]", plain)
            or plain.rstrip(" .").casefold() == passage.title.strip(" .").casefold()
        ):
            dropped["other"] += 1
        else:
            texts[plain] = None
    return tuple(texts), dict(dropped)


class Propositionizer(NamedTuple):
    """Writes propositions; where the model writes none, they are the sentences of the passage."""

    writer: TextWriter
    prompt: PropositionPrompt
    corpus: Corpus

    def write(self, numbers: Sequence[int], decided: Callable[[int], object] | None = None) -> list[Record]:
        """A record of each passage: ``passage`` (its id), ``texts``, ``by``, ``dropped``.

        ``by`` is ``sentences`` if the texts are the sentences of the passage. ``dropped``: as in
        :func:`parse_propositions`, and ``unread`` if the passage is too long.
        """
        passages = self.corpus.passages(numbers)
        filled = [passage for passage in passages if passage.text.strip()]
        ask = partial(self.prompt.inputs, self.writer.tokenizer)
        names = [f"the passage {passage.id!r}" for passage in filled]
        results = self.writer.write_each(names, ask(filled), lambda: ask([Passage("", "")])[0], decided)
        outputs = {passage.id: result for passage, result in zip(filled, results, strict=True)}
        records = []
        for passage in passages:
            texts: tuple[str, ...] = ()
            dropped = {"unread": 1} if passage.id in outputs else {}
            if isinstance(output := outputs.get(passage.id), Continuation):
                text = f"{self.prompt.lead} {output.text}"
                texts, dropped = parse_propositions(text, output.ended, passage)
            by = "model" if texts else "sentences"
            if not texts:
                texts = tuple(dict.fromkeys(" ".join(text.split()) for text in sentences(passage.text)))
            records.append({"passage": passage.id, "texts": list(texts), "by": by, "dropped": dropped})
        return records

    def name(self, number: int) -> Record:
        return {"passage": self.corpus.ids([number])[0]}


def open_propositions(asked: PropositionOptions) -> tuple[list[int], Propositionizer, dict[str, Any]]:
    """The passages of a run in the order of writing, their writer, and what the propositions depend on."""
    corpus = Corpus.read(asked.data)
    loaded, tokenizer = load_language_model(asked.model, asked.device)
    prompt = PropositionPrompt(not loaded.config.is_encoder_decoder, asked.chat, asked.template)
    texts = TextWriter(
        loaded, tokenizer, asked.max_new_tokens, asked.batch_size, prompt.stops, prompt.repeats,
        prompt.head(tokenizer),
    )  # fmt: skip
    origin = {
        "weights": model_fingerprint(loaded), "tokenizer": tokenizer_fingerprint(tokenizer),
        "corpus": corpus.fingerprint, "prompt": prompt.fingerprint(tokenizer),
        "max_new_tokens": asked.max_new_tokens, "limit": asked.limit,
    }  # fmt: skip
    lengths = pc.utf8_length(corpus.table.data.column("text")).to_numpy()[: asked.limit]
    # Like lengths share a batch. The longest come first: if the memory does not suffice, they show it.
    numbers = np.argsort(-lengths.astype(np.int64), kind="stable").tolist()
    return numbers, Propositionizer(texts, prompt, corpus), origin


def proposition_lines(record: Record) -> list[dict[str, Any]]:
    """The lines of a passage in a file of propositions; a passage without one has a line without a text."""
    passage, texts = record["passage"], record["texts"]
    numbered: list[tuple[int, str | None]] = list(enumerate(texts, 1)) or [(0, None)]
    lines: list[dict[str, Any]] = [
        {"passage": passage, "text": text, "part": part, "parts": len(texts), "by": record["by"]}
        for part, text in numbered
    ]
    lines[0]["dropped"] = record["dropped"]
    return lines
