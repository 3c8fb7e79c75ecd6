"""A language model that follows a script, and a retriever that follows another."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from grls.answer.writer import Continuation, Spent, TextWriter
from grls.data.types import Hit, Query


def characters() -> PreTrainedTokenizerFast:
    """A token a character."""
    letters = {chr(n): n - 9 for n in range(10, 127)} | {"<eos>": 0}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


class ScriptedWriter:
    """Replies to a prompt as a function of what stands behind its examples."""

    max_new_tokens = 8

    def __init__(self, reply: Callable[[str], str], room: float = math.inf):
        self.tokenizer = characters()
        self.reply = reply
        self.room = room
        self.spent = Spent()
        self.prompts: list[list[str]] = []

    write_each: Any = TextWriter.write_each

    def write(
        self, prompts: Sequence[Sequence[int]], decided: Callable[[int], object] | None = None, _: Any = None
    ) -> list[Continuation]:
        texts = ["".join(self.tokenizer.convert_ids_to_tokens(list(row))) for row in prompts]
        assert all(len(text) <= self.room for text in texts)
        asked = [text.split("\n\n")[-1] for text in texts]
        self.prompts.append(asked)
        if decided is not None:
            decided(len(asked))
        return [Continuation(self.reply(text), 3, True) for text in asked]


class ScriptedRetriever:
    """Finds what a script says for a query's text, with its scores."""

    def __init__(self, script: dict[str, list[tuple[str, float]]]):
        self.script = script
        self.asked: list[list[str]] = []

    def retrieve(self, queries: Sequence[Query], k: int, allow: Any = None) -> list[list[Hit]]:
        self.asked.append([query.text for query in queries])
        return [[Hit(*pair) for pair in self.script.get(query.text, [])[:k]] for query in queries]
