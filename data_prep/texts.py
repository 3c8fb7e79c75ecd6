"""A folder of documents: they are cut into passages to retrieve from; shares of them stay whole to be read.

Files are read and cut as by :mod:`grls.data.documents`. Whole texts are for in-context retrieval-augmented
language modelling (``grls ralm``): a text to read is in no passage, but of the same kind as the passages. A
hash of the path and the seed assigns files to parts, so a file always goes to the same part. There are no
queries: the end of the text read so far is the query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from grls.data.corpus import Corpus
from grls.data.documents import Document, document_files, passages_of, read_documents
from grls.errors import ConfigError, DataError
from grls.io.arguments import Count
from grls.io.files import atomic_file, atomic_folder
from grls.io.progress import counted

PARTS = ("rerank", "dev", "test")


def prepare(
    raw: Path,
    out: Path,
    pattern: str = "**/*",
    words: Count = 100,
    shares: Sequence[float] = (0, 0, 0),
    least_words: int = 1,
    seed: int = 0,
) -> None:
    """Write the passages of a folder of documents, corpus.jsonl; whole texts, texts/{rerank,dev,test}.

    Args:
        raw: The folder: text, Markdown, HTML; PDF and DOCX with the extra `documents`.
        out: Folder to write; an earlier one is replaced.
        pattern: Glob pattern of the files; ``**`` stands for any folders. Other files are counted.
        words: Most words of a passage, beside its heading.
        shares: Shares of the files that are kept whole and out of the corpus, for `grls ralm`: for training a
            reranker, for tuning (dev) and for test, such as 0.1 0.03 0.07.
        least_words: Files with fewer words are left out; texts to read should have 200.
        seed: Seed of the assignment of files to parts.

    Raises:
        ConfigError: A number is out of range.
        DataError: No file matches or gives a text, a part stays empty, or two files would get one name.
    """
    if words < 1 or len(shares) != len(PARTS) or min(shares) < 0 or sum(shares) >= 1:
        raise ConfigError(
            f"expected words >= 1 and three shares with a sum below 1, got {words} and {list(shares)}."
        )
    every, skipped = document_files(raw)
    matched = set(every if pattern == "**/*" else raw.glob(pattern))  # glob follows no links
    files = [file for file in every if file in matched]
    found = read_documents(files, raw, least_words)
    found.unread.extend(skipped)
    if not found.read:
        raise DataError(_none(every, files, pattern, found.table()), raw)
    dealt: dict[str, list[Document]] = {part: [] for part in ("corpus", *PARTS)}
    for document in found.read:
        dealt[_part(document.name, shares, seed)].append(document)
    for part, documents in dealt.items():
        if not documents and (part == "corpus" or shares[PARTS.index(part)]):
            raise DataError(
                f"no text for {part} among {counted(len(found.read), 'file')}; change --seed or --shares.",
                raw,
            )
    others = {path.relative_to(raw).as_posix(): "" for path in every} | found.others
    cut = found._replace(read=dealt["corpus"], others=others)
    passages, metadata, lost = passages_of(cut, words)
    with atomic_folder(out, "corpus.jsonl") as new:
        Corpus.from_passages(passages, metadata=metadata).write(new / "corpus.jsonl")
        for part in PARTS:
            for document in dealt[part]:
                name = document.name
                target = new / "texts" / part / f"{name.replace('/', '__').removesuffix('.txt')}.txt"
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.exists():
                    raise DataError(
                        f"{name} and another file would both become {target.name}; rename one.", raw
                    )
                with atomic_file(target) as stream:
                    stream.write(document.text)
    counts = ", ".join(f"{part} {len(texts)}" for part, texts in dealt.items() if texts)
    print(f"{out}: {counted(len(passages), 'passage')}; files: {counts}")
    if found.unread:
        print(f"not read:\n{found.table()}")
    if len(every) > len(files):
        print(f"not matched by {quote(pattern)} (--pattern): {counted(len(every) - len(files), 'file')}")
    links = sum(len(each.get("links", ())) for each in metadata)
    if links or lost:
        of_lost = f"; {len(lost)} to files that are not there, such as {lost[0]}" if lost else ""
        print(f"links between passages: {links}{of_lost}")
    if not any(shares):
        print(
            f"next: `grls index bm25 --corpus {quote(str(out))} --output NEW`, then `grls search NEW QUERY`"
        )


def _none(every: Sequence[Path], files: Sequence[Path], pattern: str, table: str) -> str:
    """Why there is no text, with a remedy."""
    if not every:
        return "there is no file here; give the folder of the texts as --raw."
    if not files:
        return f"no file matches {pattern!r}: give another --pattern; there is {every[0].name}."
    return f"no file gave a text.\n{table}"


def _part(name: str, shares: Sequence[float], seed: int) -> str:
    number = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") / 2**64
    for part, share in zip(PARTS, shares, strict=True):
        if number < share:
            return part
        number -= share
    return "corpus"
