"""A folder of plain texts: most of them cut into passages to retrieve from, some kept whole to be read.

For in-context retrieval-augmented language modelling (``grls ralm``): a text that is read is in no passage,
yet of one kind with those that are. Files are dealt out by a hash of their path and the seed, so the same
file always goes the same way; one whose text another has already is left out. There are no queries: the end
of what has been read is the query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from data_prep import common
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import count as word_count
from grls.data.words import pieces
from grls.errors import ConfigError, DataError
from grls.io.files import atomic_file, atomic_folder, read_text

PARTS = ("rerank", "dev", "test")


def prepare(
    raw: Path,
    out: Path,
    pattern: str = "**/*.txt",
    words: int = 100,
    shares: Sequence[float] = (0.1, 0.03, 0.07),
    least_words: int = 200,
    seed: int = 0,
) -> None:
    """Write corpus.jsonl and texts/{rerank,dev,test}.

    Args:
        raw: The folder of texts, UTF-8.
        out: Folder to write; an earlier one is replaced.
        pattern: Which files, as a glob; ``**`` stands for any folders.
        words: Words of a passage at most; a passage ends with a line, or within one that is longer.
        shares: Of the files: to learn reranking from, to choose by (dev), and to report on (test). The rest
            are the corpus.
        least_words: Files with fewer words are left out.
        seed: Decides which file goes where.

    Raises:
        ConfigError: A number is out of range.
        DataError: There is no such file, a part stays empty, a file is not UTF-8, or two would get one name.
    """
    if words < 1 or len(shares) != len(PARTS) or min(shares) < 0 or sum(shares) >= 1:
        raise ConfigError(
            f"expected words >= 1 and three shares that leave something, got {words} and {list(shares)}."
        )
    files = sorted(file for file in raw.glob(pattern) if file.is_file())
    dealt: dict[str, list[tuple[str, str]]] = {part: [] for part in ("corpus", *PARTS)}
    seen: set[str] = set()
    repeated = short = 0
    for file in files:
        name, text = file.relative_to(raw).as_posix(), _read(file)
        if word_count(text) < least_words:
            short += 1
            continue
        if text in seen:  # under another name it could go another way, and be read and retrieved
            repeated += 1
            continue
        seen.add(text)
        dealt[_part(name, shares, seed)].append((name, text))
    for part, texts in dealt.items():
        if not texts and (part == "corpus" or shares[PARTS.index(part)]):
            raise DataError(_none(part, len(files), short, least_words, pattern), raw)
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
    counts = ", ".join(f"{part} {len(texts)}" for part, texts in dealt.items())
    print(
        f"{len(passages):,} passages; files: {counts}; of {len(files)} left out: {short} with fewer than "
        f"{least_words} words, {repeated} that repeat another one"
    )


def _none(part: str, files: int, short: int, least_words: int, pattern: str) -> str:
    """Why a part has no text, and what helps."""
    if not files:
        return f"no file matches {pattern!r}; give another --pattern."
    if 2 * short >= files:
        return (
            f"no text for {part}: {short} of {files} files have fewer than {least_words} words; lower "
            "--least_words."
        )
    return f"no text for {part} among {files - short} files; change --seed or --shares."


def _read(file: Path) -> str:
    try:
        return read_text(file)
    except DataError as error:
        raise DataError(f"{error} Leave the file out by --pattern.") from None


def _part(name: str, shares: Sequence[float], seed: int) -> str:
    place = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") / 2**64
    for part, share in zip(PARTS, shares, strict=True):
        if place < share:
            return part
        place -= share
    return "corpus"


def _lines(text: str, words: int) -> Iterator[str]:
    """Lines of at most so many words; what is cut of a longer one is as even as can be."""
    for line in text.split("\n"):
        most = word_count(line)
        if most <= words:
            yield line
            continue
        own, parts = pieces(line), -(-most // words)
        while max(map(word_count, cut := _cut(own, parts))) > words:
            parts += 1
        yield from cut


def _cut(own: Sequence[str], parts: int) -> list[str]:
    """Pieces of a line, joined to so many parts."""
    places = [n * len(own) // parts for n in range(parts + 1)]
    return ["".join(own[a:b]).strip() for a, b in pairwise(places)]


def _passages(name: str, text: str, words: int) -> Iterator[Passage]:
    """Lines, gathered until they have so many words; a longer line is cut between words."""
    held: list[str] = []
    count = number = 0
    for line in _lines(text, words):
        own = word_count(line)
        if held and count + own > words:
            yield Passage(f"{name}:{number}", "\n".join(held).strip("\n"), name)
            held, count, number = [], 0, number + 1
        if own or held:
            held.append(line)
            count += own
    if count:
        yield Passage(f"{name}:{number}", "\n".join(held).strip("\n"), name)


if __name__ == "__main__":
    common.run(prepare)
