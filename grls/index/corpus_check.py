"""What is peculiar about a corpus: counts and examples of what users should know before they train.

None of it breaks retrieval, because a passage is its id: duplicates are all found, a passage that is a
prefix of another has an end of its own, and no decoded text is ever compared.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.data.words import pieces
from grls.index.rows import MAX_LENGTH, Array, Ints, sort_rows
from grls.io.terminal import visible


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


class _Sequences(NamedTuple):
    """The uncut token sequences of a corpus, a few bytes a token.

    Attributes:
        tokens: ``[T]`` one passage after another; tokens are moved up by one and each sequence ends in 0,
            so the end sorts before every token.
        lengths: ``[N]`` without the end.
    """

    tokens: npt.NDArray[np.uint32]
    lengths: Ints


class _Relations(NamedTuple):
    """Passages related to another one: ``[n, 2]`` numbers of passage and other, by passage."""

    twins: Ints
    cut_twins: Ints
    prefixes: Ints


def check_corpus(
    corpus: Corpus, codec: Codec | None = None, limit: int = 512, examples: int = 3
) -> CorpusCheck:
    """Look at every passage once.

    Duplicates and prefixes are looked for in the first 65,534 tokens of a passage.

    Args:
        corpus: The passages.
        codec: Tokenizer to measure with; None measures in words and skips the round trip.
        limit: Longest passage, in tokens (or words).
        examples: Ids of each kind to name; below 1 names none.
    """
    parts: list[npt.NDArray[np.uint32]] = [np.empty(0, np.uint32)]
    lengths: list[Ints] = [np.empty(0, np.int64)]
    empty: list[npt.NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    broken: list[npt.NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    words: dict[str, int] = {}
    for batch in corpus.batches():
        texts = [passage.text for passage in batch]
        bodies = _words(texts, words) if codec is None else codec.texts(texts)
        rows = _with_titles(batch, bodies, codec, words)
        parts.append(_flat(rows))
        lengths.append(np.array([len(row) for row in rows], np.int64))
        empty.append(np.array([not p.text.strip() for p in batch]))
        if codec is not None:
            broken.append(_changed(batch, bodies, codec))
    sequences = _Sequences(np.concatenate(parts), np.concatenate(lengths))
    del parts
    found = _relations(sequences, limit)

    def single(kind: str, flags: Array) -> Finding:
        numbers = np.flatnonzero(flags)
        return Finding(kind, len(numbers), corpus.ids(numbers[: max(examples, 0)].tolist()))

    def paired(kind: str, pairs: Ints, sign: str) -> Finding:
        named = [f" {sign} ".join(corpus.ids(pair)) for pair in pairs[: max(examples, 0)].tolist()]
        return Finding(kind, len(pairs), named)

    findings = [
        paired("duplicate of an earlier passage", found.twins, "="),
        single("empty text", np.concatenate(empty)),
        single(f"longer than {limit} (will be cut)", sequences.lengths > limit),
        paired("equal to another once cut", found.cut_twins, "="),
        paired("prefix of another passage", found.prefixes, "<"),
    ]
    if codec is not None:
        findings.append(single("changed by the tokenizer's round trip", np.concatenate(broken)))
    mean, longest = (sequences.lengths.mean(), sequences.lengths.max()) if len(corpus) else (0, 0)
    unit = "words" if codec is None else "tokens"
    return CorpusCheck(corpus.source, len(corpus), unit, float(mean), int(longest), findings)


def format_check(report: CorpusCheck) -> str:
    """The report as text."""
    lines = [
        f"{report.corpus}: {report.passages:,} passages, mean {report.mean_tokens:.1f} {report.tokens}, "
        f"longest {report.longest:,}"
    ]
    for finding in report.findings:
        shown = f"  ({', '.join(finding.examples)})" if finding.examples else ""
        lines.append(f"  {finding.passages:>9,}  {finding.kind}{shown}")
    return visible("\n".join(lines))


def _words(texts: list[str], known: dict[str, int]) -> list[list[int]]:
    """Numbers of words in order of appearance; of scripts without white space, of their characters."""
    return [[known.setdefault(word, len(known)) for word in pieces(text)] for text in texts]


def _with_titles(
    batch: list[Passage], bodies: list[list[int]], codec: Codec | None, words: dict[str, int]
) -> list[list[int]]:
    """Uncut sequences as retrieval writes them: title, marker, body."""
    titles = [passage.title for passage in batch]
    if not any(titles):
        return bodies
    heads = _words(titles, words) if codec is None else codec.texts(titles)
    marker = words.setdefault("\0 title", len(words)) if codec is None else codec.title
    return [
        [*head, marker, *body] if title else body
        for title, head, body in zip(titles, heads, bodies, strict=True)
    ]


def _flat(rows: list[list[int]]) -> npt.NDArray[np.uint32]:
    """One sequence after another, tokens moved up by one, a 0 after each."""
    return np.fromiter(chain.from_iterable([*row, -1] for row in rows), np.int64).astype(np.uint32) + 1


def _changed(batch: list[Passage], bodies: list[list[int]], codec: Codec) -> npt.NDArray[np.bool_]:
    decoded = codec.tokenizer.batch_decode(bodies, clean_up_tokenization_spaces=False)
    return np.array([text != p.text for text, p in zip(decoded, batch, strict=True)])


def _relations(sequences: _Sequences, limit: int) -> _Relations:
    """Which passages are equal, equal once cut, or a prefix of another.

    In sorted order a sequence that is a prefix of any other is one of the next distinct sequence, because
    the end sorts before every token; and sequences that are equal once cut stand side by side.
    """
    tokens, lengths = _cut(sequences, MAX_LENGTH - 1)
    rows, shared = sort_rows(tokens, np.concatenate(([0], np.cumsum(lengths + 1))), end=0)
    row_of = rows.row_of.astype(np.int64)
    numbers = np.arange(len(row_of))
    first = rows.members[rows.members_before(np.arange(len(rows)))].astype(np.int64)
    row_lengths = np.diff(rows.offsets.all()) - 1
    is_prefix = np.append(shared[1:] == row_lengths[:-1], False)
    alike = shared[1:] >= limit  # a row and the next one are equal once cut
    with_next, with_last = np.append(alike, False), np.insert(alike, 0, False)
    in_cut = (with_next | with_last)[row_of] & (sequences.lengths > limit)
    neighbour = np.arange(max(len(rows), 1)) + np.where(with_last, -1, 1)

    def pairs(passages: Ints, others: Ints) -> Ints:
        return np.stack((passages, others), axis=1)

    later = numbers[first[row_of] != numbers]
    cut = numbers[in_cut]
    shorter = numbers[is_prefix[row_of]]
    return _Relations(
        pairs(later, first[row_of[later]]),
        pairs(cut, first[neighbour[row_of[cut]]]),
        pairs(shorter, first[row_of[shorter] + 1]),
    )


def _cut(sequences: _Sequences, limit: int) -> _Sequences:
    """The sequences with at most ``limit`` tokens each."""
    if not (sequences.lengths > limit).any():
        return sequences
    ends = np.cumsum(sequences.lengths + 1) - 1
    kept = np.ones(len(sequences.tokens), np.bool_)
    for n in np.flatnonzero(sequences.lengths > limit):
        kept[ends[n] - sequences.lengths[n] + limit : ends[n]] = False
    return _Sequences(sequences.tokens[kept], np.minimum(sequences.lengths, limit))
