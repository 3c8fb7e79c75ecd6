"""A generative retriever: model, tokenizer, index and corpus together, and changes to the corpus.

A search decodes passages, or identifiers of them, under the constraint of the index, and
rescores the best of them where the options say so. Hops: :mod:`grls.retrieve.hops.search`.
Its folder: :mod:`grls.retrieve.generative.folder`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from transformers import PreTrainedTokenizerBase

from grls.data.codec import (
    Codec,
    Limits,
    TokenIds,
    tokenizer_fingerprint,
)
from grls.data.corpus import Corpus
from grls.data.filters import Allow, Filter
from grls.data.identifiers import IdentifierKind, Identifiers
from grls.data.types import Hit, Passage, Query
from grls.decode.beam import Decoder, ScoredPassage
from grls.decode.fast import FastDecoder
from grls.decode.frontier import Frontier
from grls.decode.gpu.search import DeviceDecoder
from grls.decode.prior import Prior
from grls.decode.rescore import rescore, rescore_plain
from grls.errors import ConfigError, MismatchError, Option
from grls.index.array import ArrayIndex
from grls.index.base import ConstraintIndex, Segment
from grls.index.build import build_index, changed_index, row_batches, rows_of
from grls.index.options import Form
from grls.index.ranges import RangedIndex
from grls.index.rows import Ints
from grls.index.subset import Subset
from grls.io.locks import exclusive
from grls.io.progress import Progress
from grls.models.base import Floats, check_positions, is_causal, once_each
from grls.models.causal.slots import CausalTrees
from grls.models.head import RescoreInput, readout
from grls.models.load.kinds import plain_generator, slot_model
from grls.models.load.language import model_fingerprint
from grls.models.sessions.memory import SlotModel
from grls.retrieve.base import (
    ChainToContinue,
    DecodesPassages,
    Decoding,
    Description,
    Evidence,
    NextHop,
    Plan,
    PlanSource,
    Retriever,
    single_steps,
)
from grls.retrieve.generative.folder import build_folder, open_folder, save_folder
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.plans import run_plans
from grls.retrieve.generative.span_scores import (
    Reach,
    SpanRanking,
    hidden_spans,
    prior_over_spans,
)
from grls.retrieve.queries import queries_of, reachable
from grls.retrieve.registry import Opening, folder_key, open_kind
from grls.retrieve.update import Changes

_TOGETHER = 256
"""Inputs whose passages are tokenised and rescored together."""


class GenerativeRetriever:
    """Retrieves by decoding passages; its scores are log-probabilities.

    It chooses the fastest decoder for the model, the index and the options: :mod:`grls.decode.gpu.search` on
    GPUs, :mod:`grls.decode.fast` elsewhere, and for a model that does not run in slots the plain beam search.

    Args:
        model: A transformers model, sequence-to-sequence or causal; it is used in eval mode.
        codec: Text to tokens, with the model's tokenizer (``causal`` for a causal model).
        corpus: The passages; passage n of the index is passage n here.
        index: The constraint index of that corpus (or of its identifiers) and tokenizer, DONE last.
        options: Options of decoding.
        stages: The training stages of the model.
        identifiers: What the model writes in place of whole passages; None: these.
        rescore_input: How the model reads passages for rescoring; None: it has not learned to rescore.
        tried: Whether the model has passed its trial (:mod:`grls.models.load.kinds`).
    """

    kind = "generative"
    tuned_by = ("grls.tune.weights:RESCORING",)
    embeddable = False
    scores_are_log_probabilities = True
    built_with = (
        "index.backend", "index.form", "limits.passage", "limits.query", "limits.input", "workers",
    )  # fmt: skip

    def __init__(
        self,
        model: Any,
        codec: Codec,
        corpus: Corpus,
        index: ConstraintIndex,
        options: SearchOptions | None = None,
        stages: Sequence[str] = (),
        identifiers: Identifiers | None = None,
        rescore_input: RescoreInput | None = None,
        tried: bool = False,
    ):
        self.model = model
        self.codec = codec
        self.rescore_input = rescore_input
        self.options = options or SearchOptions()
        self.stages = tuple(stages)
        self._tried = tried
        self._plain = plain_generator(model, tried)
        # The options and the index of the last search in slots, and its decoder.
        self._decoder: tuple[tuple[object, ...], ConstraintIndex, FastDecoder | DeviceDecoder] | None = None
        self._change(corpus, index, identifiers)

    @classmethod
    def assemble(
        cls,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        corpus: Corpus,
        limits: Limits | None = None,
        backend: str = "array",
        options: SearchOptions | None = None,
        form: Form = "whole",
        kind: IdentifierKind | None = None,
        rescore_input: RescoreInput | None = None,
    ) -> Self:
        """Build a retriever from a model and a corpus, with an index by :func:`grls.index.build.build_index`.

        ``kind``: that of the identifiers that the model writes (None: whole passages).
        """
        codec = Codec(tokenizer, limits, is_causal(model))
        identifiers = None if kind is None else Identifiers(kind, corpus)
        index = build_index(identifiers or corpus, codec, backend, form=form)
        return cls(model, codec, corpus, index, options, (), identifiers, rescore_input)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        device: str = "auto",
        precision: str = "float32",
        options: SearchOptions | None = None,
        verify: bool | None = None,
    ) -> Self:
        """Open a retriever folder, whose parts are checked to belong together.

        Args:
            folder: A folder that :meth:`save_pretrained` or ``grls index`` wrote.
            device: ``cpu``, ``cuda``, ``cuda:1``, …; ``auto`` takes a GPU if there is one.
            precision: See :mod:`grls.models.precision`.
            options: Options of decoding.
            verify: Compare the checksums of the index; None: see :func:`grls.index.load_index`.
        """
        return open_kind(cls, folder, Opening(device, precision, options, verify))

    build = classmethod(build_folder)
    open = classmethod(open_folder)
    save_pretrained = save_folder
    shared_by = staticmethod(folder_key)

    def run_plans(self, source: PlanSource) -> None:
        """For a server: run the retrievals of a source in one search, which others may join."""
        run_plans(self, source)

    def reopened(self, folder: Path, opening: Opening) -> Self:
        retriever = copy(self)
        retriever.options = opening.searching or SearchOptions()
        retriever._decoder = None
        if retriever.options.rescore:
            retriever.refuse_to_rescore()
        return retriever

    @classmethod
    def update(cls, folder: Path, output: Path, changes: Changes) -> int:
        """Write the changed folder."""
        opened = cls.from_pretrained(folder, "cpu")
        opened.change(changes)
        opened.save_pretrained(output)
        return len(opened.corpus)

    def fingerprint(self) -> str:
        parts = {
            "weights": model_fingerprint(self.model),
            "tokenizer": tokenizer_fingerprint(self.codec.tokenizer),
            "limits": list(self.codec.limits.record().values()),
            "corpus": self.corpus.fingerprint,
            "identifiers": self.identifiers and self.identifiers.kind.fingerprint,
        }
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def retrieve(self, queries: Sequence[Query | str], k: int, allow: Allow = None) -> list[list[Hit]]:
        """Single-step retrieval: at most k distinct passages a query, best first; DONE is not among them.

        Under ``renormalized`` scores the score of a hit is its log-probability among the allowed passages.
        """
        queries = queries_of(queries)
        inputs = [self.codec.model_input(tokens) for tokens in self.encode(queries)]
        subsets = self.subsets(queries, allow)
        rankings = self.search(inputs, k, [[self.done]] * len(inputs), subsets=subsets)
        return [self.hits(ranking) for ranking in rankings]

    def describe(self) -> Description:
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
        return self

    def priors_of(self, queries: Sequence[Query], evidence: Evidence) -> Prior | None:
        return None

    @property
    def runner(self) -> Self | None:
        return None if self.trees is None or self.options.compile else self

    def plan(self, query: Query, k: int, allow: Filter | None) -> Plan[list[Hit]]:
        (ranking,) = yield [Decoding(query, (), (self.done,), k, allow)]
        return self.hits(ranking)

    def next_hop(self, queries: Sequence[Query], allow: Allow) -> NextHop:
        tokens, subsets = self.encode(queries), self.subsets(queries, allow)

        def find(live: Sequence[ChainToContinue], hop: int, k: int) -> list[list[ScoredPassage]]:
            inputs = [
                self.hop_input(queries[chain.query], tokens[chain.query], chain.passages) for chain in live
            ]
            within = [subsets[chain.query] for chain in live]
            return self.search(inputs, k, [chain.hidden for chain in live], f"hop {hop + 1}", within)

        return find

    @cached_property
    def trees(self) -> SlotModel | None:
        """The model for the fast search; None: it cannot run in slots."""
        return slot_model(self._plain, self._tried)

    @property
    def reads_on(self) -> bool:
        """Whether the input of a hop begins with that of the hop before."""
        return isinstance(self.trees, CausalTrees)

    @property
    def done(self) -> int:
        return len(self.corpus)

    @property
    def widest(self) -> int:
        return max(self.options.beams, self.options.rescore)

    def numbers(self, passages: Sequence[int] | Ints) -> Ints:
        """The numbers of passages (or DONE) in the index: those of their several identifiers."""
        return np.asarray(passages, dtype=np.int64) if self.spans is None else self.spans.of(passages)

    def subsets(self, queries: Sequence[Query], allow: Allow) -> list[Subset | None]:
        """The part of the index that each query may retrieve, DONE included; None: everything.

        Queries with equal filters share one subset.
        """
        subsets: dict[int, Subset | None] = {id(None): None}
        within = reachable(queries, allow, self.corpus)
        for allowed in within:
            if allowed is not None and id(allowed) not in subsets:
                numbers = self.numbers(np.append(allowed, self.done))
                subsets[id(allowed)] = Subset(self.index.rows, numbers)
        return [subsets[id(allowed)] for allowed in within]

    def encode(self, queries: Sequence[Query]) -> list[list[int]]:
        """Token ids of the queries; one that is too long is refused or cut, by ``truncate_queries``."""
        ids, texts = [q.id for q in queries], [q.text for q in queries]
        return self.codec.queries(ids, texts, self.options.truncate_queries)

    def sequences(self, passages: Sequence[int]) -> list[TokenIds]:
        if self.identifiers is None:
            return [self.index.tokens(passage) for passage in passages]
        return self.codec.passages(self.corpus.passages(passages))

    def hop_input(self, query: Query, tokens: Sequence[int], passages: Sequence[int]) -> list[int]:
        """The model input of a hop, as token ids: a query, its ``tokens`` (:meth:`encode`), and its evidence
        so far.
        """
        if self.codec.limits.evidence:
            return self.codec.model_input(
                tokens, self.codec.excerpts(query.text, self.corpus.passages(passages))
            )
        return self.codec.model_input(tokens, self.sequences(passages))

    def hits(self, ranking: Sequence[ScoredPassage]) -> list[Hit]:
        ids = self.corpus.ids([hit.passage for hit in ranking])
        return [Hit(name, hit.score) for name, hit in zip(ids, ranking, strict=True)]

    def search(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        subsets: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[list[ScoredPassage]]:
        """Decode any number of inputs (token ids), and rescore the best passages if the options ask for it.

        Each input gets at most k passages of its subset (:meth:`subsets`; empty: all) but those in
        ``exclude``; where passages are written whole, their copies are excluded as well. ``label`` is for the
        progress bar.
        """
        depth = self.options.rescore
        if depth:
            self.refuse_to_rescore()
        count = max(k, depth) if depth else k
        if self.spans is not None:
            searched = self.frontiers(inputs, count, exclude, label, subsets, prior)
            rankings = [ranking(frontier) for frontier, ranking in searched]
        else:
            rankings = self._run(inputs, exclude, subsets, count, label, prior)
        return [ranking[:k] for ranking in self.rescored(inputs, rankings)] if depth else rankings

    def rescored(
        self, inputs: Sequence[Sequence[int]], rankings: Sequence[list[ScoredPassage]]
    ) -> list[list[ScoredPassage]]:
        depth, weight = self.options.rescore, self.options.rescore_weight
        odds = self.rescore(inputs, [[hit.passage for hit in ranking[:depth]] for ranking in rankings])
        return [rescored(*pair, weight) for pair in zip(rankings, odds, strict=True)]

    def refuse_to_rescore(self) -> None:
        if self.rescore_input is None:
            raise ConfigError(
                f"the generator has not learned to rescore passages: train it with {Option('data.rescore')} "
                "and index that model, or leave the option rescore out."
            )

    def rescore(self, inputs: Sequence[Sequence[int]], passages: Sequence[Sequence[int]]) -> list[Floats]:
        """The log-odds (nats) of passages once the model has read them to the end (:mod:`grls.models.head`).

        Each input, as token ids, has its passages; DONE may be one of them.
        """
        self.refuse_to_rescore()
        rescore_input, codec = self.rescore_input, self.codec
        assert rescore_input is not None
        odds: list[Floats] = []
        with exclusive(self.model), Progress(len(inputs), "rescore", "inputs", shown=None) as bar:
            self.model.eval()
            for start in range(0, len(inputs), _TOGETHER):
                batch = slice(start, start + _TOGETHER)
                numbers = sorted({number for row in passages[batch] for number in row} - {self.done})
                sequences = {self.done: rescore_input.read(codec.done_sequence, codec)}
                for number, sequence in zip(numbers, self.sequences(numbers), strict=True):
                    sequences[number] = rescore_input.read(sequence, codec)
                longest = max(map(len, inputs[batch]))
                check_positions(self.model, longest, max(map(len, sequences.values())))
                distinct = [once_each([tuple(sequences[n]) for n in row]) for row in passages[batch]]
                rows = [[list(sequence) for sequence in unique] for unique, _ in distinct]
                if self.trees is None:
                    distinct_odds = rescore_plain(self._plain, inputs[batch], rows, readout(codec))
                else:
                    distinct_odds = rescore(self.trees, inputs[batch], rows, readout(codec))
                odds += [values[index] for values, (_, index) in zip(distinct_odds, distinct, strict=True)]
                bar.update(len(rows))
        return odds

    def frontiers(
        self,
        inputs: Sequence[Sequence[int]],
        k: int,
        exclude: Sequence[Sequence[int]],
        label: str = "retrieve",
        subsets: Sequence[Subset | None] = (),
        prior: Prior | None = None,
    ) -> list[tuple[Frontier, SpanRanking]]:
        """Where the search for spans stopped for each input, and what ranks its passages, k at most.

        Arguments are those of :meth:`search`; the prior is over passages.
        """
        if self.spans is None:
            raise ConfigError("a passage has one identifier, so it is no sum of several.")
        spans, rows = self.spans, self.index.rows
        subsets = subsets or [None] * len(inputs)
        hidden = [hidden_spans(spans, rows, *pair) for pair in zip(exclude, subsets, strict=True)]
        over_spans = None if prior is None else prior_over_spans(prior, spans)
        frontiers = self._run(inputs, hidden, subsets, 1, label, over_spans)
        rankings = [
            SpanRanking(Reach(spans, rows, *pair), k, self.options.span_temperature, prior, query)
            for query, pair in enumerate(zip(exclude, subsets, strict=True))
        ]
        return list(zip(frontiers, rankings, strict=True))

    def _run(
        self,
        inputs: Sequence[Sequence[int]],
        hidden: Sequence[Sequence[int]],
        subsets: Sequence[Subset | None],
        k: int,
        label: str,
        prior: Prior | None,
    ) -> list[Any]:
        """The k best passages, or the frontier of spans, by the fastest decoder for the model.

        Threads wait for each other.
        """
        subsets = subsets or [None] * len(inputs)
        with exclusive(self.model), Progress(len(inputs), label, "inputs", shown=None) as bar:
            self.model.eval()
            if self.options.compile and (self.trees is None or not self.index.has_tensors):
                why = "its index has another backend than 'array'; make it again with `grls index`"
                if self.trees is None:
                    why = f"a {type(self.model).__name__}'s decoder cannot be driven by slots"
                raise ConfigError(f"compile=True has no effect: {why}, or leave the option out.")
            check_positions(self.model, max(map(len, inputs), default=0), self.index.rows.longest)
            decode: Callable[..., list[Any]]
            if self.trees is not None:
                slots = self.slot_decoder(self.trees, k)
                decode = partial(slots.search, k=k) if self.spans is None else slots.frontier
                return decode(inputs, exclude=hidden, subsets=subsets, decided=bar.update, prior=prior)
            decoder, size = self.decoder(k), self.options.batch_size
            decode = partial(decoder.search, k=k) if self.spans is None else decoder.frontier
            order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))  # batches of similar length
            results: dict[int, Any] = {}
            for start in range(0, len(order), size):
                batch = order[start : start + size]
                rows: list[Any] = [[values[n] for n in batch] for values in (inputs, hidden, subsets)]
                part = None if prior is None else prior.among(batch)
                found = decode(rows[0], exclude=rows[1], subsets=rows[2], decided=bar.update, prior=part)
                results.update(zip(batch, found, strict=True))
            return [results[i] for i in range(len(inputs))]

    def decoder(self, k: int) -> Decoder:
        """The plain beam search, which :meth:`search` agrees with."""
        options = self.options
        settings = max(k, options.beams), options.mode, options.early_stop, options.span_threshold
        return Decoder(self._plain, self.index, *settings)

    @property
    def searched_by(self) -> str:
        """The search that it uses and its device: ``device on cuda:0``, ``fast on cpu``, ``plain on cpu``."""
        kind = "fast" if self.trees is not None else "plain"
        return f"{'device' if self._on_device(self.trees) else kind} on {self.model.device}"

    def _on_device(self, trees: SlotModel | None) -> bool:
        on_gpu = trees is not None and trees.device.type == "cuda" and self.index.has_tensors
        return on_gpu or self.options.compile

    def slot_decoder(self, trees: SlotModel, k: int) -> FastDecoder | DeviceDecoder:
        """The search in slots for k results an input: that for GPUs where it suits, else the fast one.

        It is cached, with its data about the index, until options, device or index are others.
        """
        options, on_device = self.options, self._on_device(trees)
        beams = max(k, options.beams)
        settings = options.mode, options.early_stop, options.span_threshold, options.batch_size
        key = *settings, options.compile, on_device, trees.device
        kept = self._decoder
        if kept is None or kept[0] != key or kept[1] is not self.index:
            kept = self._decoder = None  # the memory of a compiled search is freed first
            decoder: Any = partial(DeviceDecoder, compiled=options.compile) if on_device else FastDecoder
            made = decoder(trees, self.index, beams, *settings)
            kept = self._decoder = key, self.index, made
        elif kept[2].beams != beams:
            kept = self._decoder = key, self.index, kept[2].with_beams(beams)
        return kept[2]

    def remove(self, ids: Sequence[str]) -> None:
        """Remove passages; saving the retriever keeps the change."""
        self.change(Changes(remove=ids))

    def add(self, passages: Iterable[Passage] | Corpus) -> None:
        """Add passages behind the others; saving the retriever keeps the change.

        The model has not memorised them, so it may score them lower.
        """
        if not isinstance(passages, Corpus):
            passages = Corpus.from_passages(passages, "the added passages")
        self.change(Changes(passages))

    def change(self, changes: Changes) -> None:
        """Remove passages, then add others; the index is that of `grls index` over the new corpus."""
        corpus, kept = changes.over(self.corpus)
        identifiers, added = self.identifiers, changes.add
        if identifiers is None:
            index = changed_index(self.segment, kept, added, self.codec)
        else:
            more = None if added is None else Identifiers(identifiers.kind.knowing(added), added)
            index = changed_index(self.segment, identifiers.of(kept), more, self.codec)
            identifiers = identifiers.changed(kept, more, corpus)
        self._change(corpus, index, identifiers)

    def invariants(self, folder: Path) -> Iterator[tuple[str, Path, Callable[[], object]]]:
        def compare() -> None:
            rows, number = self.index.rows, 0
            done = [self.codec.done_sequence]
            with Progress(len(self.index), "compare", "passages", shown=None) as bar:
                for batch in chain(row_batches(self.identifiers or self.corpus, self.codec), [done]):
                    for sequence in batch:
                        stored = rows.row(int(rows.row_of[number]))
                        expected = sequence if rows.form == "whole" else sequence[: len(stored)]
                        if not np.array_equal(stored, expected):
                            raise MismatchError(
                                f"{folder}: the index holds other tokens for number {number} than "
                                "corpus.jsonl; make it again with `grls index`."
                            )
                        number += 1
                    bar.update(len(batch))

        yield "the index holds the passages of corpus.jsonl", folder, compare

    @property
    def segment(self) -> Segment:
        """The index, which is whole."""
        if not isinstance(self.index, Segment):
            raise ConfigError(
                "an index that is cut into prefix ranges can neither be saved nor be changed: change the "
                "retriever it was cut from (`grls index split`), and cut that one again."
            )
        return self.index

    def _change(self, corpus: Corpus, index: ConstraintIndex, identifiers: Identifiers | None) -> None:
        """Take a corpus and its index, unless a passage is too long for the model."""
        check_positions(self.model, 0, index.rows.longest)
        self.corpus, self.index, self.identifiers = corpus, index, identifiers
        self.spans = identifiers if identifiers is not None and identifiers.several else None
        """The identifiers, if a passage has several: they are searched together."""
        if index.rows.form == "prefixes" and isinstance(index, ArrayIndex | RangedIndex):
            index.complete = self._sequence  # whole passages come from the corpus

    def _sequence(self, number: int) -> Ints:
        listed = self.identifiers or self.corpus
        if number == len(listed):
            return self.codec.done_sequence
        return rows_of(listed, self.codec, [number])[0]


def rescored(ranking: Sequence[ScoredPassage], odds: Floats, weight: float) -> list[ScoredPassage]:
    """Rank passages by score and log-odds.

    The search gives the C best passages of a query scores s(x). The generator reads each to its end and gives
    it log-odds a(x) (``[C]``, nats; :mod:`grls.models.head`). With w the weight,

        score(x)  =  s(x) + w a(x) + c,    c = log sum over candidates of exp s  -  log sum of exp (s + w a),

    so the total probability of the candidates does not change. Other passages follow, with scores no higher
    than those of the candidates, so that a ranking does not depend on the number of hits. In chains this
    holds at every hop: scores stay log-probabilities, and DONE is rescored like a passage.
    """
    count = len(odds)
    if not count:
        return list(ranking)
    scores = np.array([hit.score for hit in ranking[:count]])
    sums = scores + weight * odds
    sums += np.logaddexp.reduce(scores) - np.logaddexp.reduce(sums)
    first = [hit._replace(score=float(score)) for hit, score in zip(ranking, sums, strict=False)]
    first.sort(key=lambda hit: -hit.score)
    return first + [hit._replace(score=min(hit.score, first[-1].score)) for hit in ranking[count:]]


def as_generator(retriever: Retriever, why: str) -> GenerativeRetriever:
    """The retriever, or that of its single steps, as a generator; ``why`` begins the error."""
    inner, generator = single_steps(retriever), generator_within(retriever)
    if generator is None or generator is not inner:
        raise ConfigError(f"{why}: give the folder of a generative retriever; this one is {retriever.kind}.")
    return generator


def generator_within(retriever: Retriever) -> GenerativeRetriever | None:
    inner = single_steps(retriever)
    return inner.generator if isinstance(inner, DecodesPassages) else None
