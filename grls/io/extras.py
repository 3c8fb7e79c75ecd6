"""Packages that are extras: an import that fails says how to install the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from grls.errors import ConfigError


@contextmanager
def importing(extra: str, who: str) -> Iterator[None]:
    """Import the packages of an extra within this context.

    Args:
        extra: The extra of ``pyproject.toml`` that brings them.
        who: What needs which package, such as ``the retriever for LangChain needs langchain-core``.

    Raises:
        ConfigError: A package cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{who}, which cannot be imported ({error}); run `pip install 'grls[{extra}]'`, or "
            f"`pip install -e '.[{extra}]'` in a checkout."
        ) from None
