"""The paper's plain template as a DSPy adapter: a line a field, solved examples above, the next label last.

It is for models that were not trained to keep to a format. If the model left out a field, the adapter appends
the label of the field and asks again, as DSP does, so an output is complete unless the model writes nothing.
The adapter makes DSPy requests, which any engine of ``dspy.LM`` takes. The module does not know the programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grls.answer.dsp.needed import dspy

BLANK = "\n\n"


class LinesAdapter(dspy.Adapter):
    """One user message: instructions, demonstrations, and the fields so far; blank lines between them."""

    def __call__(
        self,
        lm: Any,
        lm_kwargs: dict[str, Any],
        signature: Any,
        demos: Sequence[Mapping[str, Any]],
        inputs: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Have the model write the output fields.

        Raises:
            AdapterParseError: The model wrote nothing for one of them.
        """
        written: dict[str, Any] = {}
        names = list(signature.output_fields)
        for place, name in enumerate(names):
            if name in written:
                continue
            prompt = self.prompt(signature, demos, {**inputs, **written}, name)
            stop = ("\n",) if place == len(names) - 1 else (BLANK,)
            settings = {**lm.kwargs, **lm_kwargs}
            known = {name: settings.get(name) for name in ("temperature", "max_tokens", "seed")}
            scores = 0 if settings.get("logprobs") else None  # of the tokens themselves, without alternatives
            config = dspy.lm15.Config(stop=stop, logprobs=scores, **known)
            message = dspy.lm15.Message.user(prompt)
            text = lm(dspy.lm15.Request(model=lm.model, messages=(message,), config=config)).text or ""
            written |= _fields(names[place:], text)
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
        asked = [
            *(_line(field, values[field]) for field in fields if _says(values, field)),
            f"{_label(name)}:",
        ]
        return BLANK.join([signature.instructions, *solved, "\n".join(asked)])

    def format(
        self, signature: Any, demos: Sequence[Mapping[str, Any]], inputs: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The prompt for the first output field, as DSPy shows it."""
        first = next(iter(signature.output_fields))
        return [{"role": "user", "content": self.prompt(signature, demos, inputs, first)}]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        """The output fields of a text that continues the first field's label; missing fields are absent."""
        return _fields(list(signature.output_fields), completion)


def _says(fields: Mapping[str, Any], name: str) -> bool:
    """Whether a field is there and not empty."""
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
    now = names[0]
    for line in text.split(BLANK)[0].splitlines():
        begins = (name for name in names if line.casefold().startswith(f"{_label(name)}:".casefold()))
        label = next(begins, None)
        if label is not None:
            now, line = label, line[len(_label(label)) + 1 :]
            lines_of.setdefault(now, [])
        lines_of[now].append(line.strip())
    texts = {name: " ".join(filter(None, lines)) for name, lines in lines_of.items()}
    return {name: value for name, value in texts.items() if value}
