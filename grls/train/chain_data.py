"""LightningDataModule of chains."""

from __future__ import annotations

from typing import Any

from grls.assess import ASSESS, Assessing
from grls.errors import ConfigError
from grls.models.generator import start_token
from grls.train.chain_collate import ChainCollator
from grls.train.chain_module import RetrieveChains
from grls.train.chains import ChainExamples, MemoriseChains, Teaching
from grls.train.data import RetrieveData
from grls.train.memorise_sources import Reading
from grls.train.prior import LearnBeside, TrainingPrior
from grls.train.proposals import Assess, Proposals
from grls.train.teacher import DenseTeacher
from grls.train.view_targets import ViewTargets, WriteViews
from grls.views import Views


class ChainData(RetrieveData):
    """A query with all of its hops is one example.

    Args:
        data: Data set folder in BEIR's layout.
        teacher: Folder of a dense retriever over the same corpus whose opinion has a share in the targets.
        teacher_share: Its share.
        teacher_temperature: Its scores are divided by this before the softmax.
        teacher_passages: Passages that it gives an opinion of.
        teach_memories: Ask the teacher about what is read of passages that are memorised along with retrieval
            (``mix.memorise``), too: every passage then is a query whose answer is the teacher's (and is
            learned beside the prior, which otherwise says nothing of what has no query).
        branches: Passages drawn from its opinion that are trained beside the gold one, at each hop.
        prior: Bi-encoders or BM25 beside which the generator learns: the loss is that of the product of both,
            so it learns where they are wrong. Decode it with the same.
        views: Learn to write views of passages (:mod:`grls.views`) instead of passages from their beginning.
        assess: Learn to assess passages that are read to their end, too (``grls retrieve --assess``).
        decay: The n-th token of a passage weighs ``decay ** n``; below 1 the first ones, which decide what a
            beam keeps, weigh more.
        kwargs: The options of :class:`grls.train.data.RetrieveData`; ``batch_size`` counts queries.
    """

    kind = ChainExamples

    def __init__(
        self,
        data: str,
        teacher: str | None = None,
        teacher_share: float = 0.5,
        teacher_temperature: float = 0.05,
        teacher_passages: int = 100,
        teach_memories: bool = False,
        branches: int = 0,
        prior: LearnBeside | None = None,
        views: WriteViews | None = None,
        assess: Assess | None = None,
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
        self.write_views = views
        self.assess = assess
        self.decay = decay

    def make_views(self) -> Views | None:
        """The views that are learned.

        Raises:
            ConfigError: Their options cannot be used.
        """
        if self.write_views is None:
            return None
        self.write_views.check()
        return Views(self.corpus, self.write_views.words)

    def collate(self, module: Any) -> ChainCollator:
        """What makes batches of chains.

        Raises:
            ConfigError: The module does not learn chains, or an option is out of range.
        """
        if not isinstance(module, RetrieveChains):
            raise ConfigError(
                f"ChainData is for grls.train.chain_module.RetrieveChains; for {type(module).__name__} take "
                "grls.train.data.RetrieveData."
            )
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay must be above 0 and at most 1, got {self.decay}.")
        if self.teach_memories and (self.teacher is None or self.mix.memorise is None):
            raise ConfigError("teach_memories needs a teacher (--data.teacher) and --data.mix.memorise.")
        done = len(self.corpus)
        written: dict[str, Any] = {}
        if self.write_views is not None and self.views is not None:
            targets = ViewTargets(self.views, self.write_views.temperature)
            written = {"views": targets, "drawn": self.write_views.drawn}
        if self.teacher is None:
            teaching = Teaching(self.index, done, branches=self.branches, **written)
        else:
            # Processes that make batches are forked: a GPU would not be theirs to use.
            device = "cpu" if self.workers else "auto"
            options = (self.teacher_temperature, self.teacher_passages, device)
            teacher = DenseTeacher(self.teacher, self.corpus, *options)
            teaching = Teaching(self.index, done, teacher, self.teacher_share, self.branches, **written)
        prior = None
        if self.prior is not None:
            self.priors = self.prior.open(self.corpus, "cpu" if self.workers else "auto")
            prior = TrainingPrior(self.priors, self.corpus, self.views)
        proposals = None
        if self.assess is not None:
            device = "cpu" if self.workers else "auto"
            proposals = Proposals.open(self.assess, self.corpus, self.codec, device)
        pad = int(module.tokenizer.pad_token_id)
        start = None if self.codec.causal else start_token(module.model)
        # Dev measures the gold chains alone, so that runs with and without a teacher compare.
        gold = Teaching(self.index, done, **written)
        self.dev_collator = ChainCollator(pad, self.index, gold, start_token=start, prior=prior)
        return ChainCollator(pad, self.index, teaching, self.decay, start, prior, proposals)

    @property
    def assessing(self) -> Assessing | None:
        """How passages are assessed; None: they are not."""
        return None if self.assess is None else Assessing(self.assess.tokens)

    def beside_model(self) -> dict[str, Any]:
        """What ``grls index`` reads, how passages are assessed among it."""
        found = super().beside_model()
        return found if self.assessing is None else {**found, ASSESS: self.assessing._asdict()}

    def _memorise_examples(self, reading: Reading) -> MemoriseChains:
        return MemoriseChains(super()._memorise_examples(reading), self.teach_memories)
