"""Documents as passages: text, Markdown, HTML, PDF and DOCX files, cut by their headings and sentences.

Every kind of file becomes one :class:`Document`: its plain text, and where in it headings, links and lines of
the file stand. Markdown (by markdown-it) and DOCX (by mammoth) are read as the HTML that they stand for. A
passage lies within one section. It ends with a paragraph where that has room, else with a sentence, a line or
a word. What cannot be read is told, with the reason, and nothing else is left out.
"""

from __future__ import annotations

import logging
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from posixpath import dirname, join, normpath
from stat import S_ISREG
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.data.words import count as count_words
from grls.data.words import pieces
from grls.errors import DataError
from grls.io.progress import Progress, counted

_MARKDOWN, _HTML = (".md", ".markdown"), (".html", ".htm", ".xhtml")

MOST_BYTES = 100 << 20
"""A larger file is no document for people."""

_SKIPPED = {"script", "style", "template", "noscript", "svg", "nav", "footer"}
"""HTML elements whose text is none of the document."""
_PARAGRAPHS = {
    "p", "div", "section", "article", "main", "header", "aside", "ul", "ol", "dl", "table", "pre",
    "blockquote", "figure", "hr", "h1", "h2", "h3", "h4", "h5", "h6",
    "details", "center", "form", "fieldset", "address", "dialog",
}  # fmt: skip
_LINES = {"li", "tr", "dt", "dd", "br", "caption", "figcaption", "summary", "legend", "option", "button"}
_WHOLE = ("script", "style", "title", "textarea", "iframe", "xmp", "noembed", "noframes", "plaintext")
"""HTML elements in which no tags are read up to their end."""
_INLINE = {
    "a", "abbr", "b", "big", "cite", "code", "col", "colgroup", "del", "dfn", "em", "font", "i", "img",
    "input", "ins", "kbd", "label", "mark", "picture", "q", "s", "samp", "small", "span", "strike", "strong",
    "sub", "sup", "tbody", "td", "tfoot", "th", "thead", "tt", "u", "var", "wbr",
}  # fmt: skip
_MARKUP = (_PARAGRAPHS | _LINES | _INLINE) - {"main", "form", "address", "dialog", "option"}
"""A tag in Markdown is one of these or has an attribute; others are words, such as ``List<String>``."""
_TAG = re.compile(r"</?([a-zA-Z][^\s<>/]*+)[^<>]*+>")
_ENDED = re.compile(r"<(script|style|svg)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_VISIBLE = re.compile(r"\S")
_WIKI = re.compile(r"(!?)\[\[([^\[\]|\n]+)(?:\|([^\[\]\n]*))?\]\]")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(?=(?:#.*\n)*[\"']?[\w-]+[\"']?:)((?s:.*?)\r?\n)---[ \t]*\r?\n")
_FRONT_TITLE = re.compile(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", re.MULTILINE)
_CHARSET = re.compile(rb"<meta[^>]{0,80}charset=[\"']?([\w-]+)", re.IGNORECASE)
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_PERMALINK = re.compile(r"\s*[¶#\U0001f517]+$")
_ATTRIBUTES = re.compile(r"\s*\{:?([^{}]*)\}$")
_INDEXES = ("index.html", "index.htm", "index.md", "README.md")
_ENDINGS = (".md", ".html", ".htm", "/index.html", "/index.md")


class WrittenLink(NamedTuple):
    """A link out of a document: where in its text, and its target as written."""

    at: int
    target: str
    wiki: bool = False


class Heading(NamedTuple):
    """A heading, which is the text from ``start`` to ``end``; level 1 is the highest."""

    start: int
    end: int
    level: int


class Document(NamedTuple):
    """The text of a file.

    Attributes:
        name: Its path within the folder, with ``/``.
        title: Its title; without one, its name.
        titled: The heading that is the title, if one is.
        places: Places in the text and the number of the line (of a PDF, of the page) that begins there.
        unit: ``line`` or ``page``.
    """

    name: str
    title: str
    text: str
    headings: Sequence[Heading] = ()
    titled: Heading | None = None
    links: Sequence[WrittenLink] = ()
    anchors: Mapping[str, int] = MappingProxyType({})
    places: Sequence[tuple[int, int]] = ()
    unit: str = "line"


class Unread(NamedTuple):
    """A file, or several of a kind, that gave no passages, and why."""

    name: str
    why: str


class Documents(NamedTuple):
    """What a folder holds.

    Attributes:
        others: Names of the files that are there but not read, which links may name; of one with the text of
            a document, that document.
    """

    read: list[Document]
    unread: list[Unread]
    others: dict[str, str]

    def table(self) -> str:
        """What was not read, a line each; of the same reason so many, and how many more."""
        lines, reasons = list[Unread](), Counter[str]()
        for each in self.unread:
            reason = each.why.partition(" (")[0].partition(" as ")[0]
            reasons[reason] += 1
            if reasons[reason] <= _SHOWN:
                lines.append(each)
        lines += [
            Unread(f"{count - _SHOWN} more", reason) for reason, count in reasons.items() if count > _SHOWN
        ]
        wide = min(60, max((len(name) for name, _ in lines), default=0))
        return "\n".join(f"  {name:<{wide}}  {why}" for name, why in lines)


def read_documents(files: Sequence[Path], root: Path, least_words: int = 1) -> Documents:
    """Read files, each named by its path from ``root``; files with fewer words are told as unread."""
    read: list[Document] = []
    unread: list[Unread] = []
    unknown: Counter[str] = Counter()
    first: dict[tuple[str, str, tuple[str, ...]], str] = {}
    others: dict[str, str] = {}
    with Progress(len(files), "read", "files") as bar:
        for file in files:
            name = Path(os.path.relpath(file, root)).as_posix()
            reader = READERS.get(file.suffix.lower())
            others[name] = ""
            if reader is None:
                unknown[file.suffix] += 1
            else:
                try:
                    if name != _shown(name):
                        raise DataError("a name that is no UTF-8; rename it")
                    if file.stat().st_size > MOST_BYTES:
                        raise DataError(f"larger than {MOST_BYTES >> 20} MB; split it")
                    document = reader(file, name)
                    words = count_words(document.text)
                    if not words:
                        raise DataError("no text" + (_SCAN if document.unit == "page" else ""))
                    if words < least_words:
                        raise DataError(f"fewer than {counted(least_words, 'word')}")
                    title = "" if document.title == name else document.title
                    targets = tuple(link.target for link in document.links)
                    others[name] = first.setdefault((title, document.text, targets), name)
                    if others[name] != name:
                        raise DataError(f"the same text as {others[name]}")
                    read.append(document)
                    del others[name]
                except (DataError, OSError) as error:
                    unread.append(Unread(_shown(name), str(error)))
            bar.update()
    if unknown:
        kinds = ", ".join(f"{count} {ending}" for ending, count in unknown.most_common(8))
        more = ", …" if len(unknown) > 8 else ""
        unread.append(Unread(counted(unknown.total(), "file"), f"of other kinds: {kinds}{more}"))
    return Documents(read, unread, others)


_SHOWN = 10  # unread files of one reason that a table names
_SCAN = " (a scan? recognise it first, such as by ocrmypdf)"


_MADE = ("grls.json", "fit.json", "fit.jsonl")
"""What a folder holds that grls wrote, such as the output of `grls fit`."""


def document_files(source: Path) -> tuple[list[Path], list[Unread]]:
    """The files of a folder in the order of their names, but hidden ones; and what else is in it.

    Links are followed, but to no folder twice.
    """
    files: list[Path] = []
    unread: list[Unread] = []
    seen: dict[str, str] = {}

    def leave(path: str | Path, why: str) -> None:
        unread.append(Unread(_shown(Path(os.path.relpath(path, source)).as_posix()), why))

    def failed(error: OSError) -> None:
        leave(error.filename, f"a folder that cannot be read ({error.strerror})")

    for folder, inner, names in os.walk(source, onerror=failed, followlinks=True):
        first = seen.setdefault(os.path.realpath(folder), folder)
        if first != folder:
            leave(folder, f"the same folder as {_shown(os.path.relpath(first, source))}")
            inner.clear()
        elif folder != str(source) and not {*_MADE}.isdisjoint(names):
            leave(folder, "a folder that grls wrote")
            inner.clear()
        else:
            inner[:] = [name for name in inner if name[0] != "."]
            inner.sort(key=lambda name: (Path(folder, name).is_symlink(), name))
            for path in (Path(folder, name) for name in names if name[0] != "."):
                try:
                    if S_ISREG(path.stat().st_mode):
                        files.append(path)
                    else:
                        leave(path, "no usual file")
                except OSError as error:
                    leave(path, f"cannot be read ({error.strerror})")
    return sorted(files), unread


def _shown(name: str) -> str:
    """A name with what is no UTF-8 of it escaped."""
    return name.encode(errors="backslashreplace").decode()


def passages_of(documents: Documents, words: int) -> tuple[list[Passage], list[dict[str, Any]], list[str]]:
    """The passages of documents, of at most ``words`` words, with metadata; and links that lead nowhere.

    Metadata are ``file``; ``line`` (or ``page``) where the passage begins; ``heading``, where it stands under
    one; and ``links``, ids of passages that its text links to, where there are some.
    """
    cut = {document.name: _Cut(document, words) for document in documents.read}
    links, lost = _links(cut, documents.others)
    passages = [passage for each in cut.values() for passage in each.passages]
    metadata = [each for file in cut.values() for each in file.metadata]
    for passage, each in zip(passages, metadata, strict=True):
        if passage.id in links:
            each["links"] = links[passage.id]
    return passages, metadata, lost


class _Cut:
    """The passages of a document, and where in its text each begins."""

    def __init__(self, document: Document, words: int):
        self.document = document
        self.passages: list[Passage] = []
        self.metadata: list[dict[str, Any]] = []
        self.starts: list[int] = []
        path: list[Heading] = []
        edges = [*document.headings, Heading(len(document.text), len(document.text), 0)]
        if edges[0].start > 0:
            edges.insert(0, Heading(0, 0, 0))
        for heading, following in pairwise(edges):
            if heading.level and heading != document.titled:
                path = [*(above for above in path if above.level < heading.level), heading]
            elif heading == document.titled:
                path = []
            trail = " > ".join(document.text[above.start : above.end] for above in path)
            parts = _parts(document.text, heading.end, following.start, words - count_words(trail), words)
            if not parts and trail and following.level <= heading.level:
                parts = [(heading.end, heading.end)]  # a heading of nothing is a text of its own
            if not parts and not self.passages and following == edges[-1]:
                parts = [(0, len(document.text))]  # so is a title
            for number, (start, end) in enumerate(parts):
                begin = heading.start if number == 0 else start
                text = "\n".join(filter(None, (trail, document.text[start:end].strip())))
                place = bisect_right(document.places, begin, key=lambda each: each[0]) - 1
                about: dict[str, Any] = {"file": document.name}
                about |= {document.unit: document.places[max(place, 0)][1]} if document.places else {}
                about |= {"heading": trail} if trail else {}
                self.passages.append(Passage(f"{document.name}:{len(self.passages)}", text, document.title))
                self.metadata.append(about)
                self.starts.append(begin)

    def at(self, place: int) -> str:
        """The id of the passage at a place of the text."""
        return self.passages[max(bisect_right(self.starts, place) - 1, 0)].id


def _parts(text: str, start: int, end: int, words: int, most: int) -> list[tuple[int, int]]:
    """Where the passages of a part of a text begin and end: nearly equal ones of whole units."""
    words = max(words, most // 2, 1)
    units = list(_units(text, start, end, words))
    if not units:
        return []
    sizes = [count_words(text[a:b]) for a, b in units]
    total = sum(sizes)
    fair = total / -(-total // words)
    parts, held = [units[0]], sizes[0]
    for (a, b), size in zip(units[1:], sizes[1:], strict=True):
        if held >= fair or held + size > words:
            parts.append((a, b))
            held = size
        else:
            parts[-1] = (parts[-1][0], b)
            held += size
    return parts


def _units(text: str, start: int, end: int, words: int, depth: int = 0) -> Iterator[tuple[int, int]]:
    """The largest units of at most ``words`` words: paragraphs, or else sentences, lines, words."""
    if not text[start:end].strip():
        return
    if depth == len(_SPLITS) or count_words(text[start:end]) <= words:
        yield start, end
        return
    at = start
    for unit in _SPLITS[depth](text[start:end]):
        if written := unit.strip():
            at = text.index(written, at)
            yield from _units(text, at, at + len(written), words, depth + 1)
            at += len(written)


_SPLITS: tuple[Callable[[str], list[str]], ...] = (
    re.compile(r"\n\s*\n").split, sentences, str.splitlines, pieces,
)  # fmt: skip


def _links(files: dict[str, _Cut], others: dict[str, str]) -> tuple[dict[str, list[str]], list[str]]:
    """The ids that each passage links to; and links to files that are not there, in words."""
    there = {*files, *others}
    folders = {"."} | {above.as_posix() for name in there for above in Path(name).parents}
    pages: dict[str, list[str]] = {}  # what a wiki link may write -> files
    for name in sorted(there):
        for parts in (Path(name).parts, Path(name).with_suffix("").parts):
            for n in range(len(parts)):
                pages.setdefault(_page("/".join(parts[n:])), []).append(name)
    links: dict[str, list[str]] = {}
    lost = []
    for name, cut in files.items():
        for at, target, wiki in cut.document.links:
            if _OUTSIDE.match(target):
                continue
            written, _, fragment = map(str.strip, target.partition("#"))
            if wiki:
                named = pages.get(_page(written), [""])
                aim = min(named, key=lambda other: (other not in files, dirname(other) != dirname(name)))
            else:
                written, fragment = unquote(written.partition("?")[0]), unquote(fragment)
                aim = normpath(join("/" if written[:1] == "/" else dirname(name), written)).lstrip("/")
                if aim not in there:
                    aims = [join("" if aim == "." else aim, index) for index in _INDEXES]
                    aims += [f"{aim}{ending}" for ending in _ENDINGS]
                    aim = next((other for other in aims if other in there), aim)
            if not written:
                aim = name
            aim = others.get(aim) or aim
            if aim.partition("/")[0] == "..":
                continue
            if aim in files:
                of, to = cut.at(at), files[aim].at(files[aim].document.anchors.get(slug(fragment), 0))
                if to != of and to not in links.get(of, ()):
                    links.setdefault(of, []).append(to)
            elif aim not in there and aim not in folders:
                lost.append(f"{name}: {target}")
    return links, lost


def slug(heading: str) -> str:
    """A heading as links name it, as on GitHub."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.casefold())).strip("-")


def _page(title: str) -> str:
    """A file as wiki links name it: case and ``_`` for a space do not matter."""
    return title.replace("_", " ").casefold()


def _decoded(file: Path, charset: str | None = None) -> str:
    raw = file.read_bytes()
    if b"\0" in raw[:4096] and raw[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError("no text, though its ending says so")
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else charset or "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        if charset is None and (named := _CHARSET.search(raw[:4096])) is not None:
            return _decoded(file, named[1].decode())
        raise DataError(f"no UTF-8 text ({error}); convert it, such as by iconv") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read_text(file: Path, name: str) -> Document:
    return document_of(name, _decoded(file))


def text_document(name: str, text: str) -> Document:
    """A plain text; a short first line with an empty one behind it is its title."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    places = list(zip(starts, range(1, len(starts) + 1), strict=True))
    first = re.match(r"\s*(\S[^\n]{0,79}[^\s.,:;])[ \t]*\n[ \t]*\n", text)
    title = None if first is None else Heading(first.start(1), first.end(1), 1)
    headings = [] if title is None else [title]
    return Document(name, name if first is None else first[1], text, headings, title, places=places)


def document_of(name: str, text: str, title: str = "") -> Document:
    """A text by the ending of its name: Markdown, HTML, or else plain."""
    ending = Path(name).suffix.lower()
    if ending in _HTML:
        document = html_document(name, text)
    else:
        document = markdown_document(name, text) if ending in _MARKDOWN else text_document(name, text)
    return document._replace(title=title, titled=None) if title else document


def entry_documents(entries: Sequence[tuple[str, str, str]]) -> Documents:
    """Documents of names, texts and titles; without a text, the title is the text."""
    read = [document_of(name, text if text.strip() else title, title) for name, text, title in entries]
    unread = [Unread(each.name, "no text") for each in read if not count_words(each.text)]
    return Documents([each for each in read if count_words(each.text)], unread, {})


def markdown_document(name: str, text: str) -> Document:
    """A Markdown text, read as its HTML; a heading can be the aim of a link by its words."""
    from markdown_it import MarkdownIt

    front = _FRONT.match(text)
    if front is not None:
        text = "\n" * front[0].count("\n") + text[front.end() :]
    markdown = MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table")
    tokens = markdown.parse(text)
    if max((token.level for token in tokens), default=0) >= _DEEPEST - 1:
        raise DataError(f"lists or quotes {_DEEPEST // 2} deep; no text has as many")
    for token in tokens:
        if token.map is not None and token.nesting >= 0:
            token.attrSet("data-line", str(token.map[0] + 1))
            if token.type == "html_block":
                token.content = f'<p data-line="{token.map[0] + 1}"></p>{_markup(token.content)}'
        for part in token.children or ():
            if part.type == "html_inline":
                part.content = _markup(part.content)
    page = _Page(markdown=True)
    page.feed(markdown.renderer.render(tokens, markdown.options, {}))
    titled = _FRONT_TITLE.search(front[1]) if front is not None else None
    return page.document(name, "" if titled is None else titled[1])


_DEEPEST = 100  # blocks within blocks of Markdown; a list and its item are two


def _markup(text: str) -> str:
    """HTML in Markdown, without drawings and scripts."""
    text = _ENDED.sub("", text)
    if "-->" not in text[text.rfind("<!--") :]:
        text = text.replace("<!--", "&lt;!--")
    return _TAG.sub(_tag_of_markdown, text)


def _tag_of_markdown(tag: re.Match[str]) -> str:
    """A tag as HTML, or as the words that it is."""
    name, markup = tag[1].lower(), "=" in tag[0]
    if name in _SKIPPED or name in _WHOLE:
        return "" if markup else escape(tag[0])
    return tag[0] if markup or name in _MARKUP else escape(tag[0])


def html_document(name: str, text: str) -> Document:
    text = _without_endless(text)
    page = _Page()
    page.feed(text)
    if page.skipped:  # an element that never ends: nothing is left out, then
        page = _Page(skip=frozenset({"script", "style"}))
        page.feed(text)
    return page.document(name)


def _without_endless(text: str) -> str:
    """A page without beginnings of scripts, titles and comments that never end, for these take the rest."""
    for tag in _WHOLE:
        end = max((found.end() for found in re.finditer(rf"</{tag}\s*>", text, re.IGNORECASE)), default=0)
        text = text[:end] + re.sub(rf"<{tag}\b[^>]*>", "", text[end:], flags=re.IGNORECASE)
    end = text.rfind("-->") + 1
    return text[:end] + text[end:].replace("<!--", "")


def _read_pdf(file: Path, name: str) -> Document:
    try:
        from pypdf import PdfReader
    except ImportError:
        raise DataError(_EXTRA) from None
    logging.getLogger("pypdf").setLevel(logging.ERROR)
    try:
        pdf = PdfReader(file)
        pages = [page.extract_text() for page in pdf.pages]
        title = pdf.metadata.title if pdf.metadata else None
    except MemoryError:
        raise
    except Exception as error:  # whatever is wrong with it
        raise DataError(f"no PDF that can be read ({error})") from None
    places, text = [], ""
    for number, page in enumerate(pages, 1):
        places.append((len(text), number))
        text += f"{page}\n\n"
    return Document(name, (title or "").strip() or name, text, places=places, unit="page")


def _read_docx(file: Path, name: str) -> Document:
    try:
        import mammoth
    except ImportError:
        raise DataError(_EXTRA) from None
    try:
        with file.open("rb") as stream:
            page = mammoth.convert_to_html(stream, convert_image=mammoth.images.img_element(lambda _: {}))
    except MemoryError:
        raise
    except Exception as error:  # of zipfile and XML parsers, whatever is wrong with it
        raise DataError(f"no DOCX that can be read ({error})") from None
    return html_document(name, page.value)._replace(places=())


_EXTRA = "needs an extra: `pip install 'grls[documents]'`"


class _Page(HTMLParser):
    """The text of a page of HTML, with its headings, links and anchors."""

    def __init__(self, markdown: bool = False, skip: frozenset[str] = frozenset(_SKIPPED)):
        super().__init__()
        self._markdown = markdown
        self._skip = skip
        self.skipped: list[str] = []
        self._text: list[str] = []
        self._size = 0
        self._ends = 2  # line ends at the end of the text; at its beginning none is needed
        self._code = self._pre = 0
        self._line = 0  # of the code that begins
        self._in_title = False
        self._titles: list[str] = []
        self._heading: tuple[int, int, int] | None = None  # level; where it begins in the text, in its parts
        self._headings: list[Heading] = []
        self._links: list[WrittenLink] = []
        self._anchors: dict[str, int] = {}
        self._places: list[tuple[int, int]] = []
        self._slugs: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if self.skipped:
            if tag == self.skipped[-1]:
                self.skipped.append(tag)
            return
        if tag in self._skip:
            self.skipped.append(tag)
            return
        if tag in _PARAGRAPHS or tag in _LINES:
            self._break(1 + (tag in _PARAGRAPHS))
        if line := self._line_of(tag, values):
            self._places.append((self._size, line))
            self._line = line + (tag == "code")  # the line behind the fence
        for anchor in (values.get("id"), values.get("name") if tag == "a" else None):
            if anchor:
                self._anchors.setdefault(slug(anchor), self._size)
        if tag == "a" and values.get("href"):
            self._links.append(WrittenLink(self._size, values["href"]))
        elif tag == "title":
            self._in_title = True
        elif re.fullmatch("h[1-6]", tag):
            self._heading = int(tag[1]), self._size, len(self._text)
        elif tag in ("td", "th") and not self._ends:
            self._strip()
            self._add(" | ")
        elif tag == "img":
            self.handle_data(f" {values.get('alt', '')} ")
        self._pre += tag == "pre"
        self._code += tag in ("code", "pre")

    def _line_of(self, tag: str, values: dict[str, str]) -> int:
        """The line of a tag that begins a place, else 0."""
        if self._markdown:
            return int(values.get("data-line", 0))
        return self.getpos()[0] if tag in _PARAGRAPHS or tag in _LINES else 0

    def handle_endtag(self, tag: str) -> None:
        if self.skipped:
            if tag == self.skipped[-1]:
                self.skipped.pop()
            return
        if tag == "title":
            self._in_title = False
        if tag in ("code", "pre"):
            self._code = max(0, self._code - 1)
            self._pre = max(0, self._pre - (tag == "pre"))
        if self._heading is not None and re.fullmatch("h[1-6]", tag):
            self._end_heading()
        if tag in _PARAGRAPHS or tag in _LINES:
            self._break(1 + (tag in _PARAGRAPHS))

    def _end_heading(self) -> None:
        assert self._heading is not None
        (level, start, part), self._heading = self._heading, None
        written = "".join(self._text[part:])
        words = _PERMALINK.sub("", written.strip()).strip()
        attributes = _ATTRIBUTES.search(words) if self._markdown else None
        if attributes is not None:
            words = words[: attributes.start()]
            for name in re.findall(r"#([\w.-]+)", attributes[1]):
                self._anchors.setdefault(slug(name), start)
        if not words:
            return
        begin, self._size, self._ends = start, start + len(words), 0
        self._text[part:] = [words]
        self._headings.append(Heading(begin, self._size, level))
        if self._markdown:
            name = slug(words)
            again = f"{name}-{self._slugs[name]}" if self._slugs[name] else name
            self._anchors.setdefault(again, begin)
            self._slugs[name] += 1

    def handle_data(self, data: str) -> None:
        if self.skipped:
            return
        if self._in_title:
            self._titles.append(data)
        elif self._pre:
            line = self._line if self._markdown else self.getpos()[0]
            ends = [found.end() for found in re.finditer("\n", data)]
            self._places += [(self._size + end, line + number) for number, end in enumerate(ends, 1)]
            self._line = line + len(ends)
            self._add(data)
        elif self._markdown and not self._code and "[[" in data:
            end = 0
            for link in _WIKI.finditer(data):
                self._words(data[end : link.start()])
                if not link[1]:
                    self._links.append(WrittenLink(self._size, link[2].strip(), True))
                self._words(link[3] or link[2])
                end = link.end()
            self._words(data[end:])
        else:
            self._words(data)

    def _words(self, data: str) -> None:
        text = re.sub(r"\s+", " ", data)
        spaced = self._ends or (self._text and self._text[-1].endswith(" "))
        self._add(text.lstrip() if spaced else text)

    def _add(self, text: str) -> None:
        if text:
            self._text.append(text)
            self._size += len(text)
            self._ends = min(2, len(text) - len(text.rstrip("\n")))

    def _strip(self) -> None:
        """Drop the space at the end."""
        if not self._pre and self._text and self._text[-1].endswith(" "):
            self._text[-1] = self._text[-1][:-1]
            self._size -= 1

    def _break(self, lines: int) -> None:
        self._strip()
        if self._ends < lines and self._text:
            needed = "\n" * (lines - self._ends)
            self._text.append(needed)
            self._size += len(needed)
            self._ends = lines

    def document(self, name: str, title: str = "") -> Document:
        self.close()
        if self._heading is not None:
            self._end_heading()
        text = "".join(self._text)
        starts = {heading.start for heading in self._headings}
        for anchor, at in self._anchors.items():
            following = _VISIBLE.search(text, at)
            if following is not None and following.start() in starts:
                self._anchors[anchor] = following.start()
        top = next((h for h in self._headings if h.level == 1), None)
        if top is None and self._headings and not text[: self._headings[0].start].strip():
            top = self._headings[0]
        if not title:
            title = "" if top is None else " ".join(text[top.start : top.end].split())
        elif top is not None and " ".join(text[top.start : top.end].split()) != title:
            top = None
        title = title or " ".join("".join(self._titles).split()) or name
        return Document(name, title, text, self._headings, top, self._links, self._anchors, self._places)


READERS: dict[str, Callable[[Path, str], Document]] = {
    **dict.fromkeys(("", ".txt", ".text", ".rst", *_MARKDOWN, *_HTML), _read_text),
    ".pdf": _read_pdf,
    ".docx": _read_docx,
}
"""Ending of a file -> its reader."""
