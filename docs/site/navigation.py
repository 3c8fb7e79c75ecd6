"""The navigation: pages that mkdocs.yml does not list follow at the end of their folder's section."""

from pathlib import Path
from typing import Any

from docs.site import commands, reference

SECTIONS = {
    "start": "Start",
    "concepts": "Concepts",
    "guides": "Guides",
    "extend": "Extend",
    "results": "Results",
    "": "Results",
}
"""Folder of docs/ -> the section of its pages that mkdocs.yml does not list."""


def complete(nav: list[Any], folder: Path) -> list[Any]:
    """The navigation with all pages.

    Args:
        nav: Sections as in mkdocs.yml: ``{title: [page, …]}``.
        folder: The folder of the pages.
    """
    listed = set(_pages(nav))
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    full = [{title: list(pages) if isinstance(pages, list) else pages} for title, pages in _items(nav)]
    sections = {title: pages for one in full for title, pages in one.items()}
    for page in found:
        if page not in listed:
            sections[SECTIONS[page.rpartition("/")[0]]].append(page)
    sections["Reference"] += [{"Python": reference.places()}, {"Commands": commands.places()}]
    return full


def _items(nav: list[Any]) -> list[tuple[str, Any]]:
    return [item for one in nav for item in one.items()]


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages(part)]
