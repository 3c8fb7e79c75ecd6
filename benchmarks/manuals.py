"""A data set of questions that people would ask: Python's docstrings and Debian's manual pages.

    python -m benchmarks.manuals --output data/manuals

It needs no download: passages are cut from the modules and manual pages of this machine, and
``manuals.jsonl`` holds the questions with the places of their answers. A place is a title and a heading
(``heapq > nlargest``); where the section has several passages, also words of the one that is meant
(``find(1) > TESTS: -mtime n``). Versions of Python and Debian differ: a question is left out, and counted,
if this machine lacks a passage of it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from types import ModuleType

from jsonargparse import auto_cli

from grls.data.corpus import Corpus
from grls.data.dataset import read_queries, write_dataset
from grls.data.documents import Document, Documents, html_document, passages_of
from grls.data.types import Passage
from grls.data.words import count

QUESTIONS = Path(__file__).with_suffix(".jsonl")
MODULES = """
bisect builtins collections configparser contextlib copy csv datetime difflib filecmp fileinput fnmatch
functools getpass glob graphlib gzip hashlib heapq html itertools json os.path pathlib pprint queue
random re sched secrets shelve shlex shutil statistics string subprocess tempfile textwrap threading time
timeit traceback urllib.parse urllib.request warnings webbrowser zipfile
"""
PAGES = """
adduser.8 adduser.conf.5 apt-get.8 apt-mark.8 apt_preferences.5 chage.1 date.1 deb-version.7
debconf-set-selections.1 dpkg-divert.1 dpkg-reconfigure.8 dpkg.1 find.1 flock.1 fstab.5 glob.7 hosts.5
mktemp.1 nice.1 nohup.1 nsswitch.conf.5 passwd.1 resolv.conf.5 run-parts.8 shred.1 sort.1 sources.list.5
split.1 systemd.time.7 systemd.timer.5 tail.1 timeout.1 update-alternatives.1 update-rc.d.8 xargs.1
"""
WORDS = 100
"""Most words of a passage."""
LEAST = 8
"""A docstring of fewer words says no more than its name."""
Section = tuple[int, str, str]
"""Level, heading and text."""


def page(name: str, title: str, sections: Sequence[Section], named: str, target: str) -> Document:
    """A page of its sections, with a link wherever a text matches ``named``."""
    html = [f"<h1>{title}</h1>"]
    for level, heading, text in sections:
        linked = re.sub(named, rf'<a href="{target}">\g<0></a>', escape(text, quote=False))
        html.append(f'<h{level} id="{escape(heading)}">{escape(heading)}</h{level}><pre>{linked}</pre>')
    return html_document(name, "\n".join(html))._replace(places=())


def members(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Functions, classes and their methods by name."""
    for name in getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"]):
        value = getattr(module, name)
        if inspect.isroutine(value) or inspect.isclass(value):
            yield name, value
        if inspect.isclass(value):
            yield from ((f"{name}.{inner}", each) for inner, each in vars(value).items() if inner[0] != "_")


def python_pages() -> Iterator[Document]:
    """A page of each module, with a section of each docstring; the second of two equal ones is left out."""
    seen = set[str]()
    for name in MODULES.split():
        module = importlib.import_module(name)
        sections = [(2, "", inspect.getdoc(module) or "")]
        for path, value in members(module):
            text = inspect.cleandoc(str(value.__doc__ or ""))
            if count(text) >= LEAST and text not in seen and value.__doc__ != type(value).__doc__:
                sections.append((2, path, text))
                seen.add(text)
        own = "|".join(re.escape(heading) for _, heading, _ in sections[1:]) or "(?!)"
        yield page(name, name, sections, rf"(?<![\w.])(?:{own})(?=\()", rf"{name}#\g<0>")


def debian_pages() -> Iterator[Document]:
    """The manual pages that are on this machine."""
    if shutil.which("man") is None:
        return
    settings = os.environ | {"LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
    for name in PAGES.split():
        title, _, part = name.rpartition(".")
        command = ["man", "--encoding=ascii", "--nh", "--nj", part, title]
        text = subprocess.run(command, env=settings, capture_output=True, text=True, check=False).stdout
        _, *lines = re.split(r"^(   )?(\S.*)\n", text, flags=re.MULTILINE)
        sections = [
            (3 if indent else 2, heading, textwrap.dedent(below))
            for indent, heading, below in zip(*[iter(lines)] * 3, strict=True)
        ][1:-1]  # the first line and the last are those of every page
        if sections:
            yield page(name, f"{title}({part})", sections, r"([\w.+-]+)\((\d)\)", r"\1.\2")


def main(output: Path) -> None:
    """Write the data set; all questions are of the split test.

    Args:
        output: Folder to write; an earlier one is replaced.
    """
    documents = Documents([*python_pages(), *debian_pages()], [], {})
    passages, metadata, _ = passages_of(documents, WORDS)
    places: dict[str, list[Passage]] = {}
    for passage, about in zip(passages, metadata, strict=True):
        place = " > ".join(filter(None, (passage.title, about.get("heading"))))
        places.setdefault(place, []).append(passage)

    def found(key: str) -> str:
        place, _, words = key.partition(": ")
        return next((each.id for each in places.get(place, ()) if words in " ".join(each.text.split())), "")

    asked = read_queries(QUESTIONS)
    queries = [query._replace(evidence=tuple(map(found, query.evidence))) for query in asked]
    queries = [query for query in queries if all(query.evidence)]
    qrels = {query.id: dict.fromkeys(query.evidence, 1) for query in queries}
    write_dataset(output, Corpus.from_passages(passages, metadata=metadata), queries, {"test": qrels})
    print(f"{output}: {len(passages):,} passages of {len(documents.read)} pages, {len(queries)} questions")
    if missing := len(asked) - len(queries):
        print(f"left out, since this machine lacks their passages: {missing} questions")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
