"""Embeds a whole corpus; a killed run resumes where it stopped.

Legend: N passages, d embedding dimension.

Rows are appended to one ``.npy`` file in a work folder, a shard at a time. After each shard ``plan.json`` is
written, with the number of safe rows, the hash of the file so far, and the fingerprints of model, settings
and corpus. Rows beyond that number are dropped; after damage, all rows are embedded again. Row n is passage
n, row N is DONE.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from grls.data.corpus import Corpus
from grls.errors import ConfigError, DataError, Option
from grls.io.files import read_json, write_json
from grls.io.locks import LockedFile
from grls.io.progress import Progress
from grls.models.biencoder import DONE_TEXT, BiEncoderModel, Matrix
from grls.models.text_encoder import passage_text
from grls.retrieve.encoded.encode import refuse_unusable_corpus, settings_sum

log = logging.getLogger(__name__)

FORMAT = 1
PLAN = "plan.json"
EMBEDDINGS = "embeddings.npy"
SHARD = 4096
"""Passages between two points from which a run can resume."""


def work_folder(destination: str | Path) -> Path:
    """The work folder for the embeddings of a retriever at ``destination``."""
    path = Path(destination).absolute()
    if path.is_symlink():  # the work folder is on the disk of the retriever
        path = Path(os.path.realpath(path))
    return path.with_name(f".{path.name}.embeddings")


def encode_corpus(
    biencoder: BiEncoderModel,
    corpus: Corpus,
    batch_size: int = 64,
    progress: bool = False,
    shard: int = SHARD,
) -> Matrix:
    """Embeddings ``[N + 1, d]`` of a corpus and DONE, in memory."""
    return np.concatenate(list(_shards(biencoder, corpus, 0, batch_size, progress, shard)))


def encode_to_disk(
    biencoder: BiEncoderModel,
    corpus: Corpus,
    work: str | Path,
    batch_size: int = 64,
    progress: bool = False,
    shard: int = SHARD,
) -> Path:
    """Write the embeddings ``[N + 1, d]`` of a corpus and DONE to a work folder; returns the ``.npy`` file.

    Rows from an earlier run of the same model and corpus are kept, other rows are dropped. The caller moves
    the file and removes the folder.

    Args:
        biencoder: Embeds the passages.
        corpus: N passages.
        work: The work folder.
        batch_size: Passages embedded together.
        progress: Show a progress bar.
        shard: Passages between two points from which a run can resume.

    Raises:
        ConfigError: The work folder holds something else.
        DataError: The corpus cannot be used, or an embedding is not finite.
        WriteError: The disk is full, the folder cannot be written, or another process writes it; a later run
            can resume.
    """
    folder = Path(work)
    plan = {
        "format": FORMAT,
        "model": biencoder.fingerprint(),
        "settings": settings_sum(biencoder.settings()),
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


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder with other files; after a kill, either file may be there without the other."""
    names = {entry.name for entry in folder.iterdir()} - {PLAN, EMBEDDINGS} if folder.is_dir() else set()
    strange = sorted(name for name in names if not name.startswith(f".{PLAN}."))
    if strange and not (folder / PLAN).is_file():
        raise ConfigError(
            f"{folder} holds {strange[0]!r} and no {PLAN}, so it is not a work folder of grls: remove or "
            "rename it."
        )


def _begin(file: LockedFile, plan: dict[str, Any]) -> tuple[int, Any]:
    """Begin or resume the embeddings; returns the number of safe rows, and the hash so far."""
    noted, header = file.path.with_name(PLAN), _header(plan)
    if noted.is_file():
        kept = _kept(file, plan, len(header))
        if kept is not None:
            return kept
        noted.unlink()  # before the rows that it counts
    file.cut(0)
    file.append(header)
    digest = hashlib.sha256(header)
    write_json(noted, {**plan, "done": 0, "sha256": digest.hexdigest()})
    return 0, digest


def _kept(file: LockedFile, plan: dict[str, Any], header: int) -> tuple[int, Any] | None:
    """The number of rows of an earlier run of the same plan, and their hash; None: no usable rows."""
    try:
        earlier = read_json(file.path.with_name(PLAN))
    except DataError as error:
        log.warning("%s All passages are embedded anew.", error)
        return None
    if not isinstance(earlier, dict):
        return None
    done, known = (earlier.pop(name, None) for name in ("done", "sha256"))
    if earlier != plan or not isinstance(done, int) or not file.size:
        return None
    end = header + done * plan["dimension"] * 4
    digest = _digest(file.path, end)
    if file.size < end or known != digest.hexdigest():
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
    """SHA-256 of the first ``end`` bytes of a file, to be continued."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while end > 0 and (block := stream.read(min(end, 1 << 20))):
            digest.update(block)
            end -= len(block)
    return digest


def _shards(
    biencoder: BiEncoderModel, corpus: Corpus, start: int, batch_size: int, progress: bool, shard: int
) -> Iterator[Matrix]:
    """Embeddings of the rows from ``start`` on, DONE last."""
    rows = range(start, len(corpus) + 1)
    return embedded_rows(biencoder, corpus, rows, batch_size, progress, shard)


def embedded_rows(
    biencoder: BiEncoderModel,
    corpus: Corpus,
    rows: range,
    batch_size: int,
    progress: bool = False,
    shard: int = SHARD,
) -> Iterator[Matrix]:
    """Embeddings of a range of rows, up to the last passage or DONE; warns at the end of cut passages.

    Args:
        biencoder: Embeds the passages.
        corpus: N passages.
        rows: Row n is passage n, row N is DONE.
        batch_size: Passages embedded together.
        progress: Show a progress bar.
        shard: The most rows of a part.
    """
    refuse_unusable_corpus(corpus)
    total, cut = len(corpus), 0
    with Progress(total, "embed", "passages", rows.start, progress) as bar, biencoder.telling(bar.update):
        for part, short in encoded_rows(biencoder, corpus, rows, batch_size, shard):
            cut += short
            yield part
    if cut:
        log.warning(
            biencoder.cut_notice(cut, total - rows.start, f"{Option('limits.input')!s} (of grls index)")
        )


def encoded_rows(
    biencoder: BiEncoderModel, corpus: Corpus, rows: range, batch_size: int, shard: int = SHARD
) -> Iterator[tuple[Matrix, int]]:
    """Embeddings of a range of rows, ``shard`` at a time, each with the number of passages that were cut.

    Args:
        biencoder: Embeds the passages.
        corpus: N passages.
        rows: Row n is passage n, row N is DONE.
        batch_size: Passages embedded together.
        shard: The most rows of a part.
    """
    total = len(corpus)
    for first in range(rows.start, rows.stop, shard):
        end = min(first + shard, rows.stop)
        texts = [passage_text(passage) for passage in corpus.passages(range(first, min(end, total)))]
        cut = biencoder.count_cut(texts)
        if end > total:
            texts.append(DONE_TEXT)
        yield biencoder.encode_passages(texts, batch_size), cut
