"""Foreign text in a terminal: what would steer it is made visible.

A passage, a query or an id may hold escape sequences: they would clear the screen, change its title, hide
what follows, or write to the clipboard. It knows nothing of what is shown.
"""

from __future__ import annotations

import logging

_KEPT = "\n\t"
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {0x7F: "\u2421"}
_VISIBLE = _PICTURES | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def visible(text: str) -> str:
    """A text whose control characters are signs; line breaks and tabs stay, all else is as it was."""
    return text.translate(_VISIBLE)


class Visible(logging.Formatter):
    """Warnings quote texts, too."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, as :func:`visible` gives it."""
        return visible(super().format(record))
