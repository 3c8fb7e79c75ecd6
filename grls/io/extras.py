"""Packages that are extras: an import that fails says how to install the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grls.errors import ConfigError


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """A block of imports that need an extra.

    Args:
        extra: The extra.
        what: What needs it, for the error.

    Raises:
        ConfigError: A package of the extra is not installed, or cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the extra {extra} ({error}); run `pip install 'grls[{extra}]'`, or "
            f"`pip install -e '.[{extra}]'` in a checkout."
        ) from None
