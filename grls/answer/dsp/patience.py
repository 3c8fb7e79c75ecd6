"""A DSPy adapter that asks again if an endpoint fails for a while, or writes an output without a field.

It waits longer each time, and notes every call in the trace (:class:`Heard`): prompt, raw output, tokens,
and whether the output was cut. A greedy model would write the same unreadable output again, so the next call
draws at a temperature. The module does not know the task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.trace import note
from grls.errors import at_least

TEMPERATURE = 0.7
LONGEST_WAIT = 120.0
"""Most seconds to wait when an endpoint asks for a pause."""
LIKELIHOOD = "log_probability"
"""The field of a prediction with the mean log-probability of its tokens (nats), where the caller asks for it
(``logprobs``) and the model gives it."""
APART = 1_000_003
"""Distance between the seeds of two attempts, so that they differ from those of draws and branches."""

_OPTIONS = ("temperature", "max_tokens", "max_completion_tokens", "seed", "top_p", "stop")
_NAMELESS = "StringSignature"
"""DSPy's name for every signature that it makes itself."""


class Patience(dspy.Adapter):
    """Retries around another adapter.

    Give the LM ``num_retries=0``: otherwise DSPy also repeats each of these attempts.

    Args:
        inner: The adapter that asks.
        attempts: Most calls for one output.
        wait: Seconds before the second attempt; twice as long before each later one, and longer if the
            endpoint says so, up to ``LONGEST_WAIT``.
        sleep: The function that waits.

    Raises:
        ConfigError: ``attempts`` is below 1, or ``wait`` below 0.
    """

    def __init__(
        self,
        inner: Any,
        attempts: int = 3,
        wait: float = 1.0,
        sleep: Callable[[float], object] = time.sleep,
    ):
        super().__init__()
        at_least(1, attempts=attempts)
        at_least(0, wait=wait)
        self.inner = inner
        self.attempts = attempts
        self.wait = wait
        self._sleep = sleep

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: Any,
        demos: Sequence[Mapping[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Ask until there is an answer.

        Returns:
            The outputs of the inner adapter, with ``LIKELIHOOD`` where it is known.

        Raises:
            DSPyError: The last attempt failed, or an attempt failed with an error that waiting does not mend.
        """
        options = dict(lm_kwargs)
        for attempt in range(1, self.attempts + 1):
            heard = Heard(lm)
            step = {"signature": named(signature), "inputs": inputs, "calls": heard.calls}
            try:
                outputs = list(self.inner(heard, dict(options), signature, demos, inputs))
            except dspy.DSPyError as error:
                note("lm", **step, failed=_why(error, heard.calls))
                if attempt == self.attempts or not _may_pass(error):
                    raise
                if isinstance(error, dspy.AdapterParseError):
                    options |= _another_draw(lm, lm_kwargs, attempt)
                hint = getattr(error, "retry_after", None) or 0.0
                self._sleep(max(self.wait * 2 ** (attempt - 1), min(hint, LONGEST_WAIT)))
            else:
                if (mean := heard.mean_score()) is not None:
                    outputs[0] = {**outputs[0], LIKELIHOOD: mean}
                note("lm", **step, outputs=outputs[0])
                return outputs
        raise AssertionError("the last attempt returns or raises")


def named(signature: Any) -> str:
    """The name of a signature; a signature that DSPy derived (adding a reasoning) has the original's name.

    The name of a nameless signature is the list of its fields.
    """
    if signature.__name__ != _NAMELESS:
        return str(signature.__name__)
    like = (each for each in dspy.Signature.__subclasses__() if each.instructions == signature.instructions)
    names = (each.__name__ for each in like if each.__name__ != _NAMELESS)
    return next(names, str(signature.signature))


def _another_draw(lm: Any, options: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """Options that make the model write something else, with a seed that no other draw of the program has."""
    asked = {**getattr(lm, "kwargs", {}), **options}
    seed = int(asked.get("seed") or 0)
    return {"temperature": asked.get("temperature") or TEMPERATURE, "seed": seed + APART * attempt}


def _why(error: BaseException, calls: Sequence[Mapping[str, Any]]) -> str:
    """An error on one line; it also says if the output cannot be read because it was cut."""
    cut = isinstance(error, dspy.AdapterParseError) and bool(calls) and "cut" in calls[-1]
    return error_line(error) + (", which was cut at the length limit" if cut else "")


def _may_pass(error: Exception) -> bool:
    """Whether another call may help: the network or the endpoint failed, or the output cannot be read."""
    lasting = (
        dspy.LMAuthError, dspy.LMBillingError, dspy.LMConfigurationError, dspy.LMInvalidRequestError,
        dspy.LMNotConfiguredError, dspy.LMUnsupportedFeatureError, dspy.LMUnsupportedModelError,
        dspy.ContextWindowExceededError,
    )  # fmt: skip
    return not isinstance(error, lasting)


class Heard:
    """Stands in for a ``dspy.LM`` while one output is asked for.

    Args:
        lm: The model.

    Attributes:
        calls: The calls as JSON values, in order: ``prompt`` (the text of a single message, else a list of
            role and text), ``output`` as it came or ``failed``, ``tokens_read`` and ``tokens_written`` (0 if
            the model does not say), and ``cut`` if the length limit cut the output.
        scores: Of each call that was answered, the log-probabilities of its tokens (nats); None if the model
            gives none, or was not asked for them.
    """

    def __init__(self, lm: Any):
        self._lm = lm
        self.calls: list[dict[str, Any]] = []
        self.scores: list[list[float] | None] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lm, name)

    def __call__(self, request: Any = None, *, messages: Any = None, **options: Any) -> Any:
        """The response to a request, or the texts that answer messages.

        Raises:
            DSPyError: The model failed.
        """
        if messages is None:
            return self._asked(request)
        settings = {**self._lm.kwargs, **options}
        known = {name: settings[name] for name in _OPTIONS if settings.get(name) is not None}
        if settings.get("logprobs") is not None:
            known |= {"logprobs": True, "top_logprobs": settings["logprobs"]}
        body = {"model": self._lm.model, "messages": messages, **known}
        return [self._asked(dspy.lm15.request_from_openai_chat(body)).text]

    def mean_score(self) -> float | None:
        """The mean log-probability of the tokens of all calls (nats); None if a call has none."""
        tokens = [score for scores in self.scores for score in scores or ()]
        return sum(tokens) / len(tokens) if tokens and None not in self.scores else None

    def _asked(self, request: Any) -> Any:
        call: dict[str, Any] = {"prompt": _prompt(request)}
        self.calls.append(call)
        with dspy.track_usage() as tracker:
            try:
                response = self._lm(request)
            except dspy.DSPyError as error:
                call["failed"] = error_line(error)
                raise
            else:
                call["output"] = response.text or ""
                given = response.logprobs
                self.scores.append(None if given is None else [token.logprob for token in given])
                if response.finish_reason == "length":
                    call["cut"] = True
            finally:
                spent = [entry for entries in tracker.usage_data.values() for entry in entries]
                for field, usage in (("tokens_read", "prompt"), ("tokens_written", "completion")):
                    call[field] = sum(int(entry.get(f"{usage}_tokens") or 0) for entry in spent)
        return response


def error_line(error: BaseException) -> str:
    """An error on one line: its class and its message."""
    said = " ".join(str(error).split())
    if isinstance(error, dspy.AdapterParseError):
        said = f"no field can be read from {error.lm_response!r}"
    return f"{type(error).__name__}: {said[:500]}"


def _prompt(request: Any) -> Any:
    turns = [[message.role, message.text or ""] for message in request.messages]
    if request.system is not None:
        said = request.system
        text = said if isinstance(said, str) else "".join(part.text for part in said)
        turns.insert(0, ["system", text])
    return turns[0][1] if len(turns) == 1 else turns
