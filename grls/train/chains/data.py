"""LightningDataModule of chains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from grls.data.corpus import Corpus
from grls.data.spans import Spans
from grls.data.types import Query
from grls.errors import ConfigError, MismatchError, at_least, bounded
from grls.models.head import RESCORE, RescoreInput
from grls.models.seq2seq.slots import start_token
from grls.retrieve.base import ranking_fingerprint
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.finders import found_after
from grls.retrieve.hybrid.priors import RetrieverPrior
from grls.retrieve.registry import Opening, load_named
from grls.retrieve.spec import remedy_of_other_corpus
from grls.train.chains.collate import ChainCollator
from grls.train.chains.examples import (
    ChainExamples,
    HopExample,
    MemoriseChains,
    SpanTargets,
    Teaching,
    WriteSpans,
)
from grls.train.chains.module import RetrieveChains
from grls.train.chains.prior import LearnBeside
from grls.train.chains.rescoring import Proposals, Rescore
from grls.train.core.datamodule import digest
from grls.train.stages.data import RetrieveData
from grls.train.stages.examples import PassageInput


class ChainData(RetrieveData):
    """A query with all of its hops is one example.

    Args:
        data: Data set folder in BEIR's layout.
        teacher: Teacher whose probabilities are mixed into the targets: a retriever folder over the same
            corpus (of a bi-encoder, a sparse or a multi-vector encoder), or ``bm25``; null: no teacher.
        teacher_share: Share of the teacher in the targets (0 to 1).
        teacher_temperature: Temperature of the teacher's softmax, by which its scores are divided; null: 0.05
            for a bi-encoder, and for other kinds their default temperature as priors (2 for BM25).
        teacher_passages: Number of the teacher's best passages in the targets.
        branches: Number of passages drawn from the teacher at each hop and trained beside the gold passage.
        prior: Bi-encoders or BM25 beside which the generator learns: the loss is that of the product of both.
            Decode with the same prior; null: no prior.
        spans: Learn to write spans of passages instead of passages from their beginning; null: no spans.
        rescore: Learn to rescore passages that are read to their end; null: no rescoring.
        decay: Token n of a passage has the weight ``decay ** n``; below 1, the first tokens weigh more, which
            decide what a beam keeps.
        kwargs: The options of :class:`grls.train.stages.data.RetrieveData`; ``batch_size`` counts queries.
    """

    kind = ChainExamples

    def __init__(
        self,
        data: str,
        teacher: str | None = None,
        teacher_share: float = 0.5,
        teacher_temperature: float | None = None,
        teacher_passages: int = 100,
        branches: int = 0,
        prior: LearnBeside | None = None,
        spans: WriteSpans | None = None,
        rescore: Rescore | None = None,
        decay: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.teacher = teacher
        self.teacher_share = teacher_share
        self.teacher_temperature = teacher_temperature
        self.teacher_passages = teacher_passages
        self.branches = branches
        self.prior = prior
        self.write_spans = spans
        self.rescore = rescore
        if rescore is not None:
            self.rescore_input = RescoreInput(rescore.tokens)
        self.decay = decay

    def make_spans(self) -> Spans | None:
        if self.write_spans is None:
            return None
        self.write_spans.check()
        return Spans(self.corpus, self.write_spans.words)

    def collate(self, module: Any) -> ChainCollator:
        if not isinstance(module, RetrieveChains):
            raise ConfigError(
                f"ChainData is for grls.train.chains.module.RetrieveChains; for {type(module).__name__} take "
                "grls.train.stages.data.RetrieveData."
            )
        bounded("(0, 1]", "data.", decay=self.decay)
        span_options: dict[str, Any] = {}
        if self.write_spans is not None and self.spans is not None:
            options = self.write_spans
            targets = SpanTargets(self.spans, options.temperature, options.evidence, self.limits.evidence)
            span_options = {"spans": targets, "drawn": self.write_spans.drawn}
        # A resumed run must have the same teacher, prior and proposals.
        done, share, teacher, prior, proposals = len(self.corpus), 0.0, None, None, None
        if self.teacher is not None:
            teacher_options = (self.teacher_temperature, self.teacher_passages, self._device)
            opened = RetrieverTeacher(self.teacher, self.corpus, *teacher_options)
            teacher, share = opened.opinions, self.teacher_share
            self._prints["the retriever of data.teacher"] = opened.fingerprint()
        teaching = Teaching(self.index, done, teacher, share, self.branches, **span_options)
        if self.prior is not None:
            prior = self.priors = self.prior.open(self.corpus, self._device, self.spans)
            sources = [weighed.source.fingerprint() for weighed in prior.weighed]
            self._prints["a retriever of data.prior"] = digest(sources)
        if self.rescore is not None:
            proposals = Proposals(self.rescore, self.corpus, self.codec, self._device)
            sources = [source.fingerprint() for source in proposals.sources]
            self._prints["a retriever of data.rescore"] = digest(sources)
        pad = int(module.tokenizer.pad_token_id)
        start = None if self.codec.causal else start_token(module.model)
        # Dev measures only gold chains, so that runs with and without a teacher are comparable.
        gold = Teaching(self.index, done, **span_options)
        self.dev_collator = ChainCollator(pad, self.index, gold, start_token=start, prior=prior)
        return ChainCollator(pad, self.index, teaching, self.decay, start, prior, proposals)

    @property
    def _device(self) -> str:
        """Where retrievers compute: batches are made in forked processes, which cannot use a GPU."""
        return "cpu" if self.workers else "auto"

    def beside_model(self) -> dict[str, Any]:
        files = super().beside_model()
        return files if self.rescore_input is None else {**files, RESCORE: self.rescore_input._asdict()}

    def _memorise_examples(self, reading: PassageInput) -> MemoriseChains:
        return MemoriseChains(self.corpus, self.codec, reading, self.seed)


_REMEMBERED = 20_000
"""Hops whose opinions are cached, about 10 KB each; a chain in the order of its file is scored once."""


def _key(hop: HopExample) -> tuple[str, tuple[int, ...]]:
    return hop.query, hop.evidence


class RetrieverTeacher:
    """The softmax over the best passages of a retriever that scores the whole corpus.

    Args:
        folder: A retriever folder (of a bi-encoder, a sparse or a multi-vector encoder), or ``bm25``.
        temperature: By which scores are divided; None: 0.05 for a bi-encoder, and for other kinds their
            default temperature as priors (2 for BM25).
        passages: Number of passages in an opinion.
    """

    def __init__(
        self,
        folder: str,
        corpus: Corpus,
        temperature: float | None = None,
        passages: int = 100,
        device: str = "auto",
    ):
        bounded("(0, inf)", "data.", teacher_temperature=temperature)
        at_least(1, "data.", teacher_passages=passages)
        opening = Opening(device, search=SearchOptions(truncate_queries=True))
        self.retriever = load_named(folder, corpus, opening)
        scoring = RetrieverPrior(self.retriever, folder)
        if self.retriever.corpus.fingerprint != corpus.fingerprint:
            raise MismatchError(
                f"{folder} is over another corpus than the training data: "
                f"{remedy_of_other_corpus(self.retriever.corpus, corpus)}."
            )
        self.corpus = corpus
        default = getattr(self.retriever, "teaching_temperature", scoring.temperature)
        self.temperature = default if temperature is None else temperature
        self.passages = passages
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
