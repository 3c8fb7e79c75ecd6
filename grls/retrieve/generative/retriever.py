"""A generative retriever: model, tokenizer, index and corpus together, in memory and on disk.

Its folder holds ``model/`` (model and tokenizer as transformers writes them) and the files of
:mod:`grls.retrieve.generative.folder`. Single-step retrieval is here; hops are in
:mod:`grls.retrieve.hops.search`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import torch
from transformers import PreTrainedTokenizerBase

from grls.cluster.plan import alone_at_shards
from grls.data.codec import LIMITS, Codec, Limits, limits_of, reset_tokenizer, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.inputs.arguments import Count, checked
from grls.data.spans import SPANS, Spans, read_spans
from grls.data.types import Hit, Passage, Query
from grls.decode import ScoredPassage
from grls.decode.prior import Prior
from grls.errors import ConfigError, MismatchError, Option
from grls.index.base import Segment
from grls.index.build import build_index
from grls.index.options import memory_bytes
from grls.index.ranges.cut import PrefixRanges
from grls.index.rows import Form, Rows
from grls.io.files import atomic_folder, read_json, scratch_folder
from grls.io.progress import counted
from grls.models.load.build import Pretrained, checked_stages
from grls.models.load.kinds import is_causal
from grls.models.load.language import weights_fingerprint
from grls.models.load.opening import refuse_other_settings, write_network
from grls.models.precision import is_packed, move
from grls.models.rescore_spec import RESCORE, RescoreInput, read_rescore_input
from grls.retrieve.base import DecodesPassages, Description, NextHop, Retriever, Under, single_steps
from grls.retrieve.build import Building
from grls.retrieve.generative.folder import (
    index_by_workers,
    read_generative_manifest,
    read_passages,
    removed_ids,
    write_passages,
)
from grls.retrieve.generative.joining import JoinsSearch
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.search import DecodedPassages
from grls.retrieve.queries import queries_of
from grls.retrieve.registry import Opening, folder_key
from grls.retrieve.spec import MANIFEST
from grls.retrieve.update import ChangedCount, Changes


class GenerativeRetriever(DecodedPassages, JoinsSearch):
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
    """

    kind = "generative"
    tuned_by = ("grls.tune.priors:RESCORING",)
    embeddable = False
    writes_chains = True
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

        ``span_words`` is the number of words of the spans that the model writes (None: it writes whole
        passages). See the constructor for ``rescore_input``.
        """
        codec = Codec(tokenizer, limits, is_causal(model))
        spans = None if span_words is None else Spans(corpus, span_words)
        index = build_index(spans or corpus, codec, backend, progress, form, memory, scratch)
        return cls(model, codec, corpus, index, options, stages, spans=spans, rescore_input=rescore_input)

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`.

        Files beside a model say with which length limits it was trained, which spans it writes and how it
        rescores. Options override these files.
        """
        how.refuse_unused(
            "a generator", ("similarity",), f"leave it out, or choose {Option('kind', 'dense')}"
        )
        source = Pretrained(model)
        loaded = source.load()
        passages = Corpus.read(corpus)
        trained, limits = Path(model) / LIMITS, Limits()
        if trained.is_file():
            limits = limits_of(read_json(trained), trained, "train the model again, or remove the file")
        given = {name: value for name, value in asdict(how.limits).items() if value is not None}
        codec = Codec(loaded.tokenizer, limits._replace(**given), is_causal(loaded.model))
        span_words = how.index.span_words
        if span_words is None and (Path(model) / SPANS).is_file():
            span_words = read_spans(read_json(Path(model) / SPANS), Path(model) / SPANS)
        spans = Spans(passages, span_words) if span_words else None
        alone = nullcontext() if how.workers is None else alone_at_shards(how.output)
        with alone, scratch_folder(how.output) as scratch:
            index: Segment
            options, listed = how.index, spans or passages
            plan = None
            if how.workers is not None:
                by_workers = options, how.workers, how.output, scratch
                index, plan = index_by_workers(model, listed, codec, *by_workers)
            else:
                memory = memory_bytes(options.memory)
                index = build_index(listed, codec, options.backend, True, options.form, memory, scratch)
            learned = Path(model) / RESCORE
            rescore_input = read_rescore_input(read_json(learned), learned) if learned.is_file() else None
            parts = loaded.model, codec, passages, index
            retriever = cls(*parts, None, source.stages(), spans=spans, rescore_input=rescore_input)
            retriever.save_pretrained(how.output)
            if plan is not None:
                plan.remove()
        rows = retriever.index.rows
        assert isinstance(rows, Rows)
        tokens, count = len(rows.tokens), len(passages)
        size = sum(file.stat().st_size for file in (Path(how.output) / "index").iterdir())
        listing = f"{counted(count, 'passage')}, "
        if spans is not None:
            listing += f"{counted(len(spans), 'span')} of {counted(spans.words, 'word')}, "
        unique = " of unique prefixes" if options.form == "prefixes" else ""
        return (
            f"{how.output}: {listing}{counted(len(rows), 'distinct sequence')} with DONE, {tokens:,} "
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
        manifest = read_generative_manifest(path)
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
        corpus, index, removed, spans = read_passages(path, manifest, codec, verify)
        stages = checked_stages(manifest.get("stages", []), path / MANIFEST, remedy)
        opened = cls(loaded.model, codec, corpus, index, options, stages, removed, spans, rescore_input)
        _ = opened.trees  # tried in full precision: results of int8 depend on the batch
        move(loaded.model, where, precision)
        return opened

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder; see :func:`load_retriever`."""
        opened = cls.from_pretrained(folder, how.device, how.precision, how.searching, how.verify)
        if opened.options.rescore:
            opened.refuse_to_rescore()
        return opened

    shared_by = staticmethod(folder_key)

    def reopened(self, folder: Path, how: Opening) -> Self:
        """The same retriever with other options of search; see :mod:`grls.retrieve.registry`.

        Raises:
            ConfigError: ``rescore`` is set, and the model has not learned to.
        """
        again = copy(self)
        again.options = how.searching or SearchOptions()
        again._kept = None
        if again.options.rescore:
            again.refuse_to_rescore()
        return again

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
            segments = self._segments()
            if ranges is not None and segments[1] is not None:
                raise ConfigError(
                    "passages were added to the index: merge it with `grls index update "
                    f"{Option('merge', True)}` before it is cut into ranges."
                )
            passages = (self.corpus, segments, self.removed, self.spans)
            weights = weights_fingerprint(self.model)
            write_passages(new, self.codec, *passages, self.stages, self.rescore_input, weights, ranges)

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
        return removed_ids(folder)

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

        Args:
            queries: The queries.
            k: Largest number of hits for a query.
            allow: The filter; see :class:`~grls.retrieve.base.Retriever`. Under ``renormalized`` scores the
                score of a hit is its log-probability among the allowed passages.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: A filter cannot be used, or no filter leaves a passage.
        """
        queries = queries_of(queries)
        inputs = [self.codec.model_input(tokens) for tokens in self.encode(queries)]
        allowed = self.subsets(queries, allow)
        rankings = self.search(inputs, k, [[self.done]] * len(inputs), allow=allowed)
        return [self.hits(ranking) for ranking in rankings]

    def describe(self) -> Description:
        """Its description in manifests and reports."""
        how = self.options
        names = ["beams", "early_stop", "truncate_queries"]
        names += [] if self.spans is None else ["span_temperature"]
        names += ["rescore", "rescore_weight"] if how.rescore else []
        mode = f"{how.mode}{', rescored' if how.rescore else ''}"
        return Description(
            "generator", mode, {name: getattr(how, name) for name in names}, stages=self.stages
        )

    @property
    def generator(self) -> Self:
        """The generator that decodes: itself."""
        return self

    def look_ahead(self, query: Query, evidence: Sequence[Passage]) -> Prior | None:
        """None: priors belong to :class:`~grls.retrieve.hybrid.retriever.HybridRetriever`."""
        return None

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        """Prepare the hops of these queries; see :class:`~grls.retrieve.base.WritesChains`."""
        tokens, allowed = self.encode(queries), self.subsets(queries, allow)

        def find(live: Sequence[Under], hop: int, k: int) -> list[list[ScoredPassage]]:
            inputs = [
                self.codec.model_input(
                    tokens[chain.query], self.evidence(queries[chain.query].text, chain.passages)
                )
                for chain in live
            ]
            within = [allowed[chain.query] for chain in live]
            return self.search(inputs, k, [chain.hidden for chain in live], f"hop {hop + 1}", within)

        return find


# The generator in a retriever.


def as_generator(retriever: Retriever, why: str) -> GenerativeRetriever:
    """The retriever, or the one of its single steps, as a generator.

    Args:
        retriever: Any retriever.
        why: Why a generator is needed, for the error.

    Raises:
        ConfigError: The retriever is of another kind.
    """
    one, generator = single_steps(retriever), generator_within(retriever)
    if generator is None or generator is not one:
        raise ConfigError(f"{why}: give the folder of a generative retriever; this one is {retriever.kind}.")
    return generator


def generator_within(retriever: Retriever) -> GenerativeRetriever | None:
    """The generator in a retriever; None: it has none."""
    one = single_steps(retriever)
    if not isinstance(one, DecodesPassages):
        return None
    generator: GenerativeRetriever = one.generator
    return generator
