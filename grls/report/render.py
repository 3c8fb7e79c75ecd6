"""Writes a page as one HTML file, and as Markdown with its pictures beside it.

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
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~$])")


def write_report(page: Page, output: str) -> list[Path]:
    """Write ``OUTPUT.html``, ``OUTPUT.md`` and the folder ``OUTPUT-figures`` (SVG), each atomically.

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
    html, markdown = render_html(page), render_markdown(page, folder.name)
    with atomic_folder(folder, _INDEX) as new:
        shown = pictures(page)
        for picture in shown:
            (new / f"{picture.name}.svg").write_text(standalone(picture), encoding="utf-8")
        write_json(new / _INDEX, {f"{picture.name}.svg": picture.caption for picture in shown})
    written = [Path(f"{output}.html"), Path(f"{output}.md")]
    for path, text in zip(written, (html, markdown), strict=True):
        with atomic_file(path) as stream:
            stream.write(text)
    return [*written, folder]


def render_html(page: Page) -> str:
    """The page as one HTML document."""
    environment = _environment(autoescape=True)
    environment.filters["inline"] = _inline
    body = environment.from_string(_template("page.html")).render(page=page)
    return document(page.title, _template("page.css"), body)


def render_markdown(page: Page, folder: str) -> str:
    """The page as Markdown (with GitHub's tables).

    Args:
        page: The page.
        folder: Folder of the pictures, relative to the file.
    """
    environment = _environment(autoescape=False)
    environment.filters["md"] = _escaped
    environment.filters["url"] = _url
    text = environment.from_string(_template("page.md")).render(page=page, folder=folder)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def pictures(page: Page) -> list[Picture]:
    """All pictures in the order of the page."""
    blocks = [block for section in page.sections for part in section.parts for block in part.blocks]
    return [picture for block in blocks if isinstance(block, Gallery) for picture in block.pictures]


def standalone(picture: Picture) -> str:
    """A picture as a separate file, on white because its text is dark."""
    start = picture.svg.index(">", picture.svg.index("<svg")) + 1
    white = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return f"{picture.svg[:start]}{white}{picture.svg[start:]}\n"


def _environment(autoescape: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=autoescape, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.tests["table"] = lambda block: isinstance(block, Table)
    environment.tests["gallery"] = lambda block: isinstance(block, Gallery)
    environment.tests["text"] = lambda block: isinstance(block, Text)
    environment.filters["slug"] = _slug
    environment.filters["heads"] = _flat_heads
    return environment


def _template(name: str) -> str:
    return files("grls.report").joinpath(name).read_text(encoding="utf-8")


def _inline(picture: Picture) -> Markup:
    """A picture inside HTML, with text in the page's colour; screen readers read the alternative text."""
    return Markup(picture.svg.replace(INK, "currentColor").replace("<svg ", '<svg aria-hidden="true" ', 1))


def _flat_heads(table: Table) -> list[str]:
    """One line of headings; a heading over several columns stands before each heading below it."""
    over = [group.text for group in table.groups for _ in range(group.span)] or [""] * len(table.heads)
    return [f"{group} {head}".strip() for group, head in zip(over, table.heads, strict=True)]


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split())).replace("&", "&amp;")


def _url(text: str) -> str:
    return f"<{re.sub(r'[<>]', '', text)}>"
