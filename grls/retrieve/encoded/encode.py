"""Encoding a corpus, a shard of passages at a time, and which corpora can be encoded."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.errors import DataError, Option
from grls.io.progress import Progress
from grls.models.text_encoder import TextEncoder, passage_text

log = logging.getLogger(__name__)


def refuse_unusable_corpus(corpus: Corpus) -> None:
    """Refuse a corpus that has no passage, or one with the id of DONE.

    Raises:
        DataError: The corpus is empty or holds the id of DONE.
    """
    if not len(corpus):
        raise DataError(
            "the corpus is empty: there is nothing to retrieve. Add passages to it.", corpus.source
        )
    if corpus.numbers([DONE_ID])[0] is not None:
        raise DataError(f"the passage id {DONE_ID!r} is reserved; rename that passage.", corpus.source)


def settings_sum(settings: Any) -> str:
    """SHA-256 of the settings of an encoder."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def encoded_passages(
    encoder: TextEncoder, corpus: Corpus, encode: Any, shard: int, progress: bool = False
) -> Iterator[Any]:
    """Encode a corpus, a shard of passages at a time; a warning at the end counts the passages that were cut.

    Args:
        encoder: The model.
        corpus: The passages.
        encode: Encodes the texts of passages.
        shard: Passages at a time.
        progress: Show a progress bar.
    """
    refuse_unusable_corpus(corpus)
    cut = 0
    with Progress(len(corpus), "embed", "passages", shown=progress) as bar:
        for part, short in encoded_range(encoder, corpus, range(len(corpus)), encode, shard, bar.update):
            cut += short
            yield part
    if cut:
        log.warning(encoder.cut_notice(cut, len(corpus), f"{Option('limits.input')!s} (of grls index)"))


def encoded_range(
    encoder: TextEncoder,
    corpus: Corpus,
    numbers: range,
    encode: Any,
    shard: int,
    report: Callable[[int], object] = lambda _: None,
) -> Iterator[tuple[Any, int]]:
    """Encode a range of passages, a shard at a time, each with the number of passages that were cut.

    Args:
        encoder: The model.
        corpus: The passages.
        numbers: The range.
        encode: Encodes the texts of passages.
        shard: Passages at a time.
        report: Called with the number of passages that are encoded.
    """
    for first in range(numbers.start, numbers.stop, shard):
        batch = corpus.passages(range(first, min(first + shard, numbers.stop)))
        texts = [passage_text(passage) for passage in batch]
        with encoder.telling(report):
            encoded = encode(texts)
        yield encoded, encoder.count_cut(texts)
