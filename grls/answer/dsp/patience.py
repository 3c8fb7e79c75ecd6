"""A DSPy adapter that asks again: when an endpoint fails for a while, or writes what holds no field.

It waits longer each time, and notes every call in the trace. Asking a greedy model the same again would give
the same nonsense, so after nonsense it is asked at a temperature. The module does not know what is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grls.answer.dsp.heard import Heard, error_line
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.trace import note
from grls.errors import ConfigError

TEMPERATURE = 0.7
LONGEST_WAIT = 120.0
"""Seconds that an endpoint may ask to be left alone for; at more it is asked after these."""
APART = 1_000_003
"""Seeds of further attempts are so far from that of the first: draws and branches have others."""

_NAMELESS = "StringSignature"
"""What DSPy calls every signature that it makes itself."""


class Patience(dspy.Adapter):
    """Retries around another adapter.

    Give the LM ``num_retries=0``: else DSPy repeats each of these attempts, too.

    Args:
        inner: What asks.
        attempts: Most calls for one output.
        wait: Seconds before the second attempt; twice as long before each later one, and longer where the
            endpoint says so, up to ``LONGEST_WAIT``.
        sleep: How to wait.

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
        if attempts < 1 or wait < 0:
            raise ConfigError(
                f"expected attempts of at least 1 and a wait of at least 0, got {attempts} and {wait}."
            )
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

        Raises:
            DSPyError: The last attempt failed, or one failed in a way that waiting does not mend.
        """
        options = dict(lm_kwargs)
        for attempt in range(1, self.attempts + 1):
            heard = Heard(lm)
            step = {"signature": named(signature), "inputs": inputs, "calls": heard.calls}
            try:
                found = list(self.inner(heard, dict(options), signature, demos, inputs))
            except dspy.DSPyError as error:
                note("lm", **step, failed=_why(error, heard.calls))
                if attempt == self.attempts or not _may_pass(error):
                    raise
                if isinstance(error, dspy.AdapterParseError):
                    options |= _another_draw(lm, lm_kwargs, attempt)
                hint = getattr(error, "retry_after", None) or 0.0
                self._sleep(max(self.wait * 2 ** (attempt - 1), min(hint, LONGEST_WAIT)))
            else:
                note("lm", **step, outputs=found[0])
                return found
        raise AssertionError("the last attempt returns or raises")


def named(signature: Any) -> str:
    """The name of a signature; one that DSPy made of another, such as with a reasoning, has that one's.

    A signature without a name is told by its fields.
    """
    if signature.__name__ != _NAMELESS:
        return str(signature.__name__)
    like = (some for some in dspy.Signature.__subclasses__() if some.instructions == signature.instructions)
    names = (some.__name__ for some in like if some.__name__ != _NAMELESS)
    return next(names, str(signature.signature))


def _another_draw(lm: Any, given: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """Options under which a model writes something else, and no other draw of the program does the same."""
    asked = {**getattr(lm, "kwargs", {}), **given}
    seed = int(asked.get("seed") or 0)
    return {"temperature": asked.get("temperature") or TEMPERATURE, "seed": seed + APART * attempt}


def _why(error: BaseException, calls: Sequence[Mapping[str, Any]]) -> str:
    """An error in a line; where an output was cut, that is why it cannot be read."""
    cut = isinstance(error, dspy.AdapterParseError) and bool(calls) and "cut" in calls[-1]
    return error_line(error) + (", which was cut at the length limit" if cut else "")


def _may_pass(error: Exception) -> bool:
    """Whether asking again may help: a failure on the way or at the endpoint, or nonsense."""
    lasting = (
        dspy.LMAuthError, dspy.LMBillingError, dspy.LMConfigurationError, dspy.LMInvalidRequestError,
        dspy.LMNotConfiguredError, dspy.LMUnsupportedFeatureError, dspy.LMUnsupportedModelError,
        dspy.ContextWindowExceededError,
    )  # fmt: skip
    return not isinstance(error, lasting)
