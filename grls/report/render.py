"""Writes a page as one HTML file, with its pictures beside it.

The HTML has the frame of :mod:`grls.io.html`. The template engine escapes every text; only pictures go in
unescaped, and their makers have escaped their texts.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from grls.io.files import atomic_file, atomic_folder, refuse_foreign, refuse_unwritable, write_json
from grls.io.html import document
from grls.report.blocks import INK, Gallery, Page, Picture, Table, Text

_INDEX = "figures.json"


def write_report(page: Page, output: str) -> list[Path]:
    """Write ``OUTPUT.html`` and the folder ``OUTPUT-figures`` (SVG), each atomically.

    Args:
        page: The page.
        output: Path without ending.

    Returns:
        The paths written.

    Raises:
        ConfigError: ``OUTPUT-figures`` exists and holds other files.
        WriteError: A file cannot be written.
    """
    refuse_unwritable(output)
    folder = Path(f"{output}-figures")
    refuse_foreign(folder, _INDEX)
    html = render_html(page)
    with atomic_folder(folder, _INDEX) as new:
        shown = pictures(page)
        for picture in shown:
            (new / f"{picture.name}.svg").write_text(standalone(picture), encoding="utf-8")
        write_json(new / _INDEX, {f"{picture.name}.svg": picture.caption for picture in shown})
    file = Path(f"{output}.html")
    with atomic_file(file) as stream:
        stream.write(html)
    return [file, folder]


def render_html(page: Page) -> str:
    """The page as one HTML document."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["gallery"] = lambda block: isinstance(block, Gallery)
    environment.tests["text"] = lambda block: isinstance(block, Text)
    environment.filters["slug"] = lambda text: re.sub(r"\W+", "-", text.lower()).strip("-")
    environment.filters["inline"] = _inline
    body = environment.from_string(_template("page.html")).render(page=page)
    return document(page.title, _template("page.css"), body)


def pictures(page: Page) -> list[Picture]:
    """All pictures in the order of the page."""
    blocks = [block for section in page.sections for part in section.parts for block in part.blocks]
    return [picture for block in blocks if isinstance(block, Gallery) for picture in block.pictures]


def standalone(picture: Picture) -> str:
    """A picture as a separate file, on white because its text is dark."""
    start = picture.svg.index(">", picture.svg.index("<svg")) + 1
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{picture.svg[:start]}{white}{picture.svg[start:]}\n"


def _template(name: str) -> str:
    return files("grls.report").joinpath(name).read_text(encoding="utf-8")


def _inline(picture: Picture) -> Markup:
    """A picture inside HTML, with text in the page's colour; screen readers read the alternative text."""
    return Markup(picture.svg.replace(INK, "currentColor").replace("<svg ", '<svg aria-hidden="true" ', 1))
