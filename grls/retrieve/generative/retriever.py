"""A generative retriever: model, tokenizer, index and corpus together, in memory and on disk.

Its folder holds ``model/`` (model and tokenizer as transformers writes them), ``corpus.jsonl``, ``index/``
and ``grls.json``; where passages were added since, ``added/`` (a second segment of the index), and where some
were removed, ``removed.json``. Hops: :mod:`grls.retrieve.hops.search`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from transformers import PreTrainedTokenizerBase

from grls.cluster.options import Workers
from grls.cluster.plan import (
    ShardPlan,
    Work,
    held_shards,
    refuse_other_reading,
    seen_elsewhere,
)
from grls.cluster.work import done_by_workers
from grls.data.codec import LIMITS, Codec, Limits, limits_of, reset_tokenizer, tokenizer_fingerprint
from grls.data.corpus import Corpus, corpus_file
from grls.data.filters import Allow
from grls.data.inputs.arguments import Count, checked
from grls.data.spans import SPANS, Spans, read_spans
from grls.data.types import Hit, Passage, Query
from grls.decode import ScoredPassage
from grls.decode.prior import Prior
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index import ConstraintIndex, Segment, UnionIndex, load_index
from grls.index.build import ShardSorter, build_index, index_of_shards
from grls.index.options import IndexOptions, memory_bytes
from grls.index.ranges import RANGES, PrefixRanges, open_ranges, write_ranges
from grls.index.rows import Form, Rows
from grls.index.storage import MANIFEST as INDEX
from grls.index.storage import write_index
from grls.io.files import atomic_folder, other_format, read_json, sha256, temporary, write_json
from grls.io.progress import counted
from grls.models.head import RESCORE, RescoreInput, read_rescore_input
from grls.models.load.build import Pretrained, checked_stages
from grls.models.load.kinds import is_causal, tried_with
from grls.models.load.language import weights_fingerprint
from grls.models.load.opening import refuse_other_settings, settings_in, write_network
from grls.models.precision import is_packed, move
from grls.retrieve.base import ChainToContinue, DecodesPassages, Description, NextHop, Retriever, single_steps
from grls.retrieve.build import Building
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.plans import DecodesPlans
from grls.retrieve.generative.search import DecodedPassages
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import Opening, folder_key
from grls.retrieve.spec import MANIFEST, own_sum, read_spec, write_manifest
from grls.retrieve.update import ChangedCount, Changes

FORMAT = 4
KIND = "generative"
REMOVED = "removed.json"

_PARTS = {
    "metadata": "the metadata of corpus.jsonl",
    "index_sha256": "index/index.json",
    "added_sha256": "added/index.json",
}
"""Fields of a manifest with a checksum, and the part that it is of."""

_SUMS = ("weights", "settings", "metadata", "index_sha256", "sha256")
"""The fields of a manifest that tie it to the other files and to itself."""

PASSAGES = 1_000_000
"""Default number of passages (or spans) of a shard."""


class GenerativeRetriever(DecodedPassages, DecodesPlans):
    """Retrieves by decoding passages; its scores are log-probabilities.

    Args:
        model: A transformers model, sequence-to-sequence or causal; it is used in eval mode.
        codec: Text to tokens, with the model's tokenizer (``causal`` for a causal model).
        corpus: The passages; passage n of the index is passage n here.
        index: The constraint index of that corpus (or of its spans) and tokenizer, DONE last.
        options: Options of decoding.
        stages: The training stages of the model.
        removed: Numbers of removed passages, which no search returns.
        spans: The spans that the model writes; None: it writes passages from their beginning.
        rescore_input: How the model reads passages for rescoring; None: it has not learned to rescore.
        tried: Whether the model has passed its trial (:mod:`grls.models.load.kinds`).
    """

    kind = "generative"
    tuned_by = ("grls.tune.priors:RESCORING",)
    embeddable = False
    scores_are_log_probabilities = True
    built_by_workers = True

    @classmethod
    def assemble(
        cls,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        limits: Limits | None = None,
        backend: str = "array",
        options: SearchOptions | None = None,
        progress: bool = False,
        stages: Sequence[str] = (),
        form: Form = "whole",
        memory: int | None = None,
        scratch: str | Path | None = None,
        span_words: int | None = None,
        rescore_input: RescoreInput | None = None,
    ) -> Self:
        """Build a retriever from a model and a corpus, with an index by :func:`grls.index.build_index`.

        ``span_words`` is the number of words of the spans that the model writes (None: whole passages).
        """
        codec = Codec(tokenizer, limits, is_causal(model))
        spans = None if span_words is None else Spans(corpus, span_words)
        index = build_index(spans or corpus, codec, backend, progress, form, memory, scratch)
        return cls(model, codec, corpus, index, options, stages, spans=spans, rescore_input=rescore_input)

    @classmethod
    def build(cls, model: str, corpus: str, building: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`.

        Files beside a model hold the length limits of its training, its spans and how it rescores. Options
        override these files.
        """
        building.refuse_unused(
            "a generator", ("similarity",), f"leave it out, or choose {Option('kind', 'dense')}"
        )
        source = Pretrained(model)
        loaded = source.load()
        passages = Corpus.read(corpus)
        trained, limits = Path(model) / LIMITS, Limits()
        if trained.is_file():
            limits = limits_of(read_json(trained), trained, "train the model again, or remove the file")
        own_limits = {name: value for name, value in asdict(building.limits).items() if value is not None}
        codec = Codec(loaded.tokenizer, limits._replace(**own_limits), is_causal(loaded.model))
        span_words = building.index.span_words
        if span_words is None and (Path(model) / SPANS).is_file():
            span_words = read_spans(read_json(Path(model) / SPANS), Path(model) / SPANS)
        spans = Spans(passages, span_words) if span_words else None
        shards = nullcontext() if building.workers is None else held_shards(building.output)
        with shards as folder, temporary(building.output) as scratch:
            options, listed = building.index, spans or passages
            if building.workers is not None and folder is not None:
                index = index_by_workers(model, listed, codec, options, building.workers, folder, scratch)
            else:
                memory = memory_bytes(options.memory)
                index = build_index(listed, codec, options.backend, True, options.form, memory, scratch)
            learned = Path(model) / RESCORE
            rescore_input = read_rescore_input(read_json(learned), learned) if learned.is_file() else None
            parts = loaded.model, codec, passages, index
            retriever = cls(*parts, None, source.stages(), spans=spans, rescore_input=rescore_input)
            retriever.save_pretrained(building.output)
        rows = retriever.index.rows
        assert isinstance(rows, Rows)
        tokens, count = len(rows.tokens), len(passages)
        size = sum(file.stat().st_size for file in (Path(building.output) / "index").iterdir())
        listing = f"{counted(count, 'passage')}, "
        if spans is not None:
            listing += f"{counted(len(spans), 'span')} of {counted(spans.words, 'word')}, "
        unique = " of unique prefixes" if options.form == "prefixes" else ""
        return (
            f"{building.output}: {listing}{counted(len(rows), 'distinct sequence')} with DONE, {tokens:,} "
            f"tokens{unique}, index {size / 2**20:.1f} MiB ({size / tokens:.2f} B a token, "
            f"{size / count:.1f} B a passage)"
        )

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "float32",
        options: SearchOptions | None = None,
        verify: bool | None = None,
    ) -> Self:
        """Open a retriever folder.

        Args:
            folder: A folder that :meth:`save_pretrained` or ``grls index`` wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
            precision: See :mod:`grls.models.precision`.
            options: Options of decoding.
            verify: Compare the checksums of the index; None: see :func:`grls.index.load_index`.

        Raises:
            DataError: The folder is not a retriever, or a file in it is damaged.
            IndexFormatError: The index is damaged.
            MismatchError: The index belongs to another tokenizer or corpus, or the model, the metadata or the
                index has changed since the folder was made.
        """
        path = Path(folder)
        manifest = _read_manifest(path)
        remedy = "make it again with `grls index`"
        limits = limits_of(manifest.get("limits"), path / MANIFEST, remedy)
        refuse_other_settings(path / "model", manifest["settings"], path / MANIFEST)
        loaded = Pretrained(str(path / "model")).load()
        if manifest["weights"] != weights_fingerprint(loaded.model):
            raise MismatchError(
                f"{path / 'model'}: the weights are others than those that this retriever was made with: the "
                "file is damaged, or is another training's; make the retriever again with `grls index`."
            )
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        codec = Codec(loaded.tokenizer, limits, is_causal(loaded.model))
        rescore_input = read_rescore_input(manifest.get("rescore"), path / MANIFEST)
        corpus, index, removed, spans = _read_passages(path, manifest, codec, verify)
        stages = checked_stages(manifest.get("stages", []), path / MANIFEST, remedy)
        tried = manifest.get("tried") == tried_with(path / "model")
        parts = loaded.model, codec, corpus, index
        opened = cls(*parts, options, stages, removed, spans, rescore_input, tried)
        _ = opened.trees  # tried in full precision: results of int8 depend on the batch
        move(loaded.model, where, precision)
        return opened

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], opening: Opening) -> Self:
        """Open a folder; see :func:`load_retriever`."""
        opened = cls.from_pretrained(
            folder, opening.device, opening.precision, opening.searching, opening.verify
        )
        if opened.options.rescore:
            opened.refuse_to_rescore()
        return opened

    shared_by = staticmethod(folder_key)

    def reopened(self, folder: Path, opening: Opening) -> Self:
        """The same retriever with other options of search; see :mod:`grls.retrieve.registry`."""
        retriever = copy(self)
        retriever.options = opening.searching or SearchOptions()
        retriever._decoder = None
        if retriever.options.rescore:
            retriever.refuse_to_rescore()
        return retriever

    def save_pretrained(self, folder: str | Path, ranges: PrefixRanges | None = None) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced.

        Args:
            folder: The folder.
            ranges: How to cut the index into prefix ranges; None: it stays whole.

        Raises:
            ConfigError: The model has packed weights, which cannot be written; or the index is cut already,
                or cannot be cut.
        """
        if is_packed(self.model):
            raise ConfigError(
                "the weights of the model are packed and cannot be saved: open it in float32 to save it."
            )
        with atomic_folder(folder, MANIFEST) as new:
            write_network(self.model, new / "model")
            reset_tokenizer(self.codec.tokenizer)
            self.codec.tokenizer.save_pretrained(new / "model")
            base, added = self._segments()
            if ranges is not None and added is not None:
                raise ConfigError(
                    "passages were added to the index: merge it with `grls index update "
                    f"{Option('merge', True)}` before it is cut into ranges."
                )
            words = None if self.spans is None else self.spans.words
            fingerprints = _fingerprints(self.codec, self.corpus, words)
            for name, segment in (("index", base), ("added", added)):
                if segment is not None:
                    (new / name).mkdir()
                    if ranges is None:
                        write_index(segment, new / name, *fingerprints)
                    else:
                        write_ranges(segment, new / name, ranges, *fingerprints)
            self.corpus.write(corpus_file(new))
            manifest = {
                "format": FORMAT,
                "kind": KIND,
                "limits": self.codec.limits.record(),
                "stages": list(self.stages),
            }
            if added is not None or self.removed:
                manifest |= {"added": added is not None, "removed": bool(self.removed)}
            if self.removed:
                write_json(new / REMOVED, self.corpus.ids(sorted(self.removed)))
            if self.spans is not None:
                manifest["spans"] = self.spans.record
            if self.rescore_input is not None:
                manifest["rescore"] = self.rescore_input._asdict()
            manifest |= {"weights": weights_fingerprint(self.model), "settings": settings_in(new / "model")}
            with suppress(ConfigError):  # a model that cannot decode is refused when it is opened
                if self.model.dtype is torch.float32 and self.trees is not None:
                    manifest["tried"] = tried_with(new / "model")
            manifest |= _sums(new, self.corpus)
            write_manifest(new, {**manifest, "sha256": own_sum(manifest)})

    @classmethod
    def update(cls, folder: Path, output: Path, changes: Changes) -> ChangedCount:
        """Write a changed folder, whose index is not built again. See :mod:`grls.retrieve.update`."""
        opened = cls.from_pretrained(folder, "cpu")
        if changes.remove:
            opened.remove(changes.remove, adding=changes.add is not None)
        if changes.add is not None:
            opened.add(changes.add)
        if changes.merge:
            opened.merge()
        opened.save_pretrained(output)
        return ChangedCount(len(opened.corpus) - len(opened.removed), len(opened.removed))

    @staticmethod
    def removed_in(folder: Path) -> list[str]:
        """Ids of passages that a folder holds until its index is merged, though they were removed."""
        if not read_spec(folder).get("removed"):
            return []
        corpus = Corpus.read(folder)
        return corpus.ids(_removed(folder / REMOVED, corpus))

    def fingerprint(self) -> str:
        """SHA-256 of the model, the corpus, and the options of spans."""
        parts = {
            "weights": weights_fingerprint(self.model),
            "tokenizer": tokenizer_fingerprint(self.codec.tokenizer),
            "limits": list(self.codec.limits.record().values()),
            "corpus": self.corpus.fingerprint,
            "removed": sorted(self.removed),
            "spans": None if self.spans is None else self.spans.record,
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @checked
    def retrieve(self, queries: Any, k: Count, allow: Allow = None) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them.

        Under ``renormalized`` scores the score of a hit is its log-probability among the allowed passages.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: A filter cannot be used, or no filter leaves a passage.
        """
        queries = queries_of(queries)
        inputs = [self.codec.model_input(tokens) for tokens in self.encode(queries)]
        subsets = self.subsets(queries, allow)
        rankings = self.search(inputs, k, [[self.done]] * len(inputs), subsets=subsets)
        return [self.hits(ranking) for ranking in rankings]

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        options = self.options
        names = ["beams", "early_stop", "truncate_queries"]
        names += [] if self.spans is None else ["span_temperature", "span_threshold"]
        names += ["rescore", "rescore_weight"] if options.rescore else []
        mode = f"{options.mode}{', rescored' if options.rescore else ''}"
        return Description(
            "generator", mode, {name: getattr(options, name) for name in names}, stages=self.stages
        )

    @property
    def generator(self) -> Self:
        """The generator that decodes: itself."""
        return self

    def look_ahead(self, query: Query, evidence: Sequence[Passage]) -> Prior | None:
        """None: priors belong to :class:`~grls.retrieve.hybrid.retriever.HybridRetriever`."""
        return None

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        """Prepare the hops of these queries; see :class:`~grls.retrieve.base.DecodesHops`."""
        tokens, subsets = self.encode(queries), self.subsets(queries, allow)

        def find(live: Sequence[ChainToContinue], hop: int, k: int) -> list[list[ScoredPassage]]:
            inputs = [
                self.hop_input(queries[chain.query], tokens[chain.query], chain.passages) for chain in live
            ]
            within = [subsets[chain.query] for chain in live]
            return self.search(inputs, k, [chain.hidden for chain in live], f"hop {hop + 1}", within)

        return find


def as_generator(retriever: Retriever, why: str) -> GenerativeRetriever:
    """The retriever, or that of its single steps, as a generator; ``why`` begins the error.

    Raises:
        ConfigError: The retriever is of another kind.
    """
    inner, generator = single_steps(retriever), generator_within(retriever)
    if generator is None or generator is not inner:
        raise ConfigError(f"{why}: give the folder of a generative retriever; this one is {retriever.kind}.")
    return generator


def generator_within(retriever: Retriever) -> GenerativeRetriever | None:
    """The generator in a retriever, if it has one."""
    inner = single_steps(retriever)
    if not isinstance(inner, DecodesPassages):
        return None
    generator: GenerativeRetriever = inner.generator
    return generator


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The ``grls.json`` of a generative retriever, checked."""
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


def _read_passages(
    folder: Path, manifest: dict[str, Any], codec: Codec, verify: bool | None
) -> tuple[Corpus, ConstraintIndex, list[int], Spans | None]:
    """Corpus, index, the numbers of removed passages, and the spans that the index holds, checked."""
    corpus = Corpus.read(folder)
    words = read_spans(manifest.get("spans"), folder / MANIFEST)
    arguments = *_fingerprints(codec, corpus, words), verify
    ranged = (folder / "index" / RANGES).is_file()
    base = (open_ranges if ranged else load_index)(folder / "index", *arguments)
    index: ConstraintIndex = base
    if manifest.get("added"):
        added = load_index(folder / "added", *arguments)
        if not isinstance(base, Segment):
            raise DataError(
                "an index that is cut into ranges has no added passages; make it again with `grls index`.",
                folder / MANIFEST,
            )
        index = UnionIndex(base, added)
    spans = None if words is None else Spans(corpus, words)
    listed = len(corpus if spans is None else spans)
    if len(index) != listed + 1:
        unit = "passages" if spans is None else f"spans of {spans.words} words"
        raise MismatchError(
            f"{folder}: the index holds {len(index) - 1:,} {unit} and the corpus {listed:,}; make "
            "it again with `grls index`."
        )
    removed = _removed(folder / REMOVED, corpus) if manifest.get("removed") else []
    sums = _sums(folder, corpus)
    changed = [part for name, part in _PARTS.items() if manifest.get(name) != sums.get(name)]
    if manifest["sha256"] != own_sum(manifest):
        changed.append(MANIFEST)
    if changed:
        raise MismatchError(
            f"{folder}: {changed[0]} has changed since it was written; make it again with `grls index`."
        )
    return corpus, index, removed, spans


def _sums(folder: Path, corpus: Corpus) -> dict[str, str]:
    """Fingerprints of the parts of :data:`_PARTS` as they are."""
    sums = {"metadata": corpus.metadata_fingerprint}
    for name in ("index", "added"):
        for file in (folder / name / INDEX, folder / name / RANGES):
            if file.is_file():
                sums[f"{name}_sha256"] = sha256(file)
    return sums


def _fingerprints(codec: Codec, corpus: Corpus, words: int | None) -> tuple[str, str]:
    """The fingerprints that tie an index to its codec and to its corpus, or to its spans of so many words."""
    spans = "" if words is None else f" spans of {words} words by script"
    return codec.fingerprint(), corpus.fingerprint + spans


def _removed(file: Path, corpus: Corpus) -> list[int]:
    """The numbers of the passages that a file names as removed."""
    ids = read_json(file)
    if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
        raise DataError("expected a list of passage ids; make it again with `grls index`.", file)
    numbers = corpus.numbers(ids)
    if None in numbers or not 0 < len(set(numbers)) < len(corpus):
        raise DataError("these are not passages of corpus.jsonl; make it again with `grls index`.", file)
    return [number for number in numbers if number is not None]


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
        fingerprints: The fingerprints that ``codec`` and ``corpus`` must have.
    """

    model: str
    corpus: str
    limits: Limits
    causal: bool
    spans: int | None
    memory: int
    fingerprints: dict[str, str]

    def __call__(self) -> Work:
        """Open tokenizer and corpus.

        Raises:
            MismatchError: The worker reads another corpus or tokenizer.
        """
        from grls.models.load.build import load_tokenizer

        codec = Codec(load_tokenizer(self.model), self.limits, self.causal)
        corpus = Corpus.read(self.corpus)
        fingerprints = {"codec": codec.fingerprint(), "corpus": corpus.fingerprint}
        sources = {"corpus": (self.corpus, "corpus"), "codec": (self.model, "tokenizer")}
        refuse_other_reading(fingerprints, self.fingerprints, sources)
        return ShardSorter(corpus if self.spans is None else Spans(corpus, self.spans), codec, self.memory)


def index_by_workers(
    model: str,
    listed: Corpus | Spans,
    codec: Codec,
    options: IndexOptions,
    workers: Workers,
    folder: Path,
    scratch: Path,
) -> Segment:
    """Build the index of a corpus, or of its spans, by workers.

    The shards are in ``folder``; ``scratch`` is for the merged index.
    """
    if options.backend != "array":
        raise ConfigError(
            f"{Option('ray')} builds indexes of the backend 'array' only; got {options.backend!r}."
        )
    spans = None if isinstance(listed, Corpus) else listed.words
    corpus = listed if isinstance(listed, Corpus) else listed.corpus
    memory = memory_bytes(options.memory)
    fingerprints = {"codec": codec.fingerprint(), "corpus": corpus.fingerprint}
    settings = {"what": "index", **fingerprints, "spans": spans}
    plan = ShardPlan(folder, settings, len(listed), workers.options.shard or PASSAGES)
    sources = seen_elsewhere(model), str(corpus_file(corpus.source).absolute())
    maker = SorterMaker(*sources, codec.limits, codec.causal, spans, memory, fingerprints)
    done = done_by_workers(plan, maker, workers, "sort", "passages")
    return index_of_shards(done, codec, memory, options.form, scratch, progress=True)
