"""Language models for DSPy, the adapters that ask them, and the trace of what they answered.

A model (:func:`lm_named`) is a ``dspy.LM`` without a cache: a transformers model in this process
(:class:`LocalEngine`, which continues one prompt at a time), or an endpoint.
:class:`LinesAdapter` is the paper's plain template, :class:`Patience` draws again an output that cannot
be read. The trace belongs to a thread, so steps in threads that a program starts are not noted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grls.answer.dsp.calls import note
from grls.answer.dsp.needed import dspy
from grls.answer.dsp.options import API, CallOptions
from grls.answer.writer import Sampling, TextWriter
from grls.data.codec import foreign_ids
from grls.errors import ConfigError
from grls.models.load.language import load_language_model, model_fingerprint

BLANK = "\n\n"
TIMEOUT = 60.0
"""Seconds to wait for an endpoint."""


class LocalEngine:
    """A transformers model as an engine of ``dspy.LM``; it may be called from several threads.

    Temperature 0, or none, is greedy; at any other the draw depends on the prompt and the request's seed.
    Log-probabilities come without alternatives. ``max_new_tokens`` is the limit of a
    request without one; the messages become one text, after that of the system.
    """

    def __init__(self, model: Any, tokenizer: Any, max_new_tokens: int = 64):
        self.model = model
        self.tokenizer = tokenizer
        self.max_new_tokens = max_new_tokens
        TextWriter(model, tokenizer, max_new_tokens)  # refuses options that cannot work

    def complete(self, request: Any) -> Any:
        config = request.config
        limit = config.max_tokens or self.max_new_tokens
        system = [] if request.system is None else [dspy.lm15.Message.developer(request.system)]
        texts = [message.text or "" for message in (*system, *request.messages)]
        prompt = foreign_ids(self.tokenizer, [BLANK.join(texts)], wrapped=True)[0]
        writer = TextWriter(self.model, self.tokenizer, limit, stops=tuple(config.stop))
        if not prompt or len(prompt) > writer.room:
            raise dspy.lm15.ContextLengthError(
                f"the prompt takes {len(prompt)} tokens; expected from 1 to {writer.room}, the room of the "
                f"model beside {limit} new ones."
            )
        draw = None
        if config.temperature:  # two prompts with the same seed get different draws
            text = f"{config.seed or 0}:{','.join(map(str, prompt))}"
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
            draw = Sampling(config.temperature, seed)
        (written,) = writer.write([prompt], draws=[draw], scored=config.logprobs is not None)
        names = self.tokenizer.convert_ids_to_tokens(list(written.tokens))
        scores = tuple(
            dspy.lm15.TokenLogprob(name, value, token_id=token)
            for name, token, value in zip(names, written.tokens, written.scores, strict=False)
        )
        return dspy.lm15.Response(
            id=None,
            model=request.model,
            message=dspy.lm15.Message.assistant(written.text),
            finish_reason="stop" if written.ended else "length",
            usage=dspy.lm15.Usage(
                input_tokens=len(prompt),
                output_tokens=len(written.tokens),
                total_tokens=len(prompt) + len(written.tokens),
            ),
            logprobs=scores or None,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalEngine:
        return self


def lm_named(
    name: str,
    calls: CallOptions = CallOptions(),  # noqa: B008
    device: str = "auto",
) -> tuple[Any, str | None]:
    """A ``dspy.LM``, asked greedily, and the fingerprint of the weights of a model in this process.

    Args:
        name: A language model in this process; or, with ``calls.endpoint``, the endpoint's name for its
            model; or ``api:`` with provider and model in DSPy's spelling (``api:openai/gpt-4o-mini``),
            whose key is in the environment.
        calls: An endpoint that fails is asked again after 1, 2, 4, … seconds or when it says.
        device: Device of a model in this process.
    """
    new_tokens = calls.filled(name)[1]
    if not calls.is_remote(name):
        model, tokenizer = load_language_model(name, device)
        engine = LocalEngine(model, tokenizer, new_tokens)
        local = dspy.LM(f"local/{Path(name).name}", engine=engine, cache=False, num_retries=0)
        return local, model_fingerprint(model)
    name, url = name.removeprefix(API), calls.endpoint
    address = {} if url is None else {"api_base": url, "api_key": os.environ.get("VLLM_API_KEY", "none")}
    try:
        remote = dspy.LM(
            name if url is None else f"hosted_vllm/{name}",
            engine="lm15",
            cache=False,
            num_retries=calls.attempts - 1,
            temperature=0.0,
            max_tokens=new_tokens,
            timeout=TIMEOUT,
            **address,
        )
    except (ValueError, TypeError, dspy.DSPyError) as error:
        raise ConfigError(f"DSPy cannot use the language model {name!r}: {error}") from None
    return remote, None


def adapter_named(template: str, attempts: int) -> Patience:
    inner = LinesAdapter() if template == "lines" else dspy.ChatAdapter(use_json_adapter_fallback=False)
    return Patience(inner, attempts)


class LinesAdapter(dspy.Adapter):
    """The paper's plain template: a line a field, solved examples above, the next label last.

    It is one user message, for models that were not trained to keep to a format. If the model left out a
    field, the adapter appends its label and asks again, as DSP does.
    """

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: Any,
        demos: Sequence[Mapping[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        written: dict[str, Any] = {}
        names = list(signature.output_fields)
        for n, name in enumerate(names):
            if name in written:
                continue
            prompt = self.prompt(signature, demos, {**inputs, **written}, name)
            stop = ("\n",) if n == len(names) - 1 else (BLANK,)
            settings = {**lm.kwargs, **lm_kwargs}
            known = {name: settings.get(name) for name in ("temperature", "max_tokens", "seed")}
            scores = 0 if settings.get("logprobs") else None  # of the tokens themselves, without alternatives
            config = dspy.lm15.Config(stop=stop, logprobs=scores, **known)
            message = dspy.lm15.Message.user(prompt)
            text = lm(dspy.lm15.Request(model=lm.model, messages=(message,), config=config)).text or ""
            written |= _fields(names[n:], text)
            if name not in written:
                raise dspy.AdapterParseError(
                    "LinesAdapter", signature, text, f"nothing is written for {name!r}."
                )
        return [written]

    def prompt(
        self, signature: Any, demos: Sequence[Mapping[str, Any]], values: Mapping[str, Any], name: str
    ) -> str:
        """The text that the model continues; it ends with the label of the field to write."""
        fields = [*signature.input_fields, *signature.output_fields]
        outputs = set(signature.output_fields)
        solved = [
            "\n".join(_line(field, demo[field]) for field in fields if _says(demo, field))
            for demo in demos
            if any(_says(demo, field) for field in outputs)
        ]
        lines = [_line(field, values[field]) for field in fields if _says(values, field)]
        return BLANK.join([signature.instructions, *solved, "\n".join([*lines, f"{_label(name)}:"])])


def _says(fields: Mapping[str, Any], name: str) -> bool:
    return name in fields and fields[name] not in ("", [], (), None)


def _label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _line(name: str, value: Any) -> str:
    """A field with its label; a list is numbered, each entry on a line of its own."""
    if isinstance(value, list | tuple):
        entries = (f"[{n}] {' '.join(str(entry).split())}" for n, entry in enumerate(value, 1))
        return "\n".join([f"{_label(name)}:", *entries])
    lines = (line.strip() for line in str(value).splitlines())  # a blank one would end the example
    return f"{_label(name)}: " + "\n".join(filter(None, lines))


def _fields(names: Sequence[str], text: str) -> dict[str, Any]:
    """The fields of a text that begins with the value of the first field; empty fields are left out."""
    lines_of: dict[str, list[str]] = {names[0]: []}
    current = names[0]
    for line in text.split(BLANK)[0].splitlines():
        begins = (name for name in names if line.casefold().startswith(f"{_label(name)}:".casefold()))
        label = next(begins, None)
        if label is not None:
            current, line = label, line[len(_label(label)) + 1 :]
            lines_of.setdefault(current, [])
        lines_of[current].append(line.strip())
    texts = {name: " ".join(filter(None, lines)) for name, lines in lines_of.items()}
    return {name: value for name, value in texts.items() if value}


TEMPERATURE = 0.7
LIKELIHOOD = "log_probability"
"""The field of a prediction with the mean log-probability of its tokens (nats), where the caller asks for it
(``logprobs``) and the model gives it."""
APART = 1_000_003
"""Distance between the seeds of two attempts: no draw or branch has such a seed."""

_NAMELESS = "StringSignature"
"""DSPy's name for every signature that it makes itself."""


class Patience(dspy.Adapter):
    """Draws an output again that another adapter cannot read, and notes every call in the trace.

    A greedy model would write the same unreadable output again, so the next call draws at a temperature.
    ``attempts``: the most draws of one output.
    """

    def __init__(self, inner: Any, attempts: int = 3):
        super().__init__()
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
        """Ask until the output can be read; returns it with ``LIKELIHOOD`` where that is known."""
        options = dict(lm_kwargs)
        for attempt in range(1, self.attempts + 1):
            history: list[dict[str, Any]] = []
            watched = lm.copy(update_history=history.append)  # DSPy's history, of this output alone
            step = {"signature": named(signature), "inputs": inputs}
            try:
                outputs = list(self.inner(watched, dict(options), signature, demos, inputs))
            except dspy.DSPyError as error:
                calls = [_call(entry) for entry in history]
                unread = isinstance(error, dspy.AdapterParseError)
                cut = unread and bool(calls) and "cut" in calls[-1]
                why = error_line(error) + (", which was cut at the length limit" if cut else "")
                note("lm", **step, calls=calls, failed=why)
                if attempt == self.attempts or not unread:
                    raise
                usual = {**lm.kwargs, **lm_kwargs}
                seed = int(usual.get("seed") or 0) + APART * attempt  # no other draw of the program has it
                options |= {"temperature": usual.get("temperature") or TEMPERATURE, "seed": seed}
            else:
                names = signature.output_fields
                fields = [{name: output[name] for name in output if name in names} for output in outputs]
                scores = [entry["response"].logprobs for entry in history]
                tokens = [token.logprob for score in scores for token in score or ()]
                if tokens and None not in scores:
                    fields[0][LIKELIHOOD] = sum(tokens) / len(tokens)
                note("lm", **step, calls=[_call(entry) for entry in history], outputs=fields[0])
                return fields
        raise AssertionError("the last attempt returns or raises")


def named(signature: Any) -> str:
    """The name of a signature; one that DSPy derived (adding a reasoning) has the original's name.

    The name of a nameless signature is the list of its fields.
    """
    if signature.__name__ != _NAMELESS:
        return str(signature.__name__)
    kinds = (kind for kind in dspy.Signature.__subclasses__() if kind.instructions == signature.instructions)
    names = (kind.__name__ for kind in kinds if kind.__name__ != _NAMELESS)
    return next(names, str(signature.signature))


def error_line(error: BaseException) -> str:
    message = " ".join(str(error).split())
    if isinstance(error, dspy.AdapterParseError):
        message = f"no field can be read from {error.lm_response!r}"
    return f"{type(error).__name__}: {message[:500]}"


def _call(entry: Mapping[str, Any]) -> dict[str, Any]:
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
