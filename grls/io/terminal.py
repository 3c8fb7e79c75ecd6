"""Makes the control characters of foreign text visible, so that they cannot control the terminal.

A passage, a query or an id may hold escape sequences. They could clear the screen, change its title, hide the
text that follows, or write to the clipboard. The module does not know what is shown.
"""

from __future__ import annotations

import logging

_KEPT = "\n\t"
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {0x7F: "\u2421"}
_VISIBLE = _PICTURES | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def visible(text: str) -> str:
    """A text with visible signs for its control characters; line breaks and tabs stay."""
    return text.translate(_VISIBLE)


class Visible(logging.Formatter):
    """Formats log messages with :func:`visible`, since warnings quote foreign text."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, without control characters."""
        return visible(super().format(record))
