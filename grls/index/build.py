"""Builds an index from a corpus: its passages as tokens, sorted in memory, or on disk if they do not fit.

Saving and loading an index: :mod:`grls.index.storage`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from grls.cluster.plan import Done, Shard
from grls.data.codec import Codec, TokenIds
from grls.data.corpus import Corpus
from grls.data.corpus_table import BATCH
from grls.data.identifiers import Identifiers
from grls.errors import ConfigError, DataError, Option
from grls.index.array import ArrayIndex
from grls.index.backends import BACKENDS, check_backend
from grls.index.base import Segment
from grls.index.external_sort import (
    SMALLEST_MEMORY,
    Runs,
    SortedRun,
    Spill,
)
from grls.index.options import Form, IndexOptions, memory_bytes
from grls.index.rows import Array, Ints, Sequences, concatenated, cost, sort_rows
from grls.index.storage import load_index, save_runs, save_stream
from grls.io.progress import Progress, counted, plural, waiting

log = logging.getLogger(__name__)


def index_sequences(
    sequences: Iterable[Array], end: int, backend: str = "array", form: Form = "whole"
) -> Segment:
    """Index token sequences, which end in ``end``; passage n is the n-th one. See :func:`index_tokens`."""
    rows = [np.asarray(sequence) for sequence in sequences]
    lengths = [len(sequence) for sequence in rows]
    tokens = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    return index_tokens(tokens, np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), end, backend, form)


def build_index(
    corpus: Corpus | Identifiers,
    codec: Codec,
    backend: str = "array",
    progress: bool = False,
    form: Form = "whole",
    memory: int | None = None,
    scratch: str | Path | None = None,
) -> Segment:
    """Index a corpus and DONE. Passage n of the corpus is passage n of the index; DONE is number N.

    Args:
        corpus: N passages, or N identifiers.
        codec: Turns passages into tokens.
        backend: ``array``, ``marisa`` or ``flat``.
        progress: Show a progress bar.
        form: ``whole``, or ``prefixes``: the shortest prefix of each passage that no other one has (only
            ``array``).
        memory: Memory for building in bytes; a larger index is sorted on disk and is memory-mapped (only
            ``array``); None: no limit.
        scratch: An existing folder for sorting on disk; its files are deleted together with the index; None:
            the system's folder for temporary files.
    """
    _check_options(backend, form)
    if memory is not None and memory < SMALLEST_MEMORY:
        raise ConfigError(
            f"building an index needs at least {SMALLEST_MEMORY // 2**20} MiB, got {memory:,} bytes."
        )
    refuse_empty(corpus)
    noun = "identifier" if isinstance(corpus, Identifiers) else "passage"
    with Progress(len(corpus), "tokenize", plural(noun), shown=progress) as bar, ExitStack() as after:

        def passages_and_done() -> Iterator[Sequences]:
            yield from _tokenized(corpus, codec, bar)
            yield token_sequences([codec.done_sequence], token_type(codec))
            bar.close()
            after.enter_context(waiting(f"sort {counted(len(corpus), noun)}", progress))

        return index_stream(passages_and_done(), codec.end, backend, form, memory, scratch)


def index_stream(
    pieces: Iterator[Sequences],
    end: int,
    backend: str,
    form: Form,
    memory: int | None,
    scratch: str | Path | None = None,
) -> Segment:
    """Index consecutive passages in memory, or on disk if that takes too much; see :func:`build_index`."""
    taken: list[Sequences] = []
    needed = 0
    for piece in pieces:
        taken.append(piece)
        needed += cost(len(piece.tokens), len(piece.offsets) - 1, piece.tokens.itemsize)
        if memory is not None and backend == "array" and needed > memory:
            stream = _drained(taken, pieces)
            return index_on_disk(partial(save_stream, stream, end=end, memory=memory, form=form), scratch)
    return index_tokens(*concatenated(taken), end, backend, form)


def changed_index(index: Segment, kept: Ints, added: Corpus | Identifiers | None, codec: Codec) -> Segment:
    """The index of some of its passages, of added ones behind them, and of DONE.

    It is that of :func:`build_index` over the new corpus, sorted on disk if it is large. Where whole passages
    are stored, those that are kept are not tokenised again.

    Args:
        index: The index of the old corpus.
        kept: Numbers of the passages that stay, ascending.
        added: The passages, or identifiers, that come behind them.
        codec: Turns passages into tokens.
    """
    if added is not None:
        refuse_empty(added)
    kind = token_type(codec)

    def pieces() -> Iterator[Sequences]:
        for first in range(0, len(kept), BATCH):
            numbers = kept[first : first + BATCH].tolist()
            yield token_sequences([index.tokens(number) for number in numbers], kind)
        if added is not None:
            yield from _tokenized(added, codec)
        yield token_sequences([codec.done_sequence], kind)

    memory = memory_bytes(IndexOptions().memory)
    return index_stream(pieces(), codec.end, index.backend, index.rows.form, memory)


def refuse_empty(corpus: Corpus | Identifiers) -> None:
    if not len(corpus):
        raise DataError(
            "the corpus is empty: there is nothing to retrieve. Add passages to it.", corpus.source
        )


def token_type(codec: Codec) -> type[np.unsignedinteger[Any]]:
    """The type of tokens of a codec."""
    return np.uint16 if len(codec.tokenizer) <= 1 << 16 else np.uint32


def _tokenized(
    corpus: Corpus | Identifiers, codec: Codec, bar: Progress | None = None
) -> Iterator[Sequences]:
    """The passages as tokens, in batches; warns at the end if passages were cut."""
    before = codec.cut_passages
    for rows in row_batches(corpus, codec):
        yield token_sequences(rows, token_type(codec))
        if bar is not None:
            bar.update(len(rows))
    warn_of_cut(codec.cut_passages - before, len(corpus), codec)


def row_batches(listed: Corpus | Identifiers, codec: Codec) -> Iterator[list[TokenIds]]:
    """The token sequences of all passages, or identifiers, in order."""
    if isinstance(listed, Identifiers):
        return listed.batches(codec)
    return map(codec.passages, listed.batches())


def rows_of(listed: Corpus | Identifiers, codec: Codec, numbers: Sequence[int]) -> list[TokenIds]:
    """The token sequences of the passages, or identifiers, of these numbers."""
    if isinstance(listed, Identifiers):
        return listed.rows(codec, numbers)
    return codec.passages(listed.passages(numbers))


def warn_of_cut(cut: int, passages: int, codec: Codec) -> None:
    """Warn if passages were cut: ``cut`` of ``passages``, to the limit of the codec."""
    if cut:
        log.warning(
            "%d of %d passages are longer than %d tokens: the rest of them is neither indexed nor found "
            "(raise %s where the index is made).",
            cut, passages, codec.limits.passage, Option("limits.passage"),
        )  # fmt: skip


def token_sequences(rows: list[Any], kind: Any) -> Sequences:
    """Token arrays, one a passage, as consecutive passages of a stream."""
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows], dtype=np.int64)))
    return Sequences(np.concatenate(rows).astype(kind), offsets)


def _drained(first: list[Sequences], rest: Iterator[Sequences]) -> Iterator[Sequences]:
    """``first``, then ``rest``; a piece is released as soon as it is yielded."""
    first.reverse()
    while first:
        yield first.pop()
    yield from rest


def index_on_disk(save: Callable[[Path], None], scratch: str | Path | None) -> Segment:
    """An index that ``save`` writes to a temporary folder in ``scratch``, which is deleted with the index."""
    holder = tempfile.TemporaryDirectory(prefix=".grls-index-", dir=scratch)
    folder = Path(holder.name) / "index"
    save(folder)
    index = load_index(folder, verify=False)
    assert isinstance(index, ArrayIndex)
    index.files = holder
    return index


def _check_options(backend: str, form: str) -> None:
    check_backend(backend)
    if form == "prefixes" and backend != "array":
        raise ConfigError(f"the form 'prefixes' needs the backend 'array'; got {backend!r}.")


def index_tokens(
    tokens: Array, offsets: Array, end: int, backend: str = "array", form: Form = "whole"
) -> Segment:
    """Index the concatenated sequences of N passages.

    Args:
        tokens: ``[T]`` all tokens; an unsigned 16-bit array is not copied.
        offsets: ``[N + 1]`` the start of each sequence; the last is T.
        end: The end token.
        backend: ``array``, ``marisa`` or ``flat``.
        form: ``whole``, or ``prefixes`` (only ``array``).
    """
    _check_options(backend, form)
    return BACKENDS[backend].build(*sort_rows(tokens, offsets, end, form))


class ShardSorter:
    """The work of a shard (:mod:`grls.cluster`): its passages as tokens, sorted, in runs.

    The runs are the folders ``run-0``, ``run-1`` and so on (:mod:`grls.index.external_sort`); their
    passages have the numbers of the whole corpus. So the merge of the runs of all shards has the same bytes
    as an index that one process builds.
    """

    def __init__(self, listed: Corpus | Identifiers, codec: Codec, memory: int):
        refuse_empty(listed)
        self._listed = listed
        self._codec = codec
        self._memory = memory

    def __call__(self, shard: Shard, folder: Path) -> dict[str, Any]:
        """Sort a shard; returns the rows of each run, the largest token, and the number of passages cut."""
        before = self._codec.cut_passages
        spill = Spill(folder, self._codec.end, self._memory, shard.first)
        firsts, kind = range(shard.first, shard.end, BATCH), token_type(self._codec)
        batches = (range(n, min(n + BATCH, shard.end)) for n in firsts)
        spill.take(token_sequences(rows_of(self._listed, self._codec, batch), kind) for batch in batches)
        cut = self._codec.cut_passages - before
        return {"rows": [run.rows for run in spill.runs], "top": spill.top, "cut": cut}


def index_of_shards(
    shards: Sequence[Done],
    codec: Codec,
    memory: int,
    form: Form = "whole",
    scratch: str | Path | None = None,
    progress: bool = False,
) -> Segment:
    """Merge all shards of a corpus, in order, and DONE into one index (:func:`index_on_disk`)."""
    passages = shards[-1].shard.end
    warn_of_cut(sum(done.result["cut"] for done in shards), passages, codec)

    def sorted_runs(folder: Path) -> Runs:
        last = Spill(folder, codec.end, memory, passages)
        last.take([token_sequences([codec.done_sequence], token_type(codec))])
        runs = [
            SortedRun(done.folder / f"run-{n}", rows)
            for done in shards
            for n, rows in enumerate(done.result["rows"])
        ]
        top = max([last.top, *(done.result["top"] for done in shards)])
        return Runs((*runs, *last.runs), passages + 1, top)

    with waiting(f"merge {counted(len(shards), 'shard')}", progress):
        return index_on_disk(
            partial(save_runs, sorted_runs, end=codec.end, memory=memory, form=form), scratch
        )
