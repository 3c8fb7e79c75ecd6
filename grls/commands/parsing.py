"""The parser of a command: errors in one line, and no import that only types need."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from grls.io.option_errors import refuse_options


class VerbParser(ArgumentParser):
    """jsonargparse's parser, with errors of one line instead of the whole usage.

    An option is written out: a beginning of its name, which argparse would take, may mean another option in
    the next version.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error with its remedy and exit with argparse's status, 2."""
        if not self.exit_on_error or os.environ.get("JSONARGPARSE_DEBUG"):
            super().error(message, ex)
        refuse_options(message, self, self.prog, ex)


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
