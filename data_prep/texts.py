"""A folder of plain texts: they are cut into passages to retrieve from; shares of them stay whole to be read.

Whole texts are for in-context retrieval-augmented language modelling (``grls ralm``): a text to read is in no
passage, but of the same kind as the passages. A hash of the path and the seed assigns files to parts, so a
file always goes to the same part. A file with the text of another file is left out. There are no queries:
the end of the text read so far is the query.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from shlex import quote

from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import count as word_count
from grls.data.words import pieces
from grls.errors import ConfigError, DataError
from grls.io.files import atomic_file, atomic_folder, read_text
from grls.io.progress import counted

PARTS = ("rerank", "dev", "test")


def prepare(
    raw: Path,
    out: Path,
    pattern: str = "**/*.txt",
    words: int = 100,
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
    passages = [passage for name, text in dealt["corpus"] for passage in _passages(name, text, words)]
    with atomic_folder(out, "corpus.jsonl") as new:
        Corpus.from_passages(passages).write(new / "corpus.jsonl")
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


def _lines(text: str, words: int) -> Iterator[str]:
    """Lines of at most ``words`` words; a longer line is cut into parts of nearly equal length."""
    for line in text.split("\n"):
        most = word_count(line)
        if most <= words:
            yield line
            continue
        split, parts, cut = pieces(line), -(-most // words), [line]
        while max(map(word_count, cut)) > words:
            ends = [n * len(split) // parts for n in range(parts + 1)]
            cut = ["".join(split[a:b]).strip() for a, b in pairwise(ends)]
            parts += 1
        yield from cut


def _passages(name: str, text: str, words: int) -> Iterator[Passage]:
    """Passages of whole lines with at most ``words`` words; a longer line is cut between words."""
    held: list[str] = []
    count = number = 0
    for line in _lines(text, words):
        length = word_count(line)
        if held and count + length > words:
            yield Passage(f"{name}:{number}", "\n".join(held).strip("\n"), name)
            held, count, number = [], 0, number + 1
        if length or held:
            held.append(line)
            count += length
    if count:
        yield Passage(f"{name}:{number}", "\n".join(held).strip("\n"), name)
