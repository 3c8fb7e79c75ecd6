"""How a text gets into a page: the one place that escapes.

Three rules hold for every page of the server: a text goes through :func:`escaped` into elements and
attributes (which are always quoted), data go through :func:`embedded` into a script element of type
``application/json``, and no text becomes part of a style, a script or an address.
"""

from __future__ import annotations

import json
from html import escape

from grls.io.terminal import visible


def escaped(text: object) -> str:
    """A text for elements and quoted attributes, with visible control characters."""
    return escape(visible(str(text)), quote=True)


def embedded(content: object) -> str:
    """Data as JSON, which cannot end the script element that holds it."""
    plain = json.dumps(content)
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
