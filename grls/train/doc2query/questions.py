"""Questions that an instructed language model writes: of one passage, or of two along a link.

The prompt shows two invented examples. A question of two hops names what the first passage is about, not what
that passage links to, and asks for something that the second passage alone says. The model runs here, or is
asked at an OpenAI-compatible address.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.writer import Continuation, Sampling
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import plain_words
from grls.errors import ConfigError

_ONE = (
    "Write one question that the passage answers. The question can be understood without the passage: it "
    "names what it is about. It uses other words than the passage where it can, and does not give the answer."
)
_TWO = (
    "Passage 1 names what passage 2 is about. Write one question that needs both passages: it says what "
    "passage 1 tells, without the name that both passages share, and asks for something that passage 2 alone "
    "tells. Do not give the answer."
)
_TALMERE = Passage(
    "",
    "Talmere is a market town on the river Orrin. Its stone bridge, which Hugo Laske built in 1412, was "
    "widened in 1903 so that trams could cross it.",
    "Talmere",
)
_LASKE = Passage("", "Laske was a mason from Verrin. He had learned his trade at sea, as a ship's carpenter.",
                 "Hugo Laske")  # fmt: skip
_OPERA = Passage("", "The opera house of Verrin opened in 1871. Ada Lomax painted its ceiling.", "Verrin")
_LOMAX = Passage("", "Lomax (1839-1902) studied in Verrin. She had three pupils.", "Ada Lomax")
_EXAMPLES = {
    1: (
        ((_TALMERE,), "Why was the old bridge over the Orrin made broader at Talmere?"),
        ((_LOMAX,), "How many people did the artist Ada Lomax teach?"),
    ),
    2: (
        ((_TALMERE, _LASKE), "What was the first trade of the builder of Talmere's old bridge?"),
        ((_OPERA, _LOMAX), "When was the painter of the ceiling of Verrin's opera house born?"),
    ),
}
SHOWN = frozenset(plain_words(question) for examples in _EXAMPLES.values() for _, question in examples)
"""The questions of the prompts, which a weak model repeats."""

NEW_TOKENS = 64
"""Tokens of a question, at most."""
QUESTIONS = hashlib.sha256(repr((_ONE, _TWO, _EXAMPLES)).encode()).hexdigest()
"""Of the prompts: questions depend on them."""

_LABEL = re.compile(r"^(?:\W*(?:question|q)\s*\d*\s*[:.]\s*|[\d\W]*[.)]\s+)?[\"'“”*]*", re.IGNORECASE)


class QuestionPrompt(NamedTuple):
    """Prompts for questions of one or two passages, as turns of a chat or as plain text."""

    chat: bool
    words: int = 150
    """Words of a passage that are read."""

    def ask(self, passages: Sequence[Passage]) -> tuple[str, list[tuple[str, str]], str]:
        """The task, the examples and the text of the last turn."""
        task = _ONE if len(passages) == 1 else _TWO
        examples = [(self._text(shown), question) for shown, question in _EXAMPLES[len(passages)]]
        return task, examples, self._text(passages)

    def turns(self, passages: Sequence[Passage]) -> list[dict[str, str]]:
        """The prompt for a chat at an address."""
        task, examples, text = self.ask(passages)
        turns = [{"role": "system", "content": task}]
        for shown, question in (*examples, (text, None)):
            turns.append({"role": "user", "content": shown})
            turns += [] if question is None else [{"role": "assistant", "content": question}]
        return turns

    def inputs(self, tokenizer: Any, batch: Sequence[Sequence[Passage]]) -> list[list[int]]:
        """The prompts for a model that runs here, as token ids."""
        rows = []
        for passages in batch:
            task, examples, text = self.ask(passages)
            end = "" if self.chat else "\nQuestion:"
            solved = [((shown + end, question),) for shown, question in examples]
            rows += few_shot(tokenizer, task, solved, [Dialogue(text + end)], self.chat)
        return rows

    def _text(self, passages: Sequence[Passage]) -> str:
        lines = []
        for number, passage in enumerate(passages, 1):
            label = "Passage" if len(passages) == 1 else f"Passage {number}"
            text = " ".join(passage.text.split()[: self.words])
            lines.append(f"{label}: {passage.title}. {text}" if passage.title else f"{label}: {text}")
        return "\n".join(lines)


def question_of(text: str) -> str:
    """The question in an output: its first line, without a label and quotes."""
    line = next((line for line in text.split("\n") if line.strip()), "")
    return _LABEL.sub("", line.strip(), count=1).strip().strip("\"'“”*").strip()


def linked_pairs(corpus: Corpus, most: int, seed: int) -> list[tuple[int, int]]:
    """Pairs of passages of which the first names or links to the second, each first passage once."""
    links, draw = corpus.links(), random.Random(seed)
    pairs = []
    for first in draw.sample(range(len(corpus)), len(corpus)):
        others = sorted({int(to) for naming in links.of(first) for to in naming.passages} - {first})
        if others:
            pairs.append((first, draw.choice(others)))
        if len(pairs) == most:
            break
    return pairs


class Endpoint(NamedTuple):
    """A chat model at an OpenAI-compatible address, such as http://localhost:8000/v1."""

    url: str
    model: str
    together: int = 8
    attempts: int = 5

    def write(
        self,
        prompts: Sequence[list[dict[str, str]]],
        draws: Sequence[Sampling],
        new_tokens: int,
        decided: Callable[[int], object] | None = None,
    ) -> list[Continuation | str]:
        """An answer to each prompt, or why there is none."""

        def answer(turns: list[dict[str, str]], draw: Sampling) -> Continuation | str:
            written = self._answer(turns, draw, new_tokens)
            if decided is not None:
                decided(1)
            return written

        with ThreadPoolExecutor(self.together) as pool:
            return list(pool.map(answer, prompts, draws))

    def _answer(self, turns: list[dict[str, str]], draw: Sampling, new_tokens: int) -> Continuation | str:
        body = {
            "model": self.model, "messages": turns, "max_tokens": new_tokens, "seed": draw.seed % 2**31,
            "temperature": draw.temperature, "top_p": draw.top_p,
        }  # fmt: skip
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json",
             "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"},
        )  # fmt: skip
        why = ""
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(2 ** (attempt - 1))
            try:
                with urllib.request.urlopen(request, timeout=120) as response:
                    answer = json.load(response)
                choice = answer["choices"][0]
                text, end = choice["message"]["content"], choice.get("finish_reason")
                return Continuation(str(text or ""), (), end != "length")
            except urllib.error.HTTPError as error:
                why = f"it answers {error.code}: {error.read(300).decode('utf-8', 'replace').strip()}"
                if error.code < 500 and error.code not in (408, 429):
                    raise ConfigError(f"the model at {self.url} cannot be asked: {why}") from None
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                why = f"it cannot be reached ({getattr(error, 'reason', error)})"
            except (ValueError, KeyError, IndexError, TypeError):
                raise ConfigError(
                    f"{self.url} answers otherwise than an OpenAI-compatible server does: give the address "
                    "up to /v1, such as http://localhost:8000/v1."
                ) from None
        if "reached" in why:
            raise ConfigError(
                f"the model at {self.url}: {why}. Start its server, then call again: what was written stays."
            )
        return why
