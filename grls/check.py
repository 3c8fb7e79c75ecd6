"""What is peculiar about a corpus: counts and examples of what users should know before they train.

None of it breaks retrieval, because a passage is its id: duplicates are all found, a passage that is a
prefix of another has an end of its own, and no decoded text is ever compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from grls.corpus import Corpus
from grls.index.rows import sort_rows
from grls.text import Codec
from grls.types import Passage


class Finding(NamedTuple):
    """One kind of peculiarity.

    Attributes:
        kind: What it is.
        passages: How many passages it concerns.
        examples: Some of their ids; ``a = b`` and ``a < b`` name the other passage, too.
    """

    kind: str
    passages: int
    examples: list[str]


class CorpusCheck(NamedTuple):
    """The report on a corpus.

    Attributes:
        corpus: Where it was read.
        passages: Number of passages.
        tokens: ``tokens`` of the tokenizer, or ``words``.
        mean_tokens: Mean length in these, the end not counted.
        longest: Longest passage in these.
        findings: One entry a kind, zero counts included.
    """

    corpus: str
    passages: int
    tokens: str
    mean_tokens: float
    longest: int
    findings: list[Finding]


def check_corpus(
    corpus: Corpus, codec: Codec | None = None, limit: int = 512, examples: int = 3
) -> CorpusCheck:
    """Look at every passage once.

    Args:
        corpus: The passages.
        codec: Tokenizer to measure with; None measures in words and skips the round trip.
        limit: Longest passage, in tokens (or words).
        examples: Ids of each kind to name.
    """
    empty: list[int] = []
    broken: list[int] = []
    sequences: list[list[int]] = []
    words: dict[str, int] = {}
    number = 0
    for batch in corpus.batches():
        rows = _tokens(batch, codec, words)
        if codec is not None:
            broken += [number + i for i in _not_round_trip(batch, codec)]
        empty += [number + i for i, passage in enumerate(batch) if not passage.text.strip()]
        sequences += rows
        number += len(batch)
    lengths = np.array([len(row) for row in sequences] or [0])
    long = [n for n, row in enumerate(sequences) if len(row) > limit]
    twins, prefixes = _relations(sequences)

    def named(numbers: Iterable[int]) -> list[str]:
        return corpus.ids(list(numbers)[:examples])

    def pairs(found: list[tuple[int, int]], sign: str) -> list[str]:
        return [f" {sign} ".join(corpus.ids(pair)) for pair in found[:examples]]

    findings = [
        Finding("duplicate of an earlier passage", len(twins), pairs(twins, "=")),
        Finding("empty text", len(empty), named(empty)),
        Finding(f"longer than {limit} (will be cut)", len(long), named(long)),
        Finding("prefix of another passage", len(prefixes), pairs(prefixes, "<")),
    ]
    if codec is not None:
        findings.append(Finding("changed by the tokenizer's round trip", len(broken), named(broken)))
    unit = "words" if codec is None else "tokens"
    return CorpusCheck(corpus.source, len(corpus), unit, float(lengths.mean()), int(lengths.max()), findings)


def format_check(report: CorpusCheck) -> str:
    """The report as text."""
    lines = [
        f"{report.corpus}: {report.passages:,} passages, mean {report.mean_tokens:.1f} {report.tokens}, "
        f"longest {report.longest:,}"
    ]
    for finding in report.findings:
        shown = f"  ({', '.join(finding.examples)})" if finding.examples else ""
        lines.append(f"  {finding.passages:>9,}  {finding.kind}{shown}")
    return "\n".join(lines)


def _tokens(batch: list[Passage], codec: Codec | None, words: dict[str, int]) -> list[list[int]]:
    """Uncut token ids; without a tokenizer, numbers of words in order of appearance."""
    if codec is None:
        texts = [f"{p.title} \0 {p.text}" if p.title else p.text for p in batch]
        return [[words.setdefault(w, len(words)) for w in text.split()] for text in texts]
    bodies = codec.texts([p.text for p in batch])
    titles = codec.texts([p.title for p in batch])
    return [
        [*title, codec.title, *body] if p.title else body
        for p, title, body in zip(batch, titles, bodies, strict=True)
    ]


def _not_round_trip(batch: list[Passage], codec: Codec) -> list[int]:
    decoded = codec.tokenizer.batch_decode(
        codec.texts([p.text for p in batch]), clean_up_tokenization_spaces=False
    )
    return [i for i, (text, p) in enumerate(zip(decoded, batch, strict=True)) if text != p.text]


def _relations(sequences: list[list[int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(later, first) pairs of equal sequences, and (prefix, longer) pairs, by passage number.

    In sorted order a sequence that is a prefix of any other is one of the next distinct sequence, if the end
    sorts before every token: so tokens are moved up by one and the end is 0.
    """
    if not sequences:
        return [], []
    tokens = np.concatenate([np.array([t + 1 for t in row] + [0]) for row in sequences])
    offsets = np.concatenate(([0], np.cumsum([len(row) + 1 for row in sequences])))
    rows, shared = sort_rows(tokens, offsets, end=0)
    first = rows.members[rows.members_before(np.arange(len(rows)))].astype(np.int64)
    twins = [(int(n), int(first[r])) for n, r in enumerate(rows.row_of) if int(n) != int(first[r])]
    lengths = np.diff(rows.offsets.astype(np.int64)) - 1
    prefix = np.flatnonzero(shared[1:] == lengths[:-1])
    return twins, [(int(first[r]), int(first[r + 1])) for r in prefix]
