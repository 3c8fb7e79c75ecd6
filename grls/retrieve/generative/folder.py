"""The folder of a generator: how it is built, opened and saved.

It holds ``model/`` (model and tokenizer as transformers writes them), ``corpus.jsonl``, ``index/`` and
``grls.json``. :class:`~grls.retrieve.generative.retriever.GenerativeRetriever` has these
functions as methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from grls.cluster.options import Workers
from grls.cluster.plan import Work, refuse_other_reading, seen_elsewhere
from grls.cluster.shards import done_shards
from grls.data.codec import (
    LIMITS,
    Codec,
    Limits,
    limits_of,
    reset_tokenizer,
)
from grls.data.corpus import Corpus, corpus_file
from grls.data.identifiers import (
    FOLDER,
    IDENTIFIERS,
    IdentifierKind,
    Identifiers,
    Ints,
    read_kind,
    refuse_missing_rows,
)
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index.base import ConstraintIndex, Segment
from grls.index.build import ShardSorter, build_index, index_of_shards
from grls.index.options import memory_bytes
from grls.index.ranges import RANGES, PrefixRanges, open_ranges, write_ranges
from grls.index.rows import Rows
from grls.index.storage import load_index, write_index
from grls.io.files import atomic_folder, other_format, read_json, temporary
from grls.io.progress import counted
from grls.io.seal import seal
from grls.models.base import is_causal
from grls.models.head import RESCORE, read_rescore_input
from grls.models.load.build import checked_stages, load_tokenizer
from grls.models.load.generators import Pretrained
from grls.models.load.kinds import tried_with
from grls.models.load.opening import write_network
from grls.models.precision import move
from grls.retrieve.build import Building
from grls.retrieve.registry import Opening
from grls.retrieve.spec import MANIFEST

FORMAT = 6

PASSAGES = 1_000_000
"""Default number of passages (or identifiers) of a shard."""

_OFFSETS = "offsets.npy"
"""Beside the identifiers: where those of each passage begin, if a passage has several."""


def build_folder(cls: Any, model: str, corpus: str, building: Building) -> str:
    """Files in the folder of a model hold the length limits of its training, which options override, its
    identifiers, and how it rescores.
    """
    source = Pretrained(model)
    loaded = source.load()
    passages = Corpus.read(corpus)
    trained, limits = Path(model) / LIMITS, Limits()
    if trained.is_file():
        limits = limits_of(read_json(trained), trained, "train the model again, or remove the file")
    own_limits = {name: value for name, value in asdict(building.limits).items() if value is not None}
    codec = Codec(loaded.tokenizer, limits._replace(**own_limits), is_causal(loaded.model))
    kind = None
    if (Path(model) / FOLDER / IDENTIFIERS).is_file():
        kind = read_kind(Path(model) / FOLDER).knowing(passages)
        refuse_missing_rows(kind, codec, model)
    identifiers = None if kind is None else Identifiers(kind, passages)
    listed, options, memory = identifiers or passages, building.index, memory_bytes(building.index.memory)
    with temporary(building.output) as scratch:
        built: AbstractContextManager[Segment]
        if building.workers is not None:
            built = index_by_workers(model, listed, codec, building, building.workers, scratch)
        else:
            made = build_index(listed, codec, options.backend, True, options.form, memory, scratch)
            built = nullcontext(made)
        with built as index:
            learned = Path(model) / RESCORE
            rescore_input = read_rescore_input(read_json(learned), learned) if learned.is_file() else None
            parts = loaded.model, codec, passages, index
            retriever = cls(*parts, None, source.stages(), identifiers, rescore_input)
            retriever.save_pretrained(building.output)
    rows = retriever.index.rows
    assert isinstance(rows, Rows)
    tokens, count = len(rows.tokens), len(passages)
    size = sum(file.stat().st_size for file in (Path(building.output) / "index").iterdir())
    listing = f"{counted(count, 'passage')}, "
    if identifiers is not None:
        listing += f"{counted(len(identifiers), 'identifier')} ({identifiers.kind.record['kind']}), "
    unique = " of unique prefixes" if options.form == "prefixes" else ""
    return (
        f"{building.output}: {listing}{counted(len(rows), 'distinct sequence')} with DONE, {tokens:,} "
        f"tokens{unique}, index {size / 2**20:.1f} MiB ({size / tokens:.2f} B a token, "
        f"{size / count:.1f} B a passage)"
    )


def open_folder(cls: Any, folder: Path, spec: dict[str, Any], opening: Opening) -> Any:
    file, remedy = folder / MANIFEST, "make it again with `grls index`"
    if spec.get("format") != FORMAT:
        raise DataError(other_format(spec.get("format"), FORMAT), file)
    limits = limits_of(spec.get("limits"), file, remedy)
    loaded = Pretrained(str(folder / "model")).load()
    codec = Codec(loaded.tokenizer, limits, is_causal(loaded.model))
    rescore_input = read_rescore_input(spec.get("rescore"), file)
    corpus, index, identifiers = _read_passages(folder, spec, codec, opening.verify)
    stages = checked_stages(spec.get("stages", []), file, remedy)
    tried = spec.get("tried") == tried_with()
    parts = loaded.model, codec, corpus, index
    opened = cls(*parts, opening.searching, stages, identifiers, rescore_input, tried)
    _ = opened.trees  # tried in full precision
    move(loaded.model, opening.device, opening.precision)
    if opened.options.rescore:
        opened.refuse_to_rescore()
    return opened


def save_folder(self: Any, folder: str | Path, ranges: PrefixRanges | None = None) -> None:
    """Write the whole retriever to one folder, atomically; an earlier one there is replaced.

    ``ranges``: how to cut the index into prefix ranges; None: it stays whole.
    """
    with atomic_folder(folder, MANIFEST) as new:
        write_network(self.model, new / "model")
        reset_tokenizer(self.codec.tokenizer)
        self.codec.tokenizer.save_pretrained(new / "model")
        fingerprints = _fingerprints(self.codec, self.corpus, self.identifiers)
        (new / "index").mkdir()
        if ranges is None:
            write_index(self.segment, new / "index", *fingerprints)
        else:
            write_ranges(self.segment, new / "index", ranges, *fingerprints)
        self.corpus.write(corpus_file(new))
        manifest = {
            "format": FORMAT,
            "kind": self.kind,
            "limits": self.codec.limits.record(),
            "stages": list(self.stages),
        }
        if self.identifiers is not None:
            manifest["identifiers"] = self.identifiers.kind.record
            (new / FOLDER).mkdir()
            self.identifiers.kind.write(new / FOLDER)
            if self.identifiers.several:
                np.save(new / _OFFSETS, self.identifiers.offsets)
        if self.rescore_input is not None:
            manifest["rescore"] = self.rescore_input._asdict()
        with suppress(ConfigError):  # a model that cannot decode is refused when it is opened
            if self.model.dtype is torch.float32 and self.trees is not None:
                manifest["tried"] = tried_with()
        seal(new / MANIFEST, manifest)


def _read_passages(
    folder: Path, manifest: dict[str, Any], codec: Codec, verify: bool | None
) -> tuple[Corpus, ConstraintIndex, Identifiers | None]:
    corpus = Corpus.read(folder)
    identifiers = None
    if "identifiers" in manifest:
        kind = read_kind(folder / FOLDER)
        refuse_missing_rows(kind, codec, str(folder))
        identifiers = Identifiers(kind, corpus, _offsets(folder, len(corpus)))
    arguments = *_fingerprints(codec, corpus, identifiers), verify
    ranged = (folder / "index" / RANGES).is_file()
    index: ConstraintIndex = (open_ranges if ranged else load_index)(folder / "index", *arguments)
    listed = len(identifiers or corpus)
    if len(index) != listed + 1:
        unit = "passages" if identifiers is None else "identifiers"
        raise MismatchError(
            f"{folder}: the index holds {len(index) - 1:,} {unit} and the corpus {listed:,}; make "
            "it again with `grls index`."
        )
    return corpus, index, identifiers


def _offsets(folder: Path, passages: int) -> Ints:
    file = folder / _OFFSETS
    offsets: Ints = np.load(file, allow_pickle=False) if file.is_file() else np.arange(passages + 1)
    if len(offsets) != passages + 1 or offsets[0] or (np.diff(offsets) < 1).any():
        raise MismatchError(f"{file} is of another corpus; make the folder again with `grls index`.")
    return offsets


def _fingerprints(codec: Codec, corpus: Corpus, identifiers: Identifiers | None) -> tuple[str, str]:
    more = "" if identifiers is None else f" {identifiers.kind.fingerprint}"
    return codec.fingerprint(), corpus.fingerprint + more


def open_sorter(
    model: str,
    corpus: str,
    limits: Limits,
    causal: bool,
    kind: IdentifierKind | None,
    memory: int,
    expected: dict[str, str],
) -> Work:
    """Open a tokenizer and ``corpus.jsonl`` on a worker, which must have the expected fingerprints."""
    codec, passages = Codec(load_tokenizer(model), limits, causal), Corpus.read(corpus)
    fingerprints = {"codec": codec.fingerprint(), "corpus": passages.fingerprint}
    sources = {"corpus": (corpus, "corpus"), "codec": (model, "tokenizer")}
    refuse_other_reading(fingerprints, expected, sources)
    return ShardSorter(passages if kind is None else Identifiers(kind, passages), codec, memory)


@contextmanager
def index_by_workers(
    model: str,
    listed: Corpus | Identifiers,
    codec: Codec,
    building: Building,
    workers: Workers,
    scratch: Path,
) -> Iterator[Segment]:
    """The index of a corpus, or of its identifiers, built by workers and merged in ``scratch``.

    The shards stand beside the output until the block has saved it.
    """
    options = building.index
    if options.backend != "array":
        raise ConfigError(
            f"{Option('ray')} builds indexes of the backend 'array' only; got {options.backend!r}."
        )
    kind = None if isinstance(listed, Corpus) else listed.kind
    corpus = listed if isinstance(listed, Corpus) else listed.corpus
    memory = memory_bytes(options.memory)
    fingerprints = {"codec": codec.fingerprint(), "corpus": corpus.fingerprint}
    settings = {"what": "index", **fingerprints, "identifiers": kind and kind.fingerprint}
    sources = seen_elsewhere(model), str(corpus_file(corpus.source).absolute())
    make = partial(open_sorter, *sources, codec.limits, codec.causal, kind, memory, fingerprints)
    size = workers.options.shard or PASSAGES
    shards = done_shards(building.output, settings, len(listed), size, make, workers, "sort", "passages")
    with shards as done:
        yield index_of_shards(done, codec, memory, options.form, scratch, progress=True)
