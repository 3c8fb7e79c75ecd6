"""Options that are lists of texts: a single text is a list of one, and not a list of its letters."""

from __future__ import annotations

from typing import Any

from grls.errors import ConfigError


def list_texts(options: Any, *names: str) -> None:
    """Make lists of single texts in fields of a dataclass of options; called by its ``__post_init__``.

    Args:
        options: The options, which may be frozen.
        names: The fields; each holds a text, or a list, tuple or set of texts, or None if its type says so.

    Raises:
        ConfigError: A field holds something else.
    """
    for name in names:
        value, kind = getattr(options, name), str(type(options).__annotations__[name])
        texts = [value] if isinstance(value, str) else value
        if value is None and kind.endswith("None"):
            continue
        if not isinstance(texts, list | tuple | set | frozenset) or not all(
            isinstance(t, str) for t in texts
        ):
            raise ConfigError(f"{name}: expected a text or a list of texts, got {value!r}.")
        object.__setattr__(options, name, list(texts) if kind.startswith("list") else tuple(texts))
