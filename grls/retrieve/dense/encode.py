"""Embedding a whole corpus, so that a killed run goes on where it stopped.

Legend: N passages, d embedding dimension.

The rows are appended to one ``.npy`` file in a work folder, a shard at a time; how many are safely there, and
the hash of the file so far, stand in ``plan.json``, which is written after each shard and names model,
settings and corpus by their fingerprints. What a killed run has written beyond that is dropped; rows that are
not as they were written are embedded anew. Row n is passage n, row N is DONE.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError
from grls.io.files import read_json, write_json
from grls.io.locks import LockedFile
from grls.io.progress import Progress
from grls.models.biencoder import DONE_TEXT, BiEncoder, Matrix
from grls.models.text_encoder import passage_text
from grls.retrieve.encoded.encode import refuse_unusable_corpus

log = logging.getLogger(__name__)

FORMAT = 1
PLAN = "plan.json"
EMBEDDINGS = "embeddings.npy"
SHARD = 4096
"""Passages between two points where a run can go on."""


def work_folder(destination: str | Path) -> Path:
    """Where the embeddings of a retriever that will stand at ``destination`` grow."""
    path = Path(destination).absolute()
    if path.is_symlink():  # on the disk where the retriever will stand
        path = Path(os.path.realpath(path))
    return path.with_name(f".{path.name}.embeddings")


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
        "settings": _sum(biencoder.settings()),
        "corpus": corpus.fingerprint,
        "rows": len(corpus) + 1,
        "dimension": biencoder.dimension,
    }
    _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = LockedFile(folder / EMBEDDINGS)
    done, digest = _begin(file, plan)
    for rows in _shards(biencoder, corpus, done, batch_size, progress, shard):
        written = np.ascontiguousarray(rows).tobytes()
        file.append(written)
        digest.update(written)
        done += len(rows)
        write_json(folder / PLAN, {**plan, "done": done, "sha256": digest.hexdigest()})
    file.close()
    return file.path


def _sum(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder that holds something that is not ours; a kill may have left either file alone."""
    names = {entry.name for entry in folder.iterdir()} - {PLAN, EMBEDDINGS} if folder.is_dir() else set()
    strange = sorted(name for name in names if not name.startswith(f".{PLAN}."))
    if strange and not (folder / PLAN).is_file():
        raise ConfigError(
            f"{folder} holds {strange[0]!r} and no {PLAN}, so it is no work folder of ours; remove or rename "
            "it."
        )


def _begin(file: LockedFile, plan: dict[str, Any]) -> tuple[int, Any]:
    """Begin the embeddings, or go on with them; returns how many rows are there, and the hash so far."""
    noted, header = file.path.with_name(PLAN), _header(plan)
    if noted.is_file():
        found = _kept(file, plan, len(header))
        if found is not None:
            return found
        noted.unlink()  # before the rows that it counts
    file.cut(0)
    file.append(header)
    digest = hashlib.sha256(header)
    write_json(noted, {**plan, "done": 0, "sha256": digest.hexdigest()})
    return 0, digest


def _kept(file: LockedFile, plan: dict[str, Any], header: int) -> tuple[int, Any] | None:
    """What a run of the same plan has left: how many rows, and the hash so far; None: nothing of use."""
    try:
        found = read_json(file.path.with_name(PLAN))
    except DataError as error:
        log.warning("%s All passages are embedded anew.", error)
        return None
    if not isinstance(found, dict):
        return None
    done, known = (found.pop(name, None) for name in ("done", "sha256"))
    if found != plan or not isinstance(done, int) or not file.size:
        return None
    end = header + done * plan["dimension"] * 4
    digest = _digest(file.path, end)
    # A plan without a hash was written before there was one.
    if file.size < end or (known is not None and known != digest.hexdigest()):
        log.warning("%s is not as it was written (damaged), so all passages are embedded anew.", file.path)
        return None
    file.cut(end)
    return done, digest


def _header(plan: dict[str, Any]) -> bytes:
    """The beginning of the ``.npy`` file."""
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (plan["rows"], plan["dimension"])}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def _digest(path: Path, end: int) -> Any:
    """SHA-256 of the first ``end`` bytes of a file, to be gone on with."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while end > 0 and (block := stream.read(min(end, 1 << 20))):
            digest.update(block)
            end -= len(block)
    return digest


def _shards(
    biencoder: BiEncoder, corpus: Corpus, start: int, batch_size: int, progress: bool, shard: int
) -> Iterator[Matrix]:
    """Embeddings of the rows from ``start`` on, DONE last; in the end tells of passages that were cut."""
    refuse_unusable_corpus(corpus)
    total = len(corpus)
    cut = 0
    with Progress(total, "embed", "passages", start, progress) as bar:
        for first in range(start, total + 1, shard):
            numbers = range(first, min(first + shard, total))
            texts = [passage_text(passage) for passage in corpus.passages(numbers)]
            cut += biencoder.count_cut(texts)
            if first + shard > total:
                texts.append(DONE_TEXT)
            with biencoder.telling(bar.update):
                rows = biencoder.encode_passages(texts, batch_size)
            yield rows
    if cut:
        log.warning(biencoder.cut_notice(cut, total - start, "--limits.input (of grls index)"))
