"""LightningDataModule of chains."""

from __future__ import annotations

from typing import Any

from grls.data.spans import Spans
from grls.errors import ConfigError, Option, bounded
from grls.models.rescore_spec import RESCORE, RescoreInput
from grls.models.seq2seq.plain import start_token
from grls.train.chains.collate import ChainCollator
from grls.train.chains.examples import ChainExamples, MemoriseChains, Teaching
from grls.train.chains.module import RetrieveChains
from grls.train.chains.prior import LearnBeside, TrainingPrior
from grls.train.chains.proposals import Proposals, Rescore
from grls.train.chains.span_targets import SpanTargets, WriteSpans
from grls.train.chains.teacher import RetrieverTeacher
from grls.train.core.datamodule import digest
from grls.train.core.passage_inputs import PassageInput
from grls.train.stages.data import RetrieveData


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
        teach_memories: Use the inputs of memorised passages (``mix.memorise``) as queries for the teacher,
            and for the prior, which otherwise has no effect on them.
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
        teach_memories: bool = False,
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
        self.teach_memories = teach_memories
        self.branches = branches
        self.prior = prior
        self.write_spans = spans
        self.rescore = rescore
        self.decay = decay

    def make_spans(self) -> Spans | None:
        """The spans that the generator learns to write.

        Raises:
            ConfigError: An option of spans is out of range.
        """
        if self.write_spans is None:
            return None
        self.write_spans.check()
        return Spans(self.corpus, self.write_spans.words)

    def collate(self, module: Any) -> ChainCollator:
        """Make the collator.

        Raises:
            ConfigError: The module does not learn chains, or an option is out of range.
        """
        if not isinstance(module, RetrieveChains):
            raise ConfigError(
                f"ChainData is for grls.train.chains.module.RetrieveChains; for {type(module).__name__} take "
                "grls.train.stages.data.RetrieveData."
            )
        bounded("(0, 1]", "data.", decay=self.decay)
        if self.teach_memories and (self.teacher is None or self.mix.memorise is None):
            raise ConfigError(
                f"teach_memories needs a teacher ({Option('data.teacher')}) and "
                f"{Option('data.mix.memorise')}."
            )
        written: dict[str, Any] = {}
        if self.write_spans is not None and self.spans is not None:
            asked = self.write_spans
            targets = SpanTargets(self.spans, asked.temperature, asked.evidence, self.limits.evidence)
            written = {"spans": targets, "drawn": self.write_spans.drawn}
        teaching, prior, proposals = self._teaching(written), self._training_prior(), self._proposals()
        pad = int(module.tokenizer.pad_token_id)
        start = None if self.codec.causal else start_token(module.model)
        # Dev measures only gold chains, so that runs with and without a teacher are comparable.
        gold = Teaching(self.index, len(self.corpus), **written)
        self.dev_collator = ChainCollator(pad, self.index, gold, start_token=start, prior=prior)
        return ChainCollator(pad, self.index, teaching, self.decay, start, prior, proposals)

    @property
    def _device(self) -> str:
        """Where retrievers compute: batches are made in forked processes, which cannot use a GPU."""
        return "cpu" if self.workers else "auto"

    def _teaching(self, written: dict[str, Any]) -> Teaching:
        """How targets are made; a resumed run must have the same teacher."""
        done = len(self.corpus)
        if self.teacher is None:
            return Teaching(self.index, done, branches=self.branches, **written)
        options = (self.teacher_temperature, self.teacher_passages, self._device)
        teacher = RetrieverTeacher(self.teacher, self.corpus, *options)
        self._prints["the retriever of data.teacher"] = teacher.fingerprint()
        return Teaching(self.index, done, teacher, self.teacher_share, self.branches, **written)

    def _training_prior(self) -> TrainingPrior | None:
        """The prior; a resumed run must have the same."""
        if self.prior is None:
            return None
        self.priors = self.prior.open(self.corpus, self._device)
        sources = [weighed.source.fingerprint() for weighed in self.priors.weighed]
        self._prints["a retriever of data.prior"] = digest(sources)
        return TrainingPrior(self.priors, self.corpus, self.spans)

    def _proposals(self) -> Proposals | None:
        """The passages to rescore; a resumed run must have the same."""
        if self.rescore is None:
            return None
        proposals = Proposals.open(self.rescore, self.corpus, self.codec, self._device)
        sources = [source.fingerprint() for source in proposals.sources]
        self._prints["a retriever of data.rescore"] = digest(sources)
        return proposals

    @property
    def rescore_input(self) -> RescoreInput | None:
        """How the generator reads passages for rescoring; None: it does not learn to rescore."""
        return None if self.rescore is None else RescoreInput(self.rescore.tokens)

    def beside_model(self) -> dict[str, Any]:
        """The files that ``grls index`` reads, with the options of rescoring."""
        files = super().beside_model()
        return files if self.rescore_input is None else {**files, RESCORE: self.rescore_input._asdict()}

    def _memorise_examples(self, reading: PassageInput) -> MemoriseChains:
        return MemoriseChains(super()._memorise_examples(reading), self.teach_memories)
