"""A ``dspy.LM`` that records every call: prompt, raw output, tokens, and whether the output was cut.

An adapter asks it as it asks a ``dspy.LM``. Messages become a request of DSPy, because only the response to a
request says whether the length limit cut the output. The module does not know the task.
"""

from __future__ import annotations

from typing import Any

from grls.answer.dsp.needed import dspy

_OPTIONS = ("temperature", "max_tokens", "max_completion_tokens", "seed", "top_p", "stop")


class Heard:
    """Stands in for a ``dspy.LM`` while one output is asked for.

    Args:
        lm: The model.

    Attributes:
        calls: The calls as JSON values, in order: ``prompt`` (the text of a single message, else a list of
            role and text), ``output`` as it came or ``failed``, ``tokens_read`` and ``tokens_written`` (0 if
            the model does not say), and ``cut`` if the length limit cut the output.
    """

    def __init__(self, lm: Any):
        self._lm = lm
        self.calls: list[dict[str, Any]] = []

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
        body = {"model": self._lm.model, "messages": messages, **known}
        return [self._asked(dspy.lm15.request_from_openai_chat(body)).text]

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
