"""Reports peculiarities of a corpus that users should know before they train: counts and examples.

None of them breaks retrieval, because a passage is identified by its id.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.words import pieces
from grls.errors import GrlsError, IndexFormatError, out_of_memory
from grls.index.array import REBUILD, first_tokens, node_arrays
from grls.index.base import Segment
from grls.index.rows import MAX_LENGTH, Array, Ints, Rows, shared_prefixes, sort_rows, stored_lengths
from grls.index.storage import MANIFEST, load_index
from grls.io.option_errors import visible
from grls.io.progress import counted


class Finding(NamedTuple):
    """One kind of peculiarity: how many passages have it, and the ids of a few.

    An example ``a = b`` or ``a < b`` names the related passage, too.
    """

    kind: str
    passages: int
    examples: list[str]


class CorpusCheck(NamedTuple):
    """The report on a corpus; ``findings`` has an entry for every kind, also for one without a passage.

    ``tokens`` is the unit of lengths: ``tokens`` of the tokenizer, or ``words``, without an end token.
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
    """Check all passages of a corpus.

    Duplicates and prefixes are searched in the first 65,534 tokens of a passage. Without a ``codec``
    lengths are counted in words. A passage above ``limit`` is cut. Of each kind ``examples`` ids are
    named.
    """
    parts: list[npt.NDArray[np.uint32]] = [np.empty(0, np.uint32)]
    lengths: list[Ints] = [np.empty(0, np.int64)]
    empty: list[npt.NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    broken: list[npt.NDArray[np.bool_]] = [np.empty(0, np.bool_)]
    words: dict[str, int] = {}
    for batch in corpus.batches():
        texts = [passage.text for passage in batch]
        bodies = _words(texts, words) if codec is None else codec.texts(texts)
        rows, titles = bodies, [passage.title for passage in batch]
        if any(titles):  # uncut sequences as retrieval writes them: title, marker, body
            heads = _words(titles, words) if codec is None else codec.texts(titles)
            marker = words.setdefault("\0 title", len(words))
            rows = [
                body if not title else [*head, marker, *body] if codec is None else codec.titled(head, body)
                for title, head, body in zip(titles, heads, bodies, strict=True)
            ]
        flat = np.fromiter(chain.from_iterable([*row, -1] for row in rows), np.int64)
        parts.append(flat.astype(np.uint32) + 1)  # so the end is 0, which sorts before every token
        lengths.append(np.array([len(row) for row in rows], np.int64))
        empty.append(np.array([not p.text.strip() for p in batch]))
        if codec is not None:
            decoded = codec.tokenizer.batch_decode(bodies, clean_up_tokenization_spaces=False)
            broken.append(np.array([text != p.text for text, p in zip(decoded, batch, strict=True)]))
    tokens, sizes = np.concatenate(parts), np.concatenate(lengths)
    del parts
    twins, cut_twins, prefixes = _relations(tokens, sizes, limit)

    def single(kind: str, flags: Array) -> Finding:
        numbers = np.flatnonzero(flags)
        return Finding(kind, len(numbers), corpus.ids(numbers[: max(examples, 0)].tolist()))

    def paired(kind: str, pairs: Ints, sign: str) -> Finding:
        named = [f" {sign} ".join(corpus.ids(pair)) for pair in pairs[: max(examples, 0)].tolist()]
        return Finding(kind, len(pairs), named)

    unit = "words" if codec is None else "tokens"
    cut = "" if codec is None else " (a generator of that limit cuts them)"
    findings = [
        paired("duplicate of an earlier passage", twins, "="),
        single("empty text", np.concatenate(empty)),
        single(f"longer than {limit} {unit}{cut}", sizes > limit),
        paired(f"equal to another in the first {limit} {unit}", cut_twins, "="),
        paired("prefix of another passage", prefixes, "<"),
    ]
    if codec is not None:
        findings.append(single("changed by the tokenizer's round trip", np.concatenate(broken)))
    mean, longest = (sizes.mean(), sizes.max()) if len(corpus) else (0, 0)
    return CorpusCheck(corpus.source, len(corpus), unit, float(mean), int(longest), findings)


def format_check(report: CorpusCheck) -> str:
    lines = [
        f"{report.corpus}: {counted(report.passages, 'passage')}, mean {report.mean_tokens:.1f} "
        f"{report.tokens}, longest {report.longest:,}"
    ]
    for finding in report.findings:
        shown = f"  ({', '.join(finding.examples)})" if finding.examples else ""
        lines.append(f"  {finding.passages:>9,}  {finding.kind}{shown}")
    return visible("\n".join(lines))


def _words(texts: list[str], known: dict[str, int]) -> list[list[int]]:
    """The words of each text (characters in unspaced scripts), numbered by their first appearance."""
    return [[known.setdefault(word, len(known)) for word in pieces(text)] for text in texts]


def _relations(tokens: npt.NDArray[np.uint32], sizes: Ints, limit: int) -> tuple[Ints, Ints, Ints]:
    """The passages that are equal, equal once cut to ``limit``, or a prefix of another passage.

    Each ``[n, 2]``: the numbers of a passage and of the related one, sorted by the first. ``tokens [T]``
    are the concatenated passages, each with a 0 at its end, ``sizes [N]`` their lengths without it. The
    end sorts before every token: so a prefix of any other sequence is a prefix of the next distinct one.
    """
    most, lengths = MAX_LENGTH - 1, sizes
    if (sizes > most).any():
        ends, within = np.cumsum(sizes + 1) - 1, np.ones(len(tokens), np.bool_)
        for n in np.flatnonzero(sizes > most):
            within[ends[n] - sizes[n] + most : ends[n]] = False
        tokens, lengths = tokens[within], np.minimum(sizes, most)
    rows, shared = sort_rows(tokens, np.concatenate(([0], np.cumsum(lengths + 1))), end=0)
    row_of = rows.row_of.astype(np.int64)
    numbers = np.arange(len(row_of))
    first = rows.members[rows.members_before(np.arange(len(rows)))].astype(np.int64)
    row_lengths = np.diff(rows.offsets.all()) - 1
    is_prefix = np.append(shared[1:] == row_lengths[:-1], False)
    alike = shared[1:] >= limit  # a row and the next one are equal once cut
    with_next, with_last = np.append(alike, False), np.insert(alike, 0, False)
    in_cut = (with_next | with_last)[row_of] & (sizes > limit)
    neighbour = np.arange(max(len(rows), 1)) + np.where(with_last, -1, 1)
    pairs = partial(np.stack, axis=1)
    later = numbers[first[row_of] != numbers]
    cut = numbers[in_cut]
    shorter = numbers[is_prefix[row_of]]
    return (
        pairs((later, first[row_of[later]])),
        pairs((cut, first[neighbour[row_of[cut]]])),
        pairs((shorter, first[row_of[shorter] + 1])),
    )


_AT_ONCE = 1 << 20


class PartCheck(NamedTuple):
    """What was checked of a file or folder, and its fault with the remedy, if there is one."""

    what: str
    file: Path
    fault: str = ""


def attempt(name: str, file: Path, check: Callable[[], object]) -> PartCheck:
    """Run a check; any error is its fault: only a broken file can cause it here."""
    try:
        check()
    except GrlsError as error:
        return PartCheck(name, file, str(error))
    except Exception as error:
        if out_of_memory(error):
            raise
        return PartCheck(name, file, f"{file}: {type(error).__name__}: {error}; {REBUILD}")
    return PartCheck(name, file)


def check_index(folder: str | Path) -> list[PartCheck]:
    """Check all invariants of the index in a folder, as Lucene's CheckIndex does.

    Loading compares checksums, types and bounds. Here all is computed again: rows are sorted and
    distinct, each passage has one row, and the nodes are those of the rows. A check is left out if one
    that it builds on is broken. Memory: about 40 bytes a row.
    """
    path = Path(folder)
    opened: list[Segment] = []
    shared: list[Ints] = []
    load = partial(load_index, path, verify=True)
    checks = [attempt("files, checksums and sizes", path / MANIFEST, lambda: opened.append(load()))]
    for index in opened:
        rows, in_order = index.rows, partial(_check_order, index.rows, path, shared)
        each = partial(_check_members, rows, path)
        checks.append(attempt("each passage has one row", path / "members.npy", each))
        checks.append(attempt("rows are sorted and distinct", path / "tokens.npy", in_order))
    for index, starts in zip(opened, shared, strict=False):
        nodes = partial(_check_backend, index, starts, path)
        checks.append(attempt(f"the arrays of {index.backend} are those of the rows", path, nodes))
    return checks


def _check_members(rows: Rows, path: Path) -> None:
    seen = np.zeros(len(rows.members), dtype=np.bool_)
    seen[rows.members] = True
    if not seen.all():
        missing = int(np.flatnonzero(~seen)[0])
        raise IndexFormatError(f"{path / 'members.npy'}: no row holds passage number {missing}; {REBUILD}")
    sizes = np.diff(rows.member_offsets.astype(np.int64))
    if (sizes < 1).any():
        raise IndexFormatError(f"{path / 'member_offsets.npy'}: a row holds no passage; {REBUILD}")
    firsts = np.zeros(len(rows.members), dtype=np.bool_)
    firsts[rows.members_before(np.arange(len(rows)))] = True
    falling = rows.members[1:] <= rows.members[:-1]
    if (falling & ~firsts[1:]).any():
        raise IndexFormatError(f"{path / 'members.npy'}: the passages of a row are in disorder; {REBUILD}")


def _check_order(rows: Rows, path: Path, known: list[Ints]) -> None:
    """Check the rows; appends to ``known`` the tokens that each row shares with the row before, ``[R]``."""
    file = path / "tokens.npy"
    starts = rows.offsets.all()
    shared = shared_prefixes(rows.tokens, starts)
    lengths = np.diff(starts)
    for start in range(1, len(rows), _AT_ONCE):
        numbers = np.arange(start, min(start + _AT_ONCE, len(rows)))
        differ_at = shared[numbers]
        if (differ_at >= np.minimum(lengths[numbers], lengths[numbers - 1])).any():
            raise IndexFormatError(f"{file}: a row is the beginning of the next one; {REBUILD}")
        if (rows.tokens[starts[numbers] + differ_at] <= rows.tokens[starts[numbers - 1] + differ_at]).any():
            raise IndexFormatError(f"{file}: the rows are not sorted; {REBUILD}")
    if rows.form == "whole" and int((rows.tokens == rows.end).sum()) != len(rows):
        raise IndexFormatError(f"{file}: the end token {rows.end} is inside a row; {REBUILD}")
    if rows.form == "prefixes" and not np.array_equal(lengths, stored_lengths(lengths, shared, 0, rows.form)):
        raise IndexFormatError(f"{file}: a row is longer than its unique prefix; {REBUILD}")
    known.append(shared)


def _check_backend(index: Segment, shared: Ints, path: Path) -> None:
    if index.backend == "array":
        _check_nodes(index.rows, index.arrays(), shared, path)
        return
    rebuilt = type(index).build(index.rows, shared)
    for name, array in rebuilt.arrays().items():
        if not np.array_equal(array, index.arrays()[name]):
            raise _other(path, name)


def _check_nodes(rows: Rows, stored: dict[str, Array], shared: Ints, path: Path) -> None:
    """Compare the nodes of ``array`` with those that the rows make."""
    ends = dict.fromkeys(stored, 0) | {"first_edges": 1}
    for arrays in node_arrays(len(rows), shared, partial(first_tokens, rows)):
        for name, array in arrays.items():
            start, ends[name] = ends[name], ends[name] + len(array)
            if not np.array_equal(stored[name][start : ends[name]], array):
                raise _other(path, name)
    if (ends["depths"], ends["edge_tokens"]) != (len(stored["depths"]), len(stored["edge_tokens"])):
        raise _other(path, "depths")


def _other(path: Path, name: str) -> IndexFormatError:
    return IndexFormatError(f"{path / name}.npy: it is not what the rows make; {REBUILD}")
