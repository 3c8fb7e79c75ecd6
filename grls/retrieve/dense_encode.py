"""Embedding a whole corpus, so that a killed run goes on where it stopped.

Legend: N passages, d embedding dimension.

The rows are appended to one ``.npy`` file in a work folder, a shard at a time; how many are safely there
stands in ``plan.json``, which is written after each shard and names model and corpus by their fingerprints.
What a killed run has written beyond that is dropped. Row n is passage n, row N is DONE.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from grls.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.files import read_json, write_json
from grls.locks import LockedFile
from grls.models.biencoder import DONE_TEXT, BiEncoder, Matrix, passage_text
from grls.text import DONE_ID

log = logging.getLogger(__name__)

FORMAT = 1
PLAN = "plan.json"
EMBEDDINGS = "embeddings.npy"
SHARD = 4096
"""Passages between two points where a run can go on."""


def work_folder(destination: str | Path) -> Path:
    """Where the embeddings of a retriever that will stand at ``destination`` grow."""
    path = Path(destination).absolute()
    return path.with_name(f".{path.name}.embeddings")


def check_corpus(corpus: Corpus) -> None:
    """Refuse a corpus that has no passage, or one with the id of DONE.

    Raises:
        DataError: It does.
    """
    if not len(corpus):
        raise DataError(
            "the corpus is empty: there is nothing to retrieve. Add passages to it.", corpus.source
        )
    if corpus.numbers([DONE_ID])[0] is not None:
        raise DataError(f"the passage id {DONE_ID!r} is reserved; rename that passage.", corpus.source)


def encode_corpus(
    biencoder: BiEncoder, corpus: Corpus, batch_size: int = 64, progress: bool = False, shard: int = SHARD
) -> Matrix:
    """Embeddings ``[N + 1, d]`` of a corpus and DONE, in memory."""
    return np.concatenate(list(_shards(biencoder, corpus, 0, batch_size, progress, shard)))


def encode_to_disk(
    biencoder: BiEncoder,
    corpus: Corpus,
    work: str | Path,
    batch_size: int = 64,
    progress: bool = False,
    shard: int = SHARD,
) -> Path:
    """Write the embeddings ``[N + 1, d]`` of a corpus and DONE to a work folder; returns the ``.npy`` file.

    Rows that an earlier run of the same model and corpus has left there are kept, those of another are
    dropped. Whoever moves the file away removes the folder.

    Args:
        biencoder: Embeds the passages.
        corpus: N passages.
        work: The work folder.
        batch_size: Passages embedded together.
        progress: Show a progress bar.
        shard: Passages between two points where a run can go on.

    Raises:
        ConfigError: The work folder holds something else.
        DataError: The corpus cannot be used, or an embedding is not finite.
        WriteError: The disk is full, the folder cannot be written, or another process writes it; what is
            there can be gone on with.
    """
    folder = Path(work)
    plan = {
        "format": FORMAT,
        "model": biencoder.fingerprint(),
        "corpus": corpus.fingerprint,
        "rows": len(corpus) + 1,
        "dimension": biencoder.dimension,
    }
    _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = LockedFile(folder / EMBEDDINGS)
    done = _begin(file, plan)
    for rows in _shards(biencoder, corpus, done, batch_size, progress, shard):
        file.append(np.ascontiguousarray(rows).tobytes())
        done += len(rows)
        write_json(folder / PLAN, {**plan, "done": done})
    file.close()
    return file.path


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something that is not ours; a kill may have left either file alone."""
    strange = (
        sorted({entry.name for entry in folder.iterdir()} - {PLAN, EMBEDDINGS}) if folder.is_dir() else []
    )
    if strange and not (folder / PLAN).is_file():
        raise ConfigError(
            f"{folder} holds {strange[0]!r} and no {PLAN}, so it is no work folder of ours; remove or rename "
            "it."
        )


def _begin(file: LockedFile, plan: dict[str, Any]) -> int:
    """Begin the embeddings, or go on with them; returns the number of rows that are there."""
    noted = file.path.with_name(PLAN)
    if noted.is_file():
        found = read_json(noted)
        done = found.pop("done", None) if isinstance(found, dict) else None
        if found == plan and isinstance(done, int) and file.size:
            end = _header_size(file.path) + done * plan["dimension"] * 4
            if file.size >= end:
                file.cut(end)
                return done
        noted.unlink()  # before the rows that it counts
    file.cut(0)
    header = io.BytesIO()
    shape = (plan["rows"], plan["dimension"])
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    file.append(header.getvalue())
    write_json(noted, {**plan, "done": 0})
    return 0


def _header_size(file: Path) -> int:
    with file.open("rb") as stream:
        np.lib.format.read_magic(stream)
        np.lib.format.read_array_header_1_0(stream)
        return stream.tell()


def _shards(
    biencoder: BiEncoder, corpus: Corpus, start: int, batch_size: int, progress: bool, shard: int
) -> Iterator[Matrix]:
    """Embeddings of the rows from ``start`` on, DONE last; in the end tells of passages that were cut."""
    check_corpus(corpus)
    total = len(corpus)
    cut = 0
    hidden = None if progress else True  # None: no bar where the output is no terminal
    with tqdm(total=total, initial=min(start, total), desc="embed", unit=" passages", disable=hidden) as bar:
        for first in range(start, total + 1, shard):
            numbers = range(first, min(first + shard, total))
            texts = [passage_text(passage) for passage in corpus.passages(numbers)]
            cut += biencoder.count_cut(texts)
            if first + shard > total:
                texts.append(DONE_TEXT)
            yield biencoder.encode_passages(texts, batch_size)
            bar.update(len(numbers))
    if cut:
        log.warning(biencoder.cut_notice(cut, total - start, "--max_input_tokens (of grls index)"))
