"""The parser of a command: errors in one line, and no import that only types need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from jsonargparse import ArgumentParser

from grls.io.option_errors import refuse_options


class VerbParser(ArgumentParser):
    """jsonargparse's parser, with errors of one line instead of the whole usage."""

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
