"""A DSPy adapter that draws again where an output cannot be read, and notes every call in the trace.

A greedy model would write the same unreadable output again, so the next call draws at a temperature. An
endpoint that fails is asked again by DSPy (``num_retries`` of the LM), which also counts tokens and keeps the
history of which the trace is made. The module does not know the task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grls.answer.dsp.needed import dspy
from grls.answer.dsp.trace import note
from grls.errors import at_least

TEMPERATURE = 0.7
LIKELIHOOD = "log_probability"
"""The field of a prediction with the mean log-probability of its tokens (nats), where the caller asks for it
(``logprobs``) and the model gives it."""
APART = 1_000_003
"""Distance between the seeds of two attempts, so that they differ from those of draws and branches."""

_NAMELESS = "StringSignature"
"""DSPy's name for every signature that it makes itself."""


class Patience(dspy.Adapter):
    """Draws an output again that another adapter cannot read.

    Args:
        inner: The adapter that asks.
        attempts: Most draws of one output.

    Raises:
        ConfigError: ``attempts`` is below 1.
    """

    def __init__(self, inner: Any, attempts: int = 3):
        super().__init__()
        at_least(1, attempts=attempts)
        self.inner = inner
        self.attempts = attempts

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: Any,
        demos: Sequence[Mapping[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Ask until the output can be read.

        Returns:
            The outputs of the inner adapter, with ``LIKELIHOOD`` where it is known.

        Raises:
            DSPyError: The model failed, or the last output cannot be read.
        """
        options = dict(lm_kwargs)
        for attempt in range(1, self.attempts + 1):
            history: list[dict[str, Any]] = []
            asked = lm.copy(update_history=history.append)  # DSPy's history, of this output alone
            step = {"signature": named(signature), "inputs": inputs}
            try:
                outputs = list(self.inner(asked, dict(options), signature, demos, inputs))
            except dspy.DSPyError as error:
                calls = [_call(entry) for entry in history]
                unread = isinstance(error, dspy.AdapterParseError)
                cut = unread and bool(calls) and "cut" in calls[-1]
                why = error_line(error) + (", which was cut at the length limit" if cut else "")
                note("lm", **step, calls=calls, failed=why)
                if attempt == self.attempts or not unread:
                    raise
                now = {**lm.kwargs, **lm_kwargs}  # a seed that no other draw of the program has
                seed = int(now.get("seed") or 0) + APART * attempt
                options |= {"temperature": now.get("temperature") or TEMPERATURE, "seed": seed}
            else:
                fields = [{k: v for k, v in one.items() if k in signature.output_fields} for one in outputs]
                scores = [entry["response"].logprobs for entry in history]
                tokens = [token.logprob for score in scores for token in score or ()]
                if tokens and None not in scores:
                    fields[0][LIKELIHOOD] = sum(tokens) / len(tokens)
                note("lm", **step, calls=[_call(entry) for entry in history], outputs=fields[0])
                return fields
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


def error_line(error: BaseException) -> str:
    """An error on one line: its class and its message."""
    said = " ".join(str(error).split())
    if isinstance(error, dspy.AdapterParseError):
        said = f"no field can be read from {error.lm_response!r}"
    return f"{type(error).__name__}: {said[:500]}"


def _call(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A call of the trace (:class:`~grls.answer.dsp.trace.ProgramTrace`) from an entry of DSPy's history."""
    turns = [[message["role"], message["content"]] for message in entry["messages"]]
    response = entry["response"]
    usage = entry["usage"]
    call = {
        "prompt": turns[0][1] if len(turns) == 1 else turns,
        "output": response.text or "",
        "tokens_read": int(usage.get("prompt_tokens") or 0),
        "tokens_written": int(usage.get("completion_tokens") or 0),
    }
    return call | ({"cut": True} if response.finish_reason == "length" else {})
