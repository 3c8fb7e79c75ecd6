"""References of docstrings as code: ``:func:`grls.load` `` becomes `` `grls.load` ``."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:func|class|mod|meth|attr|data|exc|obj):`~?([^`]+)`")
ALONE = re.compile(r"^\s*::\s*$\n?", re.MULTILINE)
BEFORE_CODE = re.compile(r"::[ \t]*$", re.MULTILINE)


def plain(text: str) -> str:
    """A docstring in Markdown: no roles, and at most one colon before a block of code."""
    return BEFORE_CODE.sub(":", ALONE.sub("\n", ROLE.sub(r"`\1`", text)))


class Roles(griffe.Extension):
    """Goes through all docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
