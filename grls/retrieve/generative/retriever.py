"""A generative retriever: model, tokenizer, index and corpus together, in memory and on disk.

Its folder holds ``model/`` (model and tokenizer as transformers writes them) and what
:mod:`grls.retrieve.generative.folder` says. Single-step retrieval is here; hops are in ``multistep``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from transformers import PreTrainedTokenizerBase

from grls.data.codec import Codec, Limits, reset_tokenizer, tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.filters import Allow
from grls.data.spans import By, Spans
from grls.data.types import Hit, Passage, Query
from grls.decode import Decoder, ScoredPassage
from grls.decode.frontier import Frontier
from grls.decode.prior import Prior
from grls.decode.slots import SlotDecoder
from grls.errors import ConfigError
from grls.index import ConstraintIndex, Subset, build_index
from grls.index.rows import Form
from grls.io.files import atomic_folder
from grls.models.base import Floats
from grls.models.load.build import Pretrained, checked_stages
from grls.models.load.kinds import is_causal
from grls.models.load.language import weights_fingerprint
from grls.models.load.settings import refuse_other_settings
from grls.models.precision import is_packed, move
from grls.models.rescore_spec import RescoreInput, read_rescore_input
from grls.models.seq2seq.plain import check_positions
from grls.models.turns import turn
from grls.retrieve.base import Description, NextHop, Under
from grls.retrieve.build import Building
from grls.retrieve.generative.decoders import Decoders
from grls.retrieve.generative.folder import (
    read_generative_manifest,
    read_limits,
    read_passages,
    refuse_other_weights,
    write_passages,
)
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.passages import IndexedPassages
from grls.retrieve.generative.rescore import Rescorer, rescored
from grls.retrieve.generative.span_scores import (
    PassageScores,
    Reach,
    candidates,
    hidden_spans,
    passage_scores,
    prior_over_spans,
    ranked,
    said_of,
)
from grls.retrieve.hub import upload
from grls.retrieve.queries import check_counts, queries_of
from grls.retrieve.registry import Opening
from grls.retrieve.spec import MANIFEST


class GenerativeRetriever(IndexedPassages):
    """Retrieves by decoding passages; its scores are log-probabilities.

    Args:
        model: A transformers model, sequence-to-sequence or causal; it is used in eval mode.
        codec: Text to tokens, with the model's tokenizer (``causal`` for a causal model).
        corpus: The passages; passage n of the index is passage n here.
        index: The constraint index of that corpus (or of its spans) and tokenizer, DONE last.
        options: How to decode.
        stages: The training stages that the model has gone through.
        removed: Numbers of passages that no search finds.
        spans: What it writes of a passage, where it does not write passages from their beginning.
        rescoring: How the model learned to rescore passages; None: it did not.
    """

    kind = "generative"
    embeddable = False
    writes_chains = True
    done_biases = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0)

    def __init__(
        self,
        model: Any,
        codec: Codec,
        corpus: Corpus,
        index: ConstraintIndex,
        options: SearchOptions | None = None,
        stages: Sequence[str] = (),
        removed: Collection[int] = (),
        spans: Spans | None = None,
        rescore_input: RescoreInput | None = None,
    ):
        super().__init__(codec, corpus, index, removed, spans)
        self.rescore_input = rescore_input
        self.stages = tuple(stages)
        self.model = model
        self.options = options or SearchOptions()
        self._decoders = Decoders(model, spans is not None)
        check_positions(model, 0, index.rows.longest)

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
        span_by: By = "script",
        rescore_input: RescoreInput | None = None,
    ) -> Self:
        """Build the index of a corpus for a model, as :func:`grls.index.build_index` does, around it.

        ``span_words`` is the length of the spans that the model writes (None: it writes whole passages), and
        ``span_by`` what parts their words. ``rescoring`` is as of the constructor.
        """
        codec = Codec(tokenizer, limits, is_causal(model))
        spans = None if span_words is None else Spans(corpus, span_words, span_by)
        index = build_index(spans or corpus, codec, backend, progress, form, memory, scratch)
        return cls(model, codec, corpus, index, options, stages, spans=spans, rescore_input=rescore_input)

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
            folder: What :meth:`save_pretrained` (or ``grls index``) wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU where there is one.
            precision: See :mod:`grls.models.precision`.
            options: How to decode.
            verify: Compare the index' checksums; None: see :func:`grls.index.load_index`.

        Raises:
            DataError: The folder is no retriever, or a file in it is damaged.
            IndexFormatError: The index is damaged.
            MismatchError: The index belongs to another tokenizer or corpus, or the model, the metadata or the
                index is another one than the folder was made with.
        """
        path = Path(folder)
        manifest = read_generative_manifest(path)
        limits = read_limits(path, manifest)
        refuse_other_settings(path / "model", manifest.get("settings"), path / MANIFEST)
        loaded = Pretrained(str(path / "model")).load()
        refuse_other_weights(path, manifest, loaded.model)
        where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        codec = Codec(loaded.tokenizer, limits, is_causal(loaded.model))
        rescore_input = read_rescore_input(manifest.get("assess"), path / MANIFEST)
        corpus, index, removed, spans = read_passages(path, manifest, codec, verify)
        remedy = "make it again with `grls index`"
        stages = checked_stages(manifest.get("stages", []), path / MANIFEST, remedy)
        opened = cls(loaded.model, codec, corpus, index, options, stages, removed, spans, rescore_input)
        _ = opened._decoders.trees  # tried in full precision: what int8 computes depends on its company
        move(loaded.model, where, precision)
        return opened

    @classmethod
    def build(cls, model: str, corpus: str, how: Building) -> str:
        """Build a folder; see :func:`grls.retrieve.build.build`."""
        from grls.retrieve.generative.build import build_generative

        return build_generative(model, corpus, how)

    @classmethod
    def open(cls, folder: Path, spec: dict[str, Any], how: Opening) -> Self:
        """Open a folder; see :func:`grls.retrieve.registry.load`."""
        opened = cls.from_pretrained(folder, how.device, how.precision, how.searching, how.verify)
        if opened.options.rescore:
            opened.refuse_to_rescore()
        return opened

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the whole retriever to one folder, atomically; an earlier one there is replaced.

        Raises:
            ConfigError: It was opened with packed weights, which cannot be written.
        """
        if is_packed(self.model):
            raise ConfigError("its weights are packed and cannot be saved; open it in float32 to save it.")
        with atomic_folder(folder, MANIFEST) as new:
            self.model.save_pretrained(new / "model")
            reset_tokenizer(self.codec.tokenizer)
            self.codec.tokenizer.save_pretrained(new / "model")
            passages = (self.corpus, self._segments(), self.removed, self.spans)
            weights = weights_fingerprint(self.model)
            write_passages(new, self.codec, *passages, self.stages, self.rescore_input, weights)

    def push_to_hub(self, repository: str, folder: str | Path, private: bool = False) -> str:
        """Save to ``folder`` and upload it as a model repository; returns its address."""
        self.save_pretrained(folder)
        return upload(folder, repository, private)

    def fingerprint(self) -> str:
        """SHA-256 of what passages are found by: the model, the corpus, and what of it is written."""
        parts = {
            "weights": weights_fingerprint(self.model),
            "tokenizer": tokenizer_fingerprint(self.codec.tokenizer),
            "limits": self.codec.limits,
            "corpus": self.corpus.fingerprint,
            "removed": sorted(self.removed),
            "views": None if self.spans is None else self.spans.record,
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them.

        Args:
            queries: The queries.
            k: Most hits a query.
            allow: What may be found; see :class:`~grls.retrieve.base.Retriever`. Under ``renormalized``
                scores a hit has its probability among the allowed passages.

        Raises:
            DataError: A query is empty or too long, or a filter names an unknown passage.
            ConfigError: A filter cannot be used, or none of them leaves a passage.
        """
        queries = queries_of(queries)
        inputs = [self.codec.model_input(tokens) for tokens in self.encode(queries)]
        allowed = self.subsets(queries, allow)
        found = self.search(inputs, k, [[self.done]] * len(inputs), allow=allowed)
        return [self.hits(some) for some in found]

    def describe(self) -> Description:
        """What manifests and reports say of it."""
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
        """What writes: itself."""
        return self

    def look_ahead(self, query: Query, evidence: Sequence[Passage]) -> Prior | None:
        """Nothing: what a prior says is :class:`~grls.retrieve.hybrid.retriever.HybridRetriever`'s."""
        return None

    @property
    def widest(self) -> int:
        """Passages that a search knows, whatever k is."""
        return max(self.options.beams, self.options.rescore)

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        """Make ready for hops of these queries; see :class:`~grls.retrieve.base.WritesChains`."""
        tokens, allowed = self.encode(queries), self.subsets(queries, allow)

        def find(live: Sequence[Under], hop: int, k: int) -> list[list[ScoredPassage]]:
            inputs = [
                self.codec.model_input(tokens[chain.query], self.sequences(chain.passages)) for chain in live
            ]
            within = [allowed[chain.query] for chain in live]
            return self.search(inputs, k, [chain.hidden for chain in live], f"hop {hop + 1}", within)

        return find

    def decoder(self, k: int) -> Decoder:
        """The plain beam search for k passages an input; :meth:`search` finds what it finds."""
        return self._decoders.plain(self.index, self.options, k)

    def encode(self, queries: Sequence[Query]) -> list[list[int]]:
        """Token ids of the queries.

        Raises:
            DataError: A query is empty, or longer than the limit and ``truncate_queries`` is not set.
        """
        ids, texts = [q.id for q in queries], [q.text for q in queries]
        return self.codec.queries(ids, texts, self.options.truncate_queries)

    def hits(self, found: Sequence[ScoredPassage]) -> list[Hit]:
        """Passage numbers to ids."""
        ids = self.corpus.ids([f.passage for f in found])
        return [Hit(i, f.score) for i, f in zip(ids, found, strict=True)]

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        allow: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[list[ScoredPassage]]:
        """Decode any number of inputs, and rescore the best passages where the options say so.

        Args:
            inputs: Model inputs as token ids.
            k: Passages an input, at most.
            exclude: For each input, passage numbers it may not find; where passages are written whole, those
                of the same text neither.
            label: What the progress bar says.
            allow: For each input, what it may find (:meth:`subsets`); empty: everything.
            prior: What is known of the passages beforehand, its queries being these inputs; the search for
                GPUs takes none, so another one is used.

        Raises:
            ConfigError: The option ``compile`` is set where it cannot be heeded, or ``rescore`` for a model
                that has not learned to.
        """
        most, asked = self.options.rescore, (exclude, label, allow, prior)
        if not most:
            return self._written(inputs, k, *asked)
        self.refuse_to_rescore()
        found = self._written(inputs, max(k, most), *asked)
        odds = self.rescore(inputs, [[hit.passage for hit in some[:most]] for some in found])
        weight = self.options.rescore_weight
        return [rescored(some, own, weight)[:k] for some, own in zip(found, odds, strict=True)]

    def refuse_to_rescore(self) -> None:
        """Refuse to rescore with a model that has not learned to.

        Raises:
            ConfigError: It has not.
        """
        if self.rescore_input is None:
            raise ConfigError(
                "the generator has not learned to rescore passages: train it with --data.rescore and index "
                "that model, or leave the option rescore out."
            )

    def rescore(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        """What the model says of passages when it has read them to the end (:mod:`grls.models.rescore_spec`).

        Args:
            inputs: Model inputs as token ids.
            passages: For each, numbers of passages; that of DONE is one, too.

        Returns:
            For each input the log-odds (nats) of its passages.

        Raises:
            ConfigError: The model has not learned to, or has too few positions.
        """
        self.refuse_to_rescore()
        assert self.rescore_input is not None
        with turn(self.model):
            self.model.eval()
            decoders = self._decoders
            parts = (
                self.codec,
                self.rescore_input,
                self.sequences,
                self.done,
                decoders.generator,
                decoders.trees,
            )
            return Rescorer(*parts)(inputs, passages)

    def weigh(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        allow: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[PassageScores]:
        """What a generator that writes spans says of the passages that are worth ranking.

        Arguments and errors are those of :meth:`search`; the prior is over passages.

        Returns:
            Scores of candidates, with what the prior adds, for :meth:`ranked`.
        """
        if self.spans is None:
            raise ConfigError("the generator writes whole passages, not spans of them.")
        check_counts(k=k)
        spans, rows = self.spans, self.index.rows
        allow = allow or [self._everything()] * len(inputs)
        hidden = [hidden_spans(spans, rows, *some) for some in zip(exclude, allow, strict=True)]
        weighed = None if prior is None else prior_over_spans(prior, spans)

        def search(decoder: Decoder | SlotDecoder, some: Sequence[int], *more: Any) -> list[Frontier]:
            given = [inputs[n] for n in some], [hidden[n] for n in some], [allow[n] for n in some]
            return decoder.frontier(*given, *more)

        found = self._decoders.run(self.index, self.options, inputs, 1, label, weighed, search)
        said = None if prior is None or prior.normalized or not prior.parts else prior
        scores = []
        for query, frontier in enumerate(found):
            reach = Reach(spans, rows, exclude[query], allow[query])
            shares = None if said is None else said_of(said, query, reach.every())
            some = candidates(frontier, reach, k, shares)
            own = passage_scores(frontier, some, reach, self.options.span_temperature)
            scores.append(own if shares is None else own.beside(shares[some]))
        return scores

    def ranked(self, scores: PassageScores, k: int) -> list[ScoredPassage]:
        """The k best of the passages that :meth:`passage_scores` weighed."""
        return ranked(scores, self.done, self.options.span_temperature, k)

    def _written(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str,
        allow: Sequence[Subset | None],
        prior: Prior | None,
    ) -> list[list[ScoredPassage]]:
        """What the search finds; arguments as of :meth:`search`."""
        if self.spans is not None:
            scores = self.weigh(inputs, k, exclude, label, allow, prior)
            return [self.ranked(some, k) for some in scores]
        allow = allow or [self._everything()] * len(inputs)

        def search(
            decoder: Decoder | SlotDecoder, some: Sequence[int], *more: Any
        ) -> list[list[ScoredPassage]]:
            given = [inputs[n] for n in some], k, [exclude[n] for n in some], [allow[n] for n in some]
            return decoder.search(*given, *more)

        return self._decoders.run(self.index, self.options, inputs, k, label, prior, search)

    def _change(self, corpus: Corpus, index: ConstraintIndex, removed: Collection[int]) -> None:
        """Take these in the place of what was there, unless a passage is too long for the model."""
        check_positions(self.model, 0, index.rows.longest)
        super()._change(corpus, index, removed)
