"""A DSPy adapter that asks again: when an endpoint fails for a while, or writes what holds no field.

It waits longer each time, and notes every call in the trace. Asking a greedy model the same again would give
the same nonsense, so after nonsense it is asked at a temperature. The module does not know what is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grls.errors import ConfigError
from grls.programs.dsp.needed import dspy
from grls.programs.dsp.trace import note, spend

TEMPERATURE = 0.7
LONGEST_WAIT = 120.0
"""Seconds that an endpoint may ask to be left alone for; at more it is asked after these."""
APART = 1_000_003
"""Seeds of further attempts are so far from that of the first: draws and branches have others."""


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
            try:
                found = self._once(lm, dict(options), signature, demos, inputs)
            except dspy.DSPyError as error:
                note("lm", inputs=inputs, failed=described(error))
                if attempt == self.attempts or not _may_pass(error):
                    raise
                if isinstance(error, dspy.AdapterParseError):
                    options |= _another_draw(lm, lm_kwargs, attempt)
                hint = getattr(error, "retry_after", None) or 0.0
                self._sleep(max(self.wait * 2 ** (attempt - 1), min(hint, LONGEST_WAIT)))
            else:
                note("lm", inputs=inputs, outputs=found[0])
                return found
        raise AssertionError("the last attempt returns or raises")

    def _once(self, lm: Any, options: dict[str, Any], *asked: Any) -> list[dict[str, Any]]:
        with dspy.track_usage() as tracker:
            try:
                return list(self.inner(lm, options, *asked))
            finally:
                spent = [entry for entries in tracker.usage_data.values() for entry in entries]
                read, wrote = (
                    sum(int(entry.get(name) or 0) for entry in spent)
                    for name in ("prompt_tokens", "completion_tokens")
                )
                spend(max(1, len(spent)), read, wrote)


def _another_draw(lm: Any, given: Mapping[str, Any], attempt: int) -> dict[str, Any]:
    """Options under which a model writes something else, and no other draw of the program does the same."""
    asked = {**getattr(lm, "kwargs", {}), **given}
    seed = int(asked.get("seed") or 0)
    return {"temperature": asked.get("temperature") or TEMPERATURE, "seed": seed + APART * attempt}


def described(error: BaseException) -> str:
    """An error in a line: its class, and what it says."""
    said = " ".join(str(error).split())
    if isinstance(error, dspy.AdapterParseError):
        said = f"no field can be read from {error.lm_response!r}"
    return f"{type(error).__name__}: {said[:500]}"


def _may_pass(error: Exception) -> bool:
    """Whether asking again may help: a failure on the way or at the endpoint, or nonsense."""
    lasting = (
        dspy.LMAuthError, dspy.LMBillingError, dspy.LMConfigurationError, dspy.LMInvalidRequestError,
        dspy.LMNotConfiguredError, dspy.LMUnsupportedFeatureError, dspy.LMUnsupportedModelError,
        dspy.ContextWindowExceededError,
    )  # fmt: skip
    return not isinstance(error, lasting)
