"""The folder of a generative retriever, but for its model.

``grls.json`` (format version, length limits, training stages), ``index/`` and ``corpus.jsonl``; where
passages were added since, ``added/`` (a second segment of the index), and where some were removed,
``removed.json``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grls.cluster.options import Workers
from grls.cluster.plan import ShardPlan, Work, other_on_worker, seen_elsewhere, shards_folder
from grls.cluster.work import done_by_workers
from grls.data.codec import Codec, Limits
from grls.data.corpus import Corpus, corpus_file
from grls.data.spans import Spans, read_spans
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index import ConstraintIndex, Segment, UnionIndex, load_index
from grls.index.build import ShardSorter, index_of_shards
from grls.index.options import IndexOptions, memory_bytes
from grls.index.ranges.cut import RANGES, PrefixRanges, open_ranges, write_ranges
from grls.index.storage import MANIFEST as INDEX
from grls.index.storage import write_index
from grls.io.files import other_format, read_json, sha256, write_json
from grls.models.load.opening import settings_in
from grls.models.rescore_spec import RescoreInput
from grls.retrieve.spec import MANIFEST, own_sum, read_spec, write_manifest

FORMAT = 4
KIND = "generative"
REMOVED = "removed.json"


def read_generative_manifest(folder: Path) -> dict[str, Any]:
    """What stands in the ``grls.json`` of a generative retriever.

    Raises:
        DataError: There is none, or it is not one of ours.
    """
    file = folder / MANIFEST
    manifest = read_spec(folder)
    if manifest["kind"] != KIND:
        raise DataError(
            f"this is a retriever of the kind {manifest['kind']!r}, and a generative one is wanted here: "
            "give the folder of one, or make one with `grls index MODEL`.",
            file,
        )
    if manifest.get("format") != FORMAT:
        raise DataError(other_format(manifest.get("format"), FORMAT), file)
    if lacking := [name for name in _SUMS if name not in manifest]:
        raise DataError(f"the field {lacking[0]!r} is missing; make it again with `grls index`.", file)
    return manifest


def read_passages(
    folder: Path, manifest: dict[str, Any], codec: Codec, verify: bool | None
) -> tuple[Corpus, ConstraintIndex, list[int], Spans | None]:
    """Corpus, index, the numbers of the passages that were removed, and the spans that the index holds.

    Args:
        folder: The retriever's.
        manifest: What stands in it.
        codec: What wrote the passages as tokens.
        verify: See :func:`grls.index.load_index`.

    Raises:
        DataError: A file is damaged.
        IndexFormatError: The index is damaged.
        MismatchError: The index belongs to another tokenizer or corpus.
    """
    corpus = Corpus.read(folder)
    cut = read_spans(manifest.get("spans"), folder / MANIFEST)
    belongs = codec.fingerprint(), _listed(corpus, cut), verify
    held = folder / "index"
    ranged = (held / RANGES).is_file()
    base = open_ranges(held, *belongs) if ranged else load_index(held, *belongs)
    added = load_index(folder / "added", *belongs) if manifest.get("added") else None
    index: ConstraintIndex = base
    if added is not None:
        if not isinstance(base, Segment):
            raise DataError(
                "an index that is cut into ranges has no added passages; make it again with `grls index`.",
                folder / MANIFEST,
            )
        index = UnionIndex(base, added)
    spans = None if cut is None else Spans(corpus, cut)
    listed = len(corpus if spans is None else spans)
    if len(index) != listed + 1:
        what = "passages" if spans is None else f"spans of {spans.words} words"
        raise MismatchError(
            f"{folder}: the index holds {len(index) - 1:,} {what} and the corpus {listed:,}; make "
            "it again with `grls index`."
        )
    removed = _removed(folder / REMOVED, corpus) if manifest.get("removed") else []
    sums = sums_of(folder, corpus)
    changed = [part for what, part in _PARTS.items() if manifest.get(what) != sums.get(what)]
    if manifest["sha256"] != own_sum(manifest):
        changed.append(MANIFEST)
    if changed:
        raise MismatchError(
            f"{folder}: {changed[0]} has changed since it was written; make it again with `grls index`."
        )
    return corpus, index, removed, spans


_PARTS = {
    "metadata": "the metadata of corpus.jsonl",
    "index_sha256": "index/index.json",
    "added_sha256": "added/index.json",
}
"""What a manifest knows of the parts that no other checksum is of."""
_SUMS = ("weights", "settings", "metadata", "index_sha256", "sha256")
"""The fields of a manifest that tie it to the other files and to itself."""


def sums_of(folder: Path, corpus: Corpus) -> dict[str, str]:
    """Fingerprints of the parts of :data:`_PARTS` as they are."""
    sums = {"metadata": corpus.metadata_fingerprint}
    for name in ("index", "added"):
        for file in (folder / name / INDEX, folder / name / RANGES):
            if file.is_file():
                sums[f"{name}_sha256"] = sha256(file)
    return sums


def _listed(corpus: Corpus, words: int | None) -> str:
    """What an index is of: the fingerprint of a corpus, or of its spans of some words."""
    return corpus.fingerprint + ("" if words is None else f" spans of {words} words by script")


def write_passages(
    folder: Path,
    codec: Codec,
    corpus: Corpus,
    segments: tuple[ConstraintIndex, Segment | None],
    removed: Collection[int],
    spans: Spans | None,
    stages: Sequence[str],
    rescore_input: RescoreInput | None,
    weights: str,
    ranges: PrefixRanges | None = None,
) -> None:
    """Write all but the model, which is there already; the manifest last.

    Args:
        folder: The retriever's.
        codec: What wrote the passages as tokens.
        corpus: The passages.
        segments: The index, and what was added since.
        removed: Numbers of the passages that were removed.
        spans: What the index holds of the passages; None: all of them.
        stages: The training stages that the model has gone through.
        rescore_input: How the model learned to rescore passages; None: it did not.
        weights: The fingerprint of the model's weights.
        ranges: How to cut the index into prefix ranges; None: it stays whole.
    """
    base, added = segments
    belongs = codec.fingerprint(), _listed(corpus, None if spans is None else spans.words)
    for name, segment in (("index", base), ("added", added)):
        if segment is None:
            continue
        (folder / name).mkdir()
        if ranges is not None:
            write_ranges(segment, folder / name, ranges, *belongs)
        else:
            assert isinstance(segment, Segment)
            write_index(segment, folder / name, *belongs)
    corpus.write(corpus_file(folder))
    if removed:
        write_json(folder / REMOVED, corpus.ids(sorted(removed)))
    changed = added is not None or bool(removed)
    manifest = {
        "format": FORMAT,
        "kind": KIND,
        "limits": codec.limits.record(),
        "stages": list(stages),
    }
    if changed:
        manifest |= {"added": added is not None, "removed": bool(removed)}
    if spans is not None:
        manifest["spans"] = spans.record
    if rescore_input is not None:
        manifest["rescore"] = rescore_input._asdict()
    settings = settings_in(folder / "model")
    manifest |= {"weights": weights, "settings": settings, **sums_of(folder, corpus)}
    write_manifest(folder, {**manifest, "sha256": own_sum(manifest)})


def removed_ids(folder: Path) -> list[str]:
    """Ids of passages that were removed from a folder, and are in it until its index is merged.

    Raises:
        DataError: A file is damaged.
    """
    if not read_spec(folder).get("removed"):
        return []
    corpus = Corpus.read(folder)
    return corpus.ids(_removed(folder / REMOVED, corpus))


def _removed(file: Path, corpus: Corpus) -> list[int]:
    """The numbers of the passages that a file names as removed."""
    ids = read_json(file)
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise DataError("expected a list of passage ids; make it again with `grls index`.", file)
    found = corpus.numbers(ids)
    if None in found or not 0 < len(set(found)) < len(corpus):
        raise DataError("these are not passages of corpus.jsonl; make it again with `grls index`.", file)
    return [number for number in found if number is not None]


# The index of a generative retriever, built by workers: each sorts shards of the corpus.


PASSAGES = 1_000_000
"""Passages (or spans) of a shard, unless an option says otherwise."""


@dataclass(frozen=True)
class SorterMaker:
    """Opens a tokenizer and a corpus on a worker, for :class:`~grls.index.build.ShardSorter`.

    Attributes:
        model: Folder of the model, or a hub name.
        corpus: ``corpus.jsonl``.
        limits: Length limits of the codec.
        causal: Whether the model is causal.
        spans: Words of a span; None: whole passages.
        memory: Memory for sorting in bytes.
        codec_fingerprint: The fingerprint that the codec must have.
        corpus_fingerprint: The fingerprint that the corpus must have.
    """

    model: str
    corpus: str
    limits: Limits
    causal: bool
    spans: int | None
    memory: int
    codec_fingerprint: str
    corpus_fingerprint: str

    def __call__(self) -> Work:
        """Open what the work needs.

        Raises:
            MismatchError: The worker reads another corpus or tokenizer.
        """
        from grls.models.load.build import load_tokenizer

        codec = Codec(load_tokenizer(self.model), self.limits, self.causal)
        corpus = Corpus.read(self.corpus)
        if corpus.fingerprint != self.corpus_fingerprint:
            raise MismatchError(other_on_worker(self.corpus, "corpus"))
        if codec.fingerprint() != self.codec_fingerprint:
            raise MismatchError(other_on_worker(self.model, "tokenizer"))
        return ShardSorter(corpus if self.spans is None else Spans(corpus, self.spans), codec, self.memory)


def index_by_workers(
    model: str,
    listed: Corpus | Spans,
    codec: Codec,
    options: IndexOptions,
    workers: Workers,
    output: str,
    scratch: Path,
) -> tuple[Segment, ShardPlan]:
    """Build the index of a corpus by workers.

    Args:
        model: Folder of the model, or a hub name, for its tokenizer.
        listed: The corpus, or its spans.
        codec: Turns passages into tokens.
        options: Options of the index.
        workers: The workers.
        output: The folder that is made; the shards stand beside it.
        scratch: A folder for the merged index.

    Returns:
        The index, and the plan, whose folder the caller removes once the index is saved.

    Raises:
        ConfigError: Only the backend ``array`` is built by workers; or the cluster cannot be used.
        MismatchError: Shards of other work are there.
    """
    if options.backend != "array":
        raise ConfigError(
            f"{Option('ray')} builds indexes of the backend 'array' only; got {options.backend!r}."
        )
    spans = None if isinstance(listed, Corpus) else listed.words
    corpus = listed if isinstance(listed, Corpus) else listed.corpus
    memory = memory_bytes(options.memory)
    settings: dict[str, Any] = {
        "what": "index", "codec": codec.fingerprint(), "corpus": corpus.fingerprint, "spans": spans,
    }  # fmt: skip
    plan = ShardPlan(shards_folder(output), settings, len(listed), workers.options.shard or PASSAGES)
    place = str(corpus_file(corpus.source).absolute())
    maker = SorterMaker(
        seen_elsewhere(model), place, codec.limits, codec.causal, spans, memory, settings["codec"],
        settings["corpus"],
    )  # fmt: skip
    done = done_by_workers(plan, maker, workers, "sort", "passages")
    return index_of_shards(done, codec, memory, options.form, scratch, progress=True), plan
