"""A language model that follows a script, as an engine of DSPy, and a retriever that does as its module."""

from collections.abc import Callable
from typing import Any

import dspy
from reader_helpers import ScriptedRetriever
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from grls.answer.dsp.lm import LinesAdapter, Patience
from grls.answer.dsp.retrieval import Retrieval
from grls.data.corpus import Corpus
from grls.data.types import Passage

CORPUS = Corpus.from_passages([Passage(name, f"text {name}", name.upper()) for name in "abcdef"])


class Script:
    """Replies to what stands behind the last blank line of a prompt; an exception is raised.

    A reply may be a pair: the text, and why it ended. A reply of three also has the log-probabilities of its
    tokens, which it gives if it is asked for them.
    """

    def __init__(self, reply: Callable[..., Any]):
        self.reply = reply
        self.prompts: list[str] = []
        self.seeds: list[int | None] = []

    def complete(self, request: Any) -> Any:
        prompt = request.messages[-1].text
        self.prompts.append(prompt)
        self.seeds.append(request.config.seed)
        said = self.reply(prompt.split("\n\n")[-1], request.config)
        if isinstance(said, Exception):
            raise said
        usage = dspy.lm15.Usage(input_tokens=10, output_tokens=2, total_tokens=12)
        text, reason, *scores = said if isinstance(said, tuple) else (said, "stop")
        scored = [dspy.lm15.TokenLogprob("x", score) for row in scores for score in row]
        given = tuple(scored) if scores and request.config.logprobs is not None else None
        message = dspy.lm15.Message.assistant(text)
        return dspy.lm15.Response(
            id=None, model=request.model, message=message, finish_reason=reason, usage=usage, logprobs=given
        )


def scripted(reply: Callable[..., Any], retries: int = 0) -> tuple[Any, Script]:
    script = Script(reply)
    return dspy.LM("local/script", engine=script, cache=False, num_retries=retries), script


def by_beginning(script: dict[str, Any]) -> Callable[..., Any]:
    """Replies by the first line and the label that ends the prompt: ``question -> label: reply``."""

    def reply(asked: str, config: Any) -> Any:
        lines = asked.splitlines()
        question = next(line for line in lines if line.startswith("Question: "))
        return script[f"{question.removeprefix('Question: ')} -> {lines[-1].rstrip(':')}"]

    return reply


def retrieval(script: dict[str, list[tuple[str, float]]], k: int = 2, scale: Any = "log") -> Retrieval:
    return Retrieval(ScriptedRetriever(script), CORPUS, k, scale)


def patient(attempts: int = 1) -> Patience:
    return Patience(LinesAdapter(), attempts)


def characters() -> PreTrainedTokenizerFast:
    """A tokenizer of fifty characters, a token each."""
    letters = {letter: n + 2 for n, letter in enumerate("abcdefghijklmnopqrstuvwxyz \n:;?.QARF[]0123456789")}
    tokenizer = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, **letters}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")
