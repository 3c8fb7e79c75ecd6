"""A folder of plain texts: they are cut into passages to retrieve from; shares of them stay whole to be read.

Whole texts are for in-context retrieval-augmented language modelling (``grls ralm``): a text to read is in no
passage, but of the same kind as the passages. A hash of the path and the seed assigns files to parts, so a
file always goes to the same part. A file with the text of another file is left out. There are no queries:
the end of the text read so far is the query.

Links between files (Markdown, wiki, HTML) become ``links`` in the metadata of the passage that holds them:
the ids of the passages that it links to.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from html import unescape
from itertools import pairwise
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath
from shlex import quote
from typing import NamedTuple
from urllib.parse import unquote

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import count as word_count
from grls.data.words import pieces
from grls.errors import ConfigError, DataError
from grls.io.arguments import Count
from grls.io.files import atomic_file, atomic_folder, read_text
from grls.io.progress import counted

PARTS = ("rerank", "dev", "test")

_HIDDEN = re.compile(
    r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`|<!--.*?-->|<(script|style)\b.*?</\2",
    re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
"""Code and comments: what stands there is no link."""
_MARKDOWN = re.compile(
    r"(?:(!?)\[[^\[\]]*)?\]\(\s*(?:<([^<>\n]+)>|([^\s()<>]+(?:\([^\s()]*\)[^\s()]*)*))(?:\s+[\"'(][^\n]*?)?\s*\)"
)
_WIKI = re.compile(r"(!?)\[\[([^\[\]|\n]+)(?:\|[^\[\]\n]*)?\]\]")
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+)$", re.MULTILINE)
_TAG = re.compile(r"<([a-z][\w-]*)(\s[^<>]*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"(?<![\w-])(href|id|name)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE
)
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)


def prepare(
    raw: Path,
    out: Path,
    pattern: str = "**/*.txt",
    words: Count = 100,
    shares: Sequence[float] = (0, 0, 0),
    least_words: int = 1,
    seed: int = 0,
) -> None:
    """Write the passages of a folder of texts, corpus.jsonl; and whole texts, texts/{rerank,dev,test}.

    Args:
        raw: The folder of texts, UTF-8.
        out: Folder to write; an earlier one is replaced.
        pattern: Glob pattern of the files; ``**`` stands for any folders. Other files are counted.
        words: Most words of a passage; a passage ends at the end of a line, or within a longer line.
        shares: Shares of the files that are kept whole and out of the corpus, for `grls ralm`: for training a
            reranker, for tuning (dev) and for test, such as 0.1 0.03 0.07.
        least_words: Files with fewer words are left out; texts to read should have 200.
        seed: Seed of the assignment of files to parts.

    Raises:
        ConfigError: A number is out of range.
        DataError: No file matches, a part stays empty, a file is not UTF-8, or two files would get one name.
    """
    if words < 1 or len(shares) != len(PARTS) or min(shares) < 0 or sum(shares) >= 1:
        raise ConfigError(
            f"expected words >= 1 and three shares with a sum below 1, got {words} and {list(shares)}."
        )
    files = sorted(file for file in raw.glob(pattern) if file.is_file())
    others = Counter(file.suffix for file in raw.rglob("*") if file.is_file())
    others.subtract(file.suffix for file in files)
    dealt: dict[str, list[tuple[str, str]]] = {part: [] for part in ("corpus", *PARTS)}
    seen: set[str] = set()
    repeated = short = 0
    for file in files:
        name = file.relative_to(raw).as_posix()
        try:
            text = read_text(file)
        except DataError as error:
            raise DataError(f"{error} Leave the file out by --pattern.") from None
        if word_count(text) < least_words:
            short += 1
            continue
        if text in seen:  # under another name it could be both read and retrieved
            repeated += 1
            continue
        seen.add(text)
        dealt[_part(name, shares, seed)].append((name, text))
    for part, texts in dealt.items():
        if not texts and (part == "corpus" or shares[PARTS.index(part)]):
            raise DataError(_none(part, len(files), short, least_words, pattern, others), raw)
    cut = {name: _Cut(text, list(_passages(name, text, words))) for name, text in dealt["corpus"]}
    passages = [passage for file in cut.values() for _, passage in file.passages]
    links, lost = _links(raw, cut)
    metadata = [{"links": links[passage.id]} if passage.id in links else {} for passage in passages]
    with atomic_folder(out, "corpus.jsonl") as new:
        Corpus.from_passages(passages, metadata=metadata).write(new / "corpus.jsonl")
        for part in PARTS:
            for name, text in dealt[part]:
                target = new / "texts" / part / f"{name.replace('/', '__').removesuffix('.txt')}.txt"
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists():
                    raise DataError(
                        f"{name} and another file would both become {target.name}; rename one.", raw
                    )
                with atomic_file(target) as stream:
                    stream.write(text)
    counts = ", ".join(f"{part} {len(texts)}" for part, texts in dealt.items() if texts)
    print(f"{out}: {counted(len(passages), 'passage')}; files: {counts}")
    left_out = {
        f"with fewer than {counted(least_words, 'word')} (--least_words)": short,
        "with the text of another one": repeated,
        f"not matched by {quote(pattern)} (--pattern): {_kinds(others)}": others.total(),
    }
    for why, count in left_out.items():
        if count:
            print(f"left out: {counted(count, 'file')} {why}")
    if links or lost:
        of_lost = f"; {len(lost)} to files that are not there, such as {lost[0]}" if lost else ""
        print(f"links between passages: {sum(map(len, links.values()))}{of_lost}")
    if not any(shares):
        print(
            f"next: `grls index bm25 --corpus {quote(str(out))} --output NEW`, then `grls search NEW QUERY`"
        )


def _kinds(files: Counter[str]) -> str:
    """The endings of files, the most frequent first."""
    return ", ".join(
        f"{count} {ending or 'without ending'}" for ending, count in files.most_common(5) if count
    )


def _none(part: str, files: int, short: int, least_words: int, pattern: str, others: Counter[str]) -> str:
    """Why a part has no text, with a remedy."""
    if not files and not others:
        return "there is no file here; give the folder of the texts as --raw."
    if not files:
        most = others.most_common(1)[0][0]
        return (
            f"no file matches {pattern!r}; there are {_kinds(others)}: give --pattern {quote(f'**/*{most}')}."
        )
    if 2 * short >= files:
        return (
            f"no text for {part}: {short} of {counted(files, 'file')} have fewer than "
            f"{counted(least_words, 'word')}; lower --least_words."
        )
    return f"no text for {part} among {counted(files - short, 'file')}; change --seed or --shares."


def _part(name: str, shares: Sequence[float], seed: int) -> str:
    number = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") / 2**64
    for part, share in zip(PARTS, shares, strict=True):
        if number < share:
            return part
        number -= share
    return "corpus"


def _lines(text: str, words: int) -> Iterator[tuple[int, str]]:
    """Lines of at most ``words`` words with their places; a longer line is cut into nearly equal parts."""
    start = 0
    for line in text.split("\n"):
        most = word_count(line)
        if most <= words:
            yield start, line
        else:
            split, parts, cut, ends, at = pieces(line), -(-most // words), [line], [0], 0
            while max(map(word_count, cut)) > words:
                ends = [n * len(split) // parts for n in range(parts + 1)]
                cut = ["".join(split[a:b]).strip() for a, b in pairwise(ends)]
                parts += 1
            for end, part in zip(ends, cut, strict=False):
                at = max(at, line.find(split[end].strip(), at))
                yield start + at, part
                at += len(part)
        start += len(line) + 1


def _passages(name: str, text: str, words: int) -> Iterator[tuple[int, Passage]]:
    """Passages of whole lines with at most ``words`` words, each with its place in the text.

    A longer line is cut between words.
    """
    held: list[str] = []
    count = number = start = 0
    for place, line in _lines(text, words):
        length = word_count(line)
        if held and count + length > words:
            yield start, Passage(f"{name}:{number}", "\n".join(held).strip("\n"), name)
            held, count, number = [], 0, number + 1
        if length or held:
            start = start if held else place
            held.append(line)
            count += length
    if count:
        yield start, Passage(f"{name}:{number}", "\n".join(held).strip("\n"), name)


class _Cut(NamedTuple):
    """The text of a file, and its passages with their places in it."""

    text: str
    passages: list[tuple[int, Passage]]

    def at(self, place: int) -> str:
        """The id of the passage at a place."""
        number = bisect(self.passages, place, key=lambda passage: passage[0]) - 1
        return self.passages[max(number, 0)][1].id


def _links(raw: Path, files: dict[str, _Cut]) -> tuple[dict[str, list[str]], list[str]]:
    """The ids that each passage links to; and links to files that are not there, in words."""
    pages: dict[str, list[str]] = {}  # what a wiki link may write -> files
    there = sorted(path.relative_to(raw) for path in raw.rglob("*"))
    names = {".", *(path.as_posix() for path in there)}
    for path in there:
        for parts in (path.parts, path.with_suffix("").parts):
            for n in range(len(parts)):
                pages.setdefault(_page("/".join(parts[n:])), []).append(path.as_posix())
    visible = {
        name: _HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), file.text) for name, file in files.items()
    }
    anchors = {name: _anchors(visible[name], file.text) for name, file in files.items()}
    links: dict[str, list[str]] = {}
    lost = []
    for name, file in files.items():
        for place, target, is_wiki in sorted(_targets(visible[name], name)):
            written, _, fragment = map(str.strip, target.partition("#"))
            if not is_wiki:
                written, fragment = unquote(written.partition("?")[0]), unquote(fragment)
            if not written:
                aim = name
            elif is_wiki:
                named = pages.get(_page(written), [""])
                aim = min(named, key=lambda other: (other not in files, dirname(other) != dirname(name)))
            else:
                aim = normpath(join("/" if written.startswith("/") else dirname(name), written)).lstrip("/")
            if aim.partition("/")[0] == "..":
                continue
            if aim not in names:
                lost.append(f"{name}, line {file.text.count(chr(10), 0, place) + 1}: {target}")
            elif aim in files:
                of, to = file.at(place), files[aim].at(anchors[aim].get(_slug(fragment), 0))
                if to != of and to not in links.get(of, ()):
                    links.setdefault(of, []).append(to)
    return links, lost


def _targets(text: str, name: str) -> Iterator[tuple[int, str, bool]]:
    """What a text links to, and where; whether as a wiki does. Not what is outside of the folder."""
    found = []
    for tag in _TAG.finditer(text):
        if tag[1].lower() == "a":
            values = {key.lower(): unescape("".join(value)) for key, *value in _ATTRIBUTE.findall(tag[2])}
            found.append((tag.start(), values.get("href", ""), False))
    if PurePosixPath(name).suffix.lower() not in (".html", ".htm"):
        for link in _MARKDOWN.finditer(text):
            found.append((link.start(), "" if link[1] else link[2] or link[3], False))
        for link in _WIKI.finditer(text):
            found.append((link.start(), "" if link[1] else link[2].strip(), True))
    return ((place, to, is_wiki) for place, to, is_wiki in found if to and not _OUTSIDE.match(to))


def _anchors(visible: str, text: str) -> dict[str, int]:
    """What a fragment may name in a text -> its place: Markdown headings as on GitHub, ids of HTML."""
    places: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for heading in _HEADING.finditer(visible):
        slug = _slug(text[heading.start(1) : heading.end(1)].rstrip("# \t"))
        places.setdefault(f"{slug}-{seen[slug]}" if seen[slug] else slug, heading.start())
        seen[slug] += 1
    for tag in _TAG.finditer(visible):
        for key, *value in _ATTRIBUTE.findall(tag[2]):
            if key.lower() != "href":
                places.setdefault(_slug(unescape("".join(value))), tag.start())
    return places


def _slug(heading: str) -> str:
    """A heading as links name it."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.casefold())).strip("-")


def _page(title: str) -> str:
    """A file as wiki links name it: case and ``_`` for a space do not matter."""
    return title.replace("_", " ").casefold()
