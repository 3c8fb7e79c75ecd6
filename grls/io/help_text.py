"""The texts of ``--help``: lists and paragraphs in the width of the terminal, and no command cut in two."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping
from typing import Any

_WIDEST_NAME = 16
_MARGIN = "  "


def name_lines(texts: Mapping[str, str], width: int | None = None) -> str:
    """Lines of names with their texts beside them; a text that is too long goes on below itself.

    Args:
        texts: Name -> text.
        width: Characters of a line; None: those of the terminal.
    """
    columns = width or _columns()
    edge = max([_WIDEST_NAME, *(len(name) + 1 for name in texts)]) + len(_MARGIN) + 1
    lines = []
    for name, text in texts.items():
        rows = textwrap.wrap(text, max(columns - edge, 20), break_on_hyphens=False) or [""]
        lines += [f"{_MARGIN}{name}".ljust(edge) + rows[0], *(" " * edge + row for row in rows[1:])]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _columns() -> int:
    return shutil.get_terminal_size().columns - 2  # as argparse


def paragraphs(text: str, width: int | None = None, indent: str = "") -> str:
    """A text whose paragraphs are filled one by one; a paragraph that is indented is a list, and stays."""
    width = width or _columns()
    parts = [part.strip("\n") for part in re.split(r"\n\s*\n", text)]
    filled = [
        part
        if part.startswith(_MARGIN)
        else textwrap.fill(part, width, initial_indent=indent, subsequent_indent=indent)
        for part in parts
    ]
    return "\n\n".join(filled)


def formatter() -> Any:
    """The class that formats the help of a command."""
    from jsonargparse import DefaultHelpFormatter  # its import takes a while

    class InParagraphs(DefaultHelpFormatter):
        def _fill_text(self, text: str, width: int, indent: str) -> str:
            return paragraphs(text, width, indent)

    return InParagraphs
