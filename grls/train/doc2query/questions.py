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
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from multiprocessing.pool import ThreadPool
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from grls.answer.dialogue import Dialogue, few_shot
from grls.answer.writer import Continuation, Sampling
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import plain_words
from grls.errors import ConfigError, Option

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

GROUP = 32
"""Questions of an address that are saved together."""
_REFUSED = (400, 413, 422)  # this prompt, such as one that is too long
_STAYS = "what was written stays."

_THOUGHTS = re.compile(r"^.*</think>|<think>.*", re.DOTALL)
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
    """The question in an output: its first line with a question mark, or its first, without label and quotes.

    Thoughts before it, and a line that announces it (``Here is a question:``), are left out.
    """
    lines = [
        _LABEL.sub("", line.strip(), count=1).strip().strip("\"'“”*").strip()
        for line in _THOUGHTS.sub("", text).split("\n")
    ]
    lines = [line for line in lines if line and not line.endswith((":", "："))]
    return next((line for line in lines if re.search("[?？؟]", line)), lines[0] if lines else "")


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

    def checked(self, option: str = "endpoint") -> Endpoint:
        """Itself, with an address that can be asked; ``option`` names it."""
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if not good or re.search(r"\s", self.url):
            raise ConfigError(
                f"{Option(option, self.url)} is no address: give one such as http://localhost:8000/v1."
            )
        return self

    def write(
        self, prompts: Sequence[list[dict[str, str]]], draws: Sequence[Sampling], new_tokens: int
    ) -> Iterator[Continuation | str]:
        """An answer to each prompt, or why it is refused, as it comes, up to one at which the server fails.

        Raises:
            ConfigError: if the server fails before it has answered any prompt, or refuses different ones.
        """
        ends: list[ConfigError] = []

        def answer(asked: tuple[list[dict[str, str]], Sampling]) -> Continuation | str | None:
            try:
                return self._answer(*asked, new_tokens, ends)
            except ConfigError as error:
                ends.append(error)
                return None

        waiting, answered = list[Continuation | str](), False
        with ThreadPool(self.together) as pool:  # of daemons, which nobody waits for
            try:
                for one in pool.imap(answer, zip(prompts, draws, strict=True)):
                    if one is None:
                        break
                    waiting.append(one)
                    answered = answered or isinstance(one, Continuation)
                    while answered and waiting:
                        yield waiting.pop(0)
                pool.close()
                pool.join()
            except BaseException:  # time is up
                ends.append(ConfigError("nothing more is asked"))
                raise
        if ends and not answered:
            raise ends[0]
        if waiting and prompts[0] != prompts[-1]:
            raise ConfigError(f"the model at {self.url} cannot be asked: {waiting[0]}; {_STAYS}")
        yield from waiting

    def _answer(
        self, turns: list[dict[str, str]], draw: Sampling, new_tokens: int, ends: Sequence[ConfigError]
    ) -> Continuation | str:
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
        why = remedy = ""
        for attempt in range(self.attempts):
            if ends:
                raise ends[0]
            wait, remedy = 2.0**attempt, "Call again later"
            try:
                with urllib.request.urlopen(request, timeout=120) as response:
                    answer = json.load(response)
                if not isinstance(answer, dict) or not answer.get("error"):
                    return _continuation(answer)
                why = f"it answers {json.dumps(answer['error'], ensure_ascii=False)[:_SHOWN]}"
            except urllib.error.HTTPError as error:
                why = f"it answers {error.code}: {_body(error)}"
                if error.code in _REFUSED:
                    return why
                if error.code < 500 and error.code not in (408, 429):
                    raise ConfigError(f"the model at {self.url} cannot be asked: {why}; {_STAYS}") from None
                if (after := error.headers.get("Retry-After", "")).isdecimal():
                    wait = min(float(after), _LONGEST_WAIT)
            except (OSError, HTTPException) as error:
                why = f"it cannot be reached ({getattr(error, 'reason', error)})"
                remedy = "Start its server, then call again"
            except (ValueError, KeyError, IndexError, TypeError, AttributeError):
                raise ConfigError(
                    f"{self.url} answers otherwise than an OpenAI-compatible server does: give the address "
                    "up to /v1, such as http://localhost:8000/v1."
                ) from None
            if attempt + 1 < self.attempts:
                time.sleep(wait)
        raise ConfigError(f"the model at {self.url}: {why}. {remedy}: {_STAYS}")


_SHOWN = 300  # characters of an error that are shown
_LONGEST_WAIT = 60.0  # seconds that a server may ask for


def _continuation(answer: Any) -> Continuation:
    choice = answer["choices"][0]
    text, end = choice["message"]["content"], choice.get("finish_reason")
    if isinstance(text, list):
        text = "".join(part.get("text") or "" for part in text)
    return Continuation(str(text or ""), (), end != "length")


def _body(error: urllib.error.HTTPError) -> str:
    try:
        return error.read(_SHOWN).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        return "its answer was cut off"
