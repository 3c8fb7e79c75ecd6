"""The LightningDataModules of a generator. They hold the constraint index."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grls.data.codec import LIMITS, Codec, Limits
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_queries
from grls.data.identifiers import FOLDER, Identifiers, kind_for
from grls.data.types import Query
from grls.errors import ConfigError, DataError, Option
from grls.identifiers.spans import Spans
from grls.index.base import ConstraintIndex
from grls.index.build import build_index
from grls.io.files import sha256, write_json
from grls.models.base import is_causal, start_token
from grls.models.head import RESCORE, RescoreInput
from grls.retrieve.base import ranking_fingerprint
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.finders import found_after
from grls.retrieve.hybrid.priors import scoring
from grls.retrieve.registry import Opening, load_named
from grls.train.core.datamodule import FitData, digest
from grls.train.core.examples import Examples
from grls.train.core.module import Batch
from grls.train.generator.candidates import RunCandidates
from grls.train.generator.collate import HopCollator
from grls.train.generator.examples import (
    HopExample,
    MemoriseExamples,
    Mixture,
    RetrieveExamples,
    share_at,
)
from grls.train.generator.prior import OpenPriors, open_priors
from grls.train.generator.rescoring import Proposals
from grls.train.generator.targets import SpanTargets, Teaching
from grls.train.options import (
    GeneratorDataOptions,
    MemoriseDataOptions,
    Ranking,
    RetrieveDataOptions,
    Shares,
    WriteSpans,
)


class DevInput(NamedTuple):
    """One input of the dev retrieval (token ids), with the ids of its gold passages.

    ``query`` is for priors. ``evidence``: numbers of passages in order, which are not retrieved again.
    """

    source: list[int]
    gold: frozenset[str]
    query: Query | None = None
    evidence: tuple[int, ...] = ()


class GeneratorData(FitData):
    """What all trainings of a generator read.

    Attributes:
        identifiers: What it writes in place of whole passages; None: these.
    """

    identifiers: Identifiers | None = None

    def read_passages(self, module: Any) -> dict[str, Any]:
        """The corpus, its identifiers and the index; returns options of :class:`Teaching`."""
        options: GeneratorDataOptions = self.options
        tokens = (options.max_passage_tokens, options.max_query_tokens, options.max_input_tokens)
        limits = Limits(*tokens, options.evidence_words)
        self.corpus = Corpus.read(options.data)
        write, kind = getattr(options, "spans", None) or WriteSpans(), None
        if options.identifiers is not None:
            kind = kind_for(options.identifiers, self.corpus)
            module.add_rows(kind)
            self.fingerprints["the identifiers"] = kind.fingerprint
        elif getattr(options, "spans", None) is not None:
            kind = Spans(write.words)
        self.codec = Codec(module.tokenizer, limits, is_causal(module.model))
        self.identifiers = None if kind is None else Identifiers(kind, self.corpus)
        self.index: ConstraintIndex = build_index(self.identifiers or self.corpus, self.codec)
        if self.identifiers is None or not self.identifiers.several:
            return {}
        targets = SpanTargets(self.identifiers, limits.evidence)
        return {"spans": targets, "drawn": write.drawn}

    def write_beside(self, model: Path) -> None:
        """The length limits and the identifiers, which ``grls index`` reads."""
        write_json(model / LIMITS, self.codec.limits.record())
        if self.identifiers is not None:
            (model / FOLDER).mkdir()
            self.identifiers.kind.write(model / FOLDER, corpus=self.corpus.fingerprint)


class MemoriseData(GeneratorData):
    """Front of a passage, or another input made from it -> passage.

    Dev is a sample of the training passages, since the aim is to memorise them.
    """

    options: MemoriseDataOptions
    priors = rescore_input = dev_queries = None  # see RetrieveData

    def read(self, module: Any) -> None:
        options, full = self.options, module.options.loss == "full"
        if not full and options.target == "rest":
            raise ConfigError(
                "loss `allowed` needs target `whole`, since the index has no paths of partial passages. "
                "Choose target `whole` or loss `full`."
            )
        targets = self.read_passages(module)
        self.fingerprints["corpus.jsonl"] = self.corpus.fingerprint
        form = (options.front, options.unit, options.target, options.reading, self.seed)
        examples = MemoriseExamples(self.corpus, self.codec, *form)
        passages = range(len(examples))
        self._sample = random.Random(self.seed).sample(passages, min(options.dev_size, len(examples)))
        dev = copy(examples)
        dev.numbers = self._sample
        self.train_examples, self.dev_examples = examples, dev
        self.collator = HopCollator(
            int(module.tokenizer.pad_token_id),
            self.index,
            Teaching(self.index, len(self.corpus), **targets),
            None if self.codec.causal else start_token(module.model),
            full,
            together=False,
        )

    def dev_inputs(self) -> list[DevInput]:
        """The model inputs of the sampled passages, each its own gold passage.

        Empty under target ``rest``: the model does not write whole passages, so it cannot retrieve them.
        """
        if self.options.target == "rest":
            return []
        hops = [self.dev_examples.draw(n, 0)[0] for n in range(len(self.dev_examples))]
        ids = self.corpus.ids(self._sample)
        return [DevInput(hop.source, frozenset([passage])) for hop, passage in zip(hops, ids, strict=True)]


class RetrieveData(GeneratorData):
    """Query and evidence so far -> next passage, then DONE.

    Attributes:
        priors: The priors beside which the generator is decoded; None: it is decoded alone.
        rescore_input: How it reads passages for rescoring; None: it does not learn to rescore.
    """

    options: RetrieveDataOptions
    priors: OpenPriors | None = None
    rescore_input: RescoreInput | None = None

    def read(self, module: Any) -> None:
        options, full, together = self.options, module.options.loss == "full", bool(module.together)
        for name in ("teacher", "prior") if full else ():
            if getattr(options, name) is not None:
                raise ConfigError(
                    f"{Option(f'data.{name}')} is learned over the tokens that the index allows: set "
                    f"{Option('model.loss', 'allowed')}."
                )
        ranking: Ranking | None = module.options.ranking
        if (ranking is None) != (options.candidates is None):
            raise ConfigError(
                f"{Option('model.ranking.loss')} orders the candidates of {Option('data.candidates.run')}: "
                "set both, or neither."
            )
        targets = self.read_passages(module)
        done = len(self.corpus)
        train = self.read_split("data.train_split", options.train_split, self.corpus)
        multistep = options.multistep
        if multistep is None:
            multistep = any(len(gold_passages(query, train[1])) > 1 for query in train[0])
        dev = self.read_split("data.dev_split", options.dev_split, self.corpus)
        self.dev_queries = dev[0][: options.dev_size], dev[1]
        self.by_hop = options.by_hop and multistep
        make = partial(
            RetrieveExamples, corpus=self.corpus, codec=self.codec, multistep=multistep,
            truncate=options.truncate_queries, together=together,
        )  # fmt: skip
        as_asked = partial(make, done=options.done, shuffle=options.shuffle, seed=self.seed)
        self._asked = as_asked(*train)
        self.train_examples = self._mixed(self._asked, make)
        self.dev_examples = as_asked(*self.dev_queries)

        # Batches are made in forked processes, which cannot use a GPU.
        device = "cpu" if options.workers else "auto"
        share, teacher, proposals = 0.0, None, None
        if options.teacher is not None:
            opened = RetrieverTeacher(options.teacher, self.corpus, device)
            teacher, share = opened.opinions, options.teacher_share
            self.fingerprints["the retriever of data.teacher"] = opened.fingerprint()
        teaching = Teaching(self.index, done, teacher, share, options.branches, **targets)
        if options.prior is not None:
            several = self.identifiers if targets else None
            self.priors = open_priors(options.prior, self.corpus, device, several)
            sources = [weighed.source.fingerprint() for weighed in self.priors.weighed]
            self.fingerprints["a retriever of data.prior"] = digest(sources)
        if options.rescore is not None:
            self.rescore_input = RescoreInput(options.rescore.tokens)
            proposals = Proposals(options.rescore, self.corpus, self.codec, device)
            sources = [source.fingerprint() for source in proposals.sources]
            self.fingerprints["a retriever of data.rescore"] = digest(sources)
        gold, candidates = Teaching(self.index, done, **targets), None
        if options.candidates is not None and ranking is not None:
            parts = (options.candidates, self._asked, self.corpus, gold)
            candidates = RunCandidates(*parts, others=ranking.loss == "kto")
            self.fingerprints["the run of data.candidates"] = sha256(options.candidates.run)
        self.collator = HopCollator(
            int(module.tokenizer.pad_token_id), self.index, teaching,
            None if self.codec.causal else start_token(module.model), full, together, options.decay,
            self.priors, proposals, candidates,
        )  # fmt: skip
        # Dev measures only gold chains, so that runs with and without a teacher are comparable.
        self.dev_collator = replace(self.collator, teaching=gold, decay=1.0, proposals=None, candidates=None)

    def candidate_batches(self) -> Iterator[Batch]:
        """All hops that have candidates, once, in batches of similar length."""
        lengths = self._asked.lengths()
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        hops = (self.collator.candidates.with_all_right(self._asked.draw(n, 0)) for n in order)
        collator = replace(self.dev_collator, candidates=self.collator.candidates)
        examples = filter(None, hops)
        while batch := list(islice(examples, self.options.batch_size)):
            yield collator(batch)

    def _mixed(self, main: Examples, make: Callable[..., Examples]) -> Examples:
        mix, parts = self.options.mix, list[tuple[Examples, Shares]]()
        if mix.pseudo is not None:
            queries = read_queries(mix.pseudo)
            self.fingerprints[mix.pseudo] = sha256(mix.pseudo)
            without = next((query.id for query in queries if not query.evidence), None)
            if without is not None:
                raise DataError(f"the pseudo-query {without!r} has no evidence to learn.", mix.pseudo)
            # No DONE: a pseudo-query was written from its evidence, which need not be all that answers it.
            parts.append((make(queries, {}, done=False, seed=f"pseudo-{self.seed}"), mix.pseudo_share))
        if mix.memorise is not None:
            memorised = MemoriseExamples(self.corpus, self.codec, reading=mix.memorise, seed=self.seed)
            parts.append((memorised, mix.memorise_share))
        if not parts:
            return main
        epochs = planned_epochs(self.trainer, mix.size or len(main), self.examples_a_batch)
        if epochs is None and any(share_at(shares, 0) != share_at(shares, 1) for _, shares in parts):
            raise ConfigError(
                "shares that change need the number of epochs: set "
                f"{Option('trainer.max_epochs')} or {Option('trainer.max_steps')}."
            )
        return Mixture(main, parts, epochs or 1, mix.size, self.seed)

    def write_beside(self, model: Path) -> None:
        super().write_beside(model)
        if self.rescore_input is not None:
            write_json(model / RESCORE, self.rescore_input._asdict())

    def dev_inputs(self) -> list[DevInput]:
        """The dev queries, or all of their hops, with the gold passages that are left."""
        queries, qrels = self.dev_queries
        texts = self.codec.queries(
            [q.id for q in queries], [q.text for q in queries], self.options.truncate_queries
        )
        inputs = []
        for query, tokens in zip(queries, texts, strict=True):
            gold = gold_passages(query, qrels)
            for hop in range(len(gold) if self.by_hop else 1):
                numbers = self.corpus.numbers(gold[:hop])
                evidence = tuple(number for number in numbers if number is not None)
                excerpts = self.codec.excerpts(query.text, self.corpus.passages(evidence))
                source = self.codec.model_input(tokens, excerpts)
                inputs.append(DevInput(source, frozenset(gold[hop:]), query, evidence))
        return inputs


def planned_epochs(trainer: Any, examples: int, batch_size: int) -> int | None:
    """Number of epochs of a trainer; None where nothing limits it.

    ``batch_size`` counts the examples of all processes together.
    """
    if trainer is None:
        return None
    limits = []
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        limits.append(int(trainer.max_epochs))
    if trainer.max_steps > 0:
        batches = math.ceil(examples / batch_size)
        limit = trainer.limit_train_batches
        batches = max(1, min(batches, limit) if isinstance(limit, int) else int(batches * limit))
        limits.append(math.ceil(trainer.max_steps / math.ceil(batches / trainer.accumulate_grad_batches)))
    return min(limits, default=None)


_REMEMBERED = 20_000
"""Hops whose opinions are cached, about 10 KB each; a chain in the order of its file is scored once."""


def _key(hop: HopExample) -> tuple[str, tuple[int, ...]]:
    return hop.query, hop.evidence


class RetrieverTeacher:
    """The softmax over the best passages of a retriever that scores the whole corpus.

    Scores are divided by a temperature: 0.05 for a bi-encoder, and for other kinds their default temperature
    as priors (2 for BM25).
    """

    passages = 100
    """Number of passages in an opinion."""

    def __init__(self, folder: str, corpus: Corpus, device: str = "auto"):
        opening = Opening(device, search=SearchOptions(truncate_queries=True))
        self.retriever = load_named(folder, corpus, opening)
        usual = scoring(self.retriever, folder).temperature
        self.corpus = corpus
        self.temperature = getattr(self.retriever, "teaching_temperature", usual)
        self._known: dict[tuple[str, tuple[int, ...]], Mapping[int, float]] = {}

    def fingerprint(self) -> str:
        return ranking_fingerprint(self.retriever)

    def opinions(self, hops: Sequence[HopExample]) -> list[Mapping[int, float]]:
        """Probabilities of passages by number, for each hop; opinions are cached."""
        if len(self._known) > _REMEMBERED:
            self._known = {}
        new = list({_key(hop): hop for hop in hops if _key(hop) not in self._known}.values())
        if new:
            wanted = sorted({number for hop in new for number in hop.evidence})
            known = dict(zip(wanted, self.corpus.passages(wanted), strict=True))
            rankings = found_after(
                self.retriever,
                [Query(str(n), hop.query) for n, hop in enumerate(new)],
                [[known[number] for number in hop.evidence] for hop in new],
                min(self.passages + max(len(hop.evidence) for hop in new), len(self.corpus)),
            )
            for hop, ranking in zip(new, rankings, strict=True):
                numbers = self.corpus.numbers([hit.id for hit in ranking.hits])
                scores = {
                    number: hit.score
                    for number, hit in zip(numbers, ranking.hits, strict=True)
                    if number is not None and number not in hop.evidence
                }
                best = dict(islice(scores.items(), self.passages))
                logits = np.array([*best.values()]) / self.temperature
                weights = np.exp(logits - logits.max(initial=-np.inf))
                self._known[_key(hop)] = dict(zip(best, (weights / weights.sum()).tolist(), strict=True))
        return [self._known[_key(hop)] for hop in hops]
