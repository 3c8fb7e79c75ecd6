"""The parser of a training stage: errors in one line, and whole numbers that stay whole.

It does not know the meaning of any option.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn, Union, get_args, get_origin

from lightning.pytorch.cli import LightningArgumentParser

from grls.errors import ConfigError
from grls.io.option_errors import plain_option_error, refuse_options


class Parser(LightningArgumentParser):
    """Lightning's parser, with errors of one line instead of pages of usage; options are written out."""

    called = "grls train"
    """The command as it is typed."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def add_class_arguments(self, *args: Any, **kwargs: Any) -> list[str]:
        """Add the options of a class; see :func:`whole_numbers_first`."""
        added: list[str] = super().add_class_arguments(*args, **kwargs)
        for action in self._actions:
            if hasattr(action, "_typehint"):
                action._typehint = whole_numbers_first(action._typehint)
        return added

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Print the error with its remedy and exit with argparse's status, 2."""
        if not self.exit_on_error or os.environ.get("JSONARGPARSE_DEBUG"):
            super().error(message, ex)
        refuse_options(message, self, self.called, ex)


class RaisingParser(Parser):
    """The parser of calls from Python, which raises its errors."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise the error with its remedy.

        Raises:
            ConfigError: Always, but for a parser within a parser, whose error the outer one reports.
        """
        if not self.exit_on_error:
            super().error(message, ex)
        line = plain_option_error(message, self, self.called)
        raise ConfigError(f"{line} `{self.called} --help` lists the options.") from ex


def whole_numbers_first(kind: Any) -> Any:
    """A union of types with ``int`` before ``float``; any other type as it is.

    The first type that fits decides, and a whole number fits both: ``limit_train_batches: 1`` is one batch,
    1.0 the whole epoch. Python caches unions without their order, so that ``Optional[Union[int,
    float]]`` has the order of whichever module was imported first.
    """
    kinds = get_args(kind)
    if get_origin(kind) is not Union or not {int, float} <= set(kinds):
        return kind
    others = [each for each in kinds if each not in (int, float)]
    first = min(kinds.index(int), kinds.index(float))
    before = [each for each in kinds[:first] if each in others]
    return Union[(*before, int, float, *others[len(before) :])]
