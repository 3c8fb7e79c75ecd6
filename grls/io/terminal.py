"""Makes the control characters of foreign text visible, so that they cannot control the terminal.

A passage, a query or an id may hold escape sequences. They could clear the screen, change its title, hide the
text that follows, or write to the clipboard. The module does not know what is shown.
"""

from __future__ import annotations

import json
import logging
from typing import Any

_KEPT = "\n\t"
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {0x7F: "\u2421"}
_ESCAPED = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
_VISIBLE = _PICTURES | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def visible(text: str) -> str:
    """A text with visible signs for its control characters; line breaks and tabs stay."""
    return text.translate(_VISIBLE)


def json_line(value: Any) -> str:
    """A value as one line of JSON, whose control characters are escaped, so that it is read as it was."""
    return json.dumps(value, ensure_ascii=False).translate(_ESCAPED)


class Visible(logging.Formatter):
    """Formats log messages with :func:`visible`, since warnings quote foreign text."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, without control characters."""
        return visible(super().format(record))
