"""Language models for DSPy: a transformers model in this process, or an endpoint.

Both are ``dspy.LM``. The local one is an engine of ours that takes DSPy's requests from any thread and
batches the waiting requests (see ``gather``); DSPy's client asks an endpoint, again if it fails for a while.
Neither keeps a cache, in memory or on disk. The module does not know the task.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from grls.answer.dialogue import in_turns
from grls.answer.dsp.gather import Gathered
from grls.answer.dsp.needed import dspy
from grls.answer.writer import Continuation, Sampling, TextWriter
from grls.data.codec import foreign_ids
from grls.errors import ConfigError


class _Job(NamedTuple):
    prompt: list[int]
    stops: tuple[str, ...]
    limit: int
    draw: Sampling | None
    scored: bool


class LocalEngine:
    """A transformers model as an engine of ``dspy.LM``; it may be called from several threads.

    Temperature 0, or no temperature, is greedy. At any other temperature, the draw depends on the prompt and
    the request's seed, not on the rest of the batch. A request for log-probabilities gets those of the tokens
    that were written, without alternatives.

    Args:
        model: A causal model or an encoder-decoder.
        tokenizer: Its tokenizer.
        max_new_tokens: Length limit of a request without one.
        batch_size: Most requests written together.
        chat: Write the prompt with the model's chat template; else the messages become one text.

    Raises:
        ConfigError: There is no chat template, a count is below 1, or the tokenizer is not the model's.
    """

    def __init__(
        self, model: Any, tokenizer: Any, max_new_tokens: int = 64, batch_size: int = 8, chat: bool = False
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.max_new_tokens = max_new_tokens
        self.batch_size = batch_size
        self.chat = chat
        self._writer((), max_new_tokens)  # refuses options that cannot work
        if chat:
            in_turns(tokenizer, [{"role": "user", "content": "?"}])
        self._write = Gathered(self._batch, batch_size)

    def complete(self, request: Any) -> Any:
        """Write the answer to a request.

        Raises:
            ContextLengthError: The model has no room for it.
        """
        config = request.config
        limit = config.max_tokens or self.max_new_tokens
        turns = [{"role": message.role, "content": message.text or ""} for message in request.messages]
        if request.system is not None:
            said = request.system
            system = said if isinstance(said, str) else "".join(part.text for part in said)
            turns.insert(0, {"role": "system", "content": system})
        if self.chat:
            prompt = in_turns(self.tokenizer, turns)
        else:
            text = "\n\n".join(turn["content"] for turn in turns)
            prompt = foreign_ids(self.tokenizer, [text], wrapped=True)[0]
        room = self._writer((), limit).room
        if not prompt or (room is not None and len(prompt) > room):
            raise dspy.lm15.ContextLengthError(
                f"the prompt takes {len(prompt)} tokens; expected from 1 to {room}, the room of the model "
                f"beside {limit} new ones."
            )
        draw = None
        if config.temperature:  # two prompts with the same seed get different draws
            text = f"{config.seed or 0}:{','.join(map(str, prompt))}"
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
            draw = Sampling(config.temperature, seed)
        written = self._write(_Job(prompt, tuple(config.stop), limit, draw, config.logprobs is not None))
        names = self.tokenizer.convert_ids_to_tokens([token for token, _ in written.scored])
        scores = tuple(
            dspy.lm15.TokenLogprob(name, value, token_id=token)
            for name, (token, value) in zip(names, written.scored, strict=True)
        )
        return dspy.lm15.Response(
            id=None,
            model=request.model,
            message=dspy.lm15.Message.assistant(written.text),
            finish_reason="stop" if written.ended else "length",
            usage=dspy.lm15.Usage(
                input_tokens=len(prompt),
                output_tokens=written.tokens,
                total_tokens=len(prompt) + written.tokens,
            ),
            logprobs=scores or None,
        )

    def stream(self, request: Any) -> Iterator[Any]:
        """The answer as events, all at once."""
        yield from dspy.lm15.response_to_events(self.complete(request))

    def close(self) -> None:
        """Do nothing: the engine holds no resource."""

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalEngine:
        return self

    def _writer(self, stops: tuple[str, ...], limit: int) -> TextWriter:
        return TextWriter(self.model, self.tokenizer, limit, self.batch_size, stops)

    def _batch(self, jobs: Sequence[_Job]) -> list[Continuation]:
        """Write for several requests; those with the same stops, limit and wish for scores share a batch."""
        continuations: dict[int, Continuation] = {}
        for kind in dict.fromkeys((job.stops, job.limit, job.scored) for job in jobs):
            places = [n for n, job in enumerate(jobs) if (job.stops, job.limit, job.scored) == kind]
            group = [jobs[place] for place in places]
            stops, limit, scored = kind
            written = self._writer(stops, limit).write(
                [job.prompt for job in group], draws=[job.draw for job in group], scored=scored
            )
            continuations |= zip(places, written, strict=True)
        return [continuations[place] for place in range(len(jobs))]


def local_lm(engine: LocalEngine, name: str) -> Any:
    """A ``dspy.LM`` of a model in this process; ``name`` is what DSPy calls it."""
    return dspy.LM(f"local/{name}", engine=engine, cache=False, num_retries=0)


def endpoint_lm(
    name: str,
    url: str | None = None,
    max_new_tokens: int = 64,
    timeout: float = 60.0,
    retries: int = 0,
) -> Any:
    """A ``dspy.LM`` of an endpoint, asked greedily.

    Args:
        name: With ``url`` the endpoint's name for its model; else provider and model in DSPy's spelling, such
            as ``openai/gpt-4o-mini``, with the key in the environment.
        url: Address of an OpenAI-compatible endpoint, such as vLLM's ``http://localhost:8000/v1``. If it
            needs a key, put the key into ``VLLM_API_KEY``.
        max_new_tokens: Length limit of an answer.
        timeout: Seconds to wait for an answer.
        retries: Most repetitions of a failed call, after 1, 2, 4, … seconds or when the endpoint says.

    Raises:
        ConfigError: DSPy does not know the provider, or a number is out of range.
    """
    if max_new_tokens < 1 or not timeout > 0:
        raise ConfigError(
            "expected max_new_tokens of at least 1 and a timeout above 0, got "
            f"{max_new_tokens} and {timeout}."
        )
    where = {} if url is None else {"api_base": url, "api_key": os.environ.get("VLLM_API_KEY", "none")}
    try:
        return dspy.LM(
            name if url is None else f"hosted_vllm/{name}",
            engine="lm15",
            cache=False,
            num_retries=retries,
            temperature=0.0,
            max_tokens=max_new_tokens,
            timeout=timeout,
            **where,
        )
    except (ValueError, TypeError, dspy.DSPyError) as error:
        raise ConfigError(f"DSPy cannot use the language model {name!r}: {error}") from None
