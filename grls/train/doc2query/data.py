"""The LightningDataModule of the query generator: gold passages -> query.

The generator learns from the training pairs, and later writes pseudo-queries for other passages
(:mod:`grls.train.doc2query.generate`). The best model is the one with the lowest loss on dev.
"""

from __future__ import annotations

from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels
from grls.data.types import Query
from grls.errors import ConfigError, Option
from grls.models.seq2seq.plain import start_token
from grls.train.core.datamodule import FitData
from grls.train.doc2query.examples import QueryExamples
from grls.train.doc2query.form import FORM, PassagesRead, QueryForm, QueryPrompt
from grls.train.riches.collate import InterlacedCollator
from grls.train.stages.callbacks import refuse_unmeasured


class QueryData(FitData):
    """Gold passages -> query.

    Args:
        data: Data set folder in BEIR's layout.
        train_split: Split of the training queries.
        dev_split: Split of the dev queries; ``dev_size`` counts queries.
        passages: Gold passages that the model reads: ``one``, ``all`` of a query in their order, or ``some``
            of them, drawn anew each epoch. To write queries for chains of passages, a model needs ``all`` or
            ``some``.
        max_passage_tokens: Longest passage in tokens; longer passages are cut.
        max_query_tokens: Longest query in tokens; longer queries are left out and counted.
        kwargs: The options of :class:`grls.train.core.datamodule.FitData`.
    """

    def __init__(
        self,
        data: str,
        train_split: str = "train",
        dev_split: str = "dev",
        passages: PassagesRead = "one",
        max_passage_tokens: int = 128,
        max_query_tokens: int = 64,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.train_split = train_split
        self.dev_split = dev_split
        self.form = QueryForm(passages, max_passage_tokens, max_query_tokens)

    def setup(self, stage: str) -> None:
        """Refuse to monitor a metric that is not measured, then read the data.

        Raises:
            ConfigError: ``--checkpoint.monitor`` does not name a loss.
        """
        hint = f"Set {Option('checkpoint.monitor', 'dev_loss')} and {Option('checkpoint.mode', 'min')}."
        refuse_unmeasured(self._trainer, ["train_loss", "dev_loss"], hint)
        super().setup(stage)

    def read(self, module: Any) -> None:
        """Read the data set and make the examples.

        Raises:
            ConfigError: The loss is not ``full``, or a length limit is not positive.
            DataError: A split is empty, or a query has no gold passage.
        """
        if module.loss != "full":
            raise ConfigError("a query is free text without a constraint index: take loss `full`.")
        tokenizer = module.tokenizer
        if tokenizer.eos_token_id is None and tokenizer.sep_token_id is not None:
            tokenizer.eos_token = (
                tokenizer.sep_token
            )  # BERT has no end token: the one of training must be known when queries are written
        causal = not module.model.config.is_encoder_decoder
        self.corpus = Corpus.read(self.data)
        self.prompt = QueryPrompt(tokenizer, causal, self.form)
        self.train_examples = self._examples(
            *self.read_split(self.train_split, self.corpus), self.train_split
        )
        queries, qrels = self.read_split(self.dev_split, self.corpus)
        self.dev_examples = self._examples(queries[: self.dev_size], qrels, self.dev_split)
        start = None if causal else start_token(module.model)
        self.collator = InterlacedCollator(int(tokenizer.pad_token_id), start)

    def _examples(self, queries: list[Query], qrels: Qrels, split: str) -> QueryExamples:
        return QueryExamples(queries, qrels, self.corpus, self.prompt, self.seed, split)

    def beside_model(self) -> dict[str, Any]:
        """The form of input and output, which ``grls prepare pseudo-queries`` reads."""
        return {FORM: self.form._asdict()}
