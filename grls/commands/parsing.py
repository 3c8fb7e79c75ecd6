"""The parts of the parser of a command: no import that only types need, and help from docstrings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any


@contextmanager
def types_at_run_time() -> Iterator[None]:
    """Keep jsonargparse from importing what stands under ``TYPE_CHECKING``.

    Those imports take seconds, and no option has a type from there.
    """
    from jsonargparse import _postponed_annotations as annotations

    visitor: Any = annotations.TypeCheckingVisitor
    before = visitor.update_aliases
    visitor.update_aliases = lambda *_: None
    try:
        yield
    finally:
        visitor.update_aliases = before


def positional_parameters(function: Callable[..., None]) -> dict[str, Parameter]:
    """The parameters before ``*``; empty where all are options."""
    every = signature(function).parameters
    if not any(one.kind is Parameter.KEYWORD_ONLY for one in every.values()):
        return {}
    return {name: one for name, one in every.items() if one.kind is Parameter.POSITIONAL_OR_KEYWORD}


def _docstring(function: Callable[..., None]) -> Any:
    from docstring_parser import parse

    return parse(function.__doc__ or "")


def command_help(function: Callable[..., None]) -> str:
    """The help of a command: the docstring of its function without the parameters."""
    doc = _docstring(function)
    return "\n\n".join(text for text in (doc.short_description, doc.long_description) if text)


def option_helps(function: Callable[..., None]) -> dict[str, str]:
    """The help of each parameter of the function of a command."""
    return {param.arg_name: param.description or "" for param in _docstring(function).params}
