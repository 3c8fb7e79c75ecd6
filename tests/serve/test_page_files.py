"""The page at /: its files, the headers that they are sent with, and what may not be in them."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from shutil import which

import pytest
from serve_helpers import HOSTILE
from starlette.testclient import TestClient

from grls.serve.page.files import INDEX, page_files

FOLDER = Path(str(files("grls.serve.page")))
NAMES = sorted(f.name for f in FOLDER.iterdir() if f.suffix in (".css", ".html", ".js", ".svg"))


def test_the_page_and_its_files(client: TestClient) -> None:
    assert sorted(page_files()) == NAMES
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.content == (FOLDER / INDEX).read_bytes()
    for name in NAMES:
        response = client.get(f"/page/{name}")
        assert response.content == (FOLDER / name).read_bytes()
        assert response.headers["x-content-type-options"] == "nosniff"


def test_a_browser_asks_again_and_gets_only_what_is_new(client: TestClient) -> None:
    first = client.get("/")
    assert first.headers["cache-control"] == "no-cache"
    tag = first.headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        again = client.get("/", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    head = client.head("/")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)


def test_nothing_is_loaded_from_elsewhere_and_no_text_becomes_an_element(client: TestClient) -> None:
    policy = dict(
        part.split(" ", 1) for part in client.get("/").headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    for name in NAMES:
        text = (FOLDER / name).read_text(encoding="utf-8")
        outside = [one for one in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org" not in one]
        assert outside == [], name
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        )
        assert not re.search(r"localStorage\.setItem\([^)]*key", text), name


def test_the_page_has_no_inline_script_or_style(client: TestClient) -> None:
    text = client.get("/").text
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert "<style" not in text
    assert not re.search(r"\s(?:style|on\w+)=", text)
    named = re.findall(r"(?:src|href)=\"(/page/[^\"]+)\"", text)
    assert named
    assert all(client.get(name).status_code == 200 for name in named)


def test_modules_import_files_that_are_there() -> None:
    for name in NAMES:
        if name.endswith(".js"):
            text = (FOLDER / name).read_text(encoding="utf-8")
            assert set(re.findall(r"from \"\./([^\"]+)\"", text)) <= set(NAMES), name


def luminance(colour: str) -> float:
    """The relative luminance of a colour (WCAG 2)."""
    full = colour if len(colour) == 7 else "#" + "".join(2 * one for one in colour[1:])
    parts = [int(full[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXTS = {
    "paper": ("ink", "soft", "thread", "cool", "good"),
    "card": ("ink", "soft", "thread", "cool", "good"),
    "sunk": ("ink", "soft", "cool"),
    "thread-pale": ("ink", "thread"),
    "cool-pale": ("ink", "cool", "soft"),
    "good-pale": ("ink", "good"),
    "gold-pale": ("ink",),
    "thread": ("on-strong",),
    "ink": ("paper",),
    "cool": ("card",),
}
"""Background -> colours of texts on it."""


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrasts_are_those_of_aa(scheme: int) -> None:
    css = (FOLDER / "page.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", css)
    colours = {name: pair[scheme] for name, *pair in pairs}
    for below, texts in TEXTS.items():
        for text in texts:
            assert contrast(colours[below], colours[text]) >= 4.5, (below, text)
    for below in ("paper", "card"):  # borders of fields
        assert contrast(colours[below], colours["edge"]) >= 3, below


@pytest.mark.parametrize("name", ["no.js", "..%2ffiles.py", "files.py", "%00", HOSTILE[0].id])
def test_other_names(client: TestClient, name: str) -> None:
    response = client.get(f"/page/{name}")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.skipif(which("node") is None, reason="needs node")
def test_a_card_begins_at_the_match_and_links_are_no_function_words(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "dom.js", tmp_path / "dom.mjs")
    text = "a file is left alone. " * 20 + "Directories are copied."
    program = f"""
import {{ around, inCommon }} from "./dom.mjs";
const text = {json.dumps(text)};
console.log(around(text, new Set(["copied"])) + "|" + (around(text, new Set(["file"])) === text));
console.log(inCommon("wie kommt das paket an", "das paket, wie es ist").join());
"""
    (tmp_path / "run.mjs").write_text(program)
    done = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert re.fullmatch(r"… [a-z .]+Directories are copied\.\|true", first)
    assert second == "paket"
