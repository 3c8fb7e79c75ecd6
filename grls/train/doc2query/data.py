"""The LightningDataModule of the query generator: gold passages -> query.

The best model is the one with the lowest loss on dev.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError
from grls.io.files import write_json
from grls.io.progress import counted
from grls.models.base import start_token
from grls.train.core.datamodule import FitData
from grls.train.core.examples import Example, chain_passages, drawn_chain, gold_chains
from grls.train.doc2query.generate import FORM, QueryForm, QueryPrompt
from grls.train.generator.callbacks import refuse_unmeasured
from grls.train.options import QueryDataOptions
from grls.train.riches.collate import TextCollator

log = logging.getLogger(__name__)


class QueryData(FitData):
    """Gold passages -> query."""

    options: QueryDataOptions

    def setup(self, stage: str) -> None:
        refuse_unmeasured(self.trainer, ["train_loss", "dev_loss"])
        super().setup(stage)

    def read(self, module: Any) -> None:
        if module.options.loss != "full":
            raise ConfigError("a query is free text without a constraint index: take loss `full`.")
        options, tokenizer = self.options, module.tokenizer
        if tokenizer.eos_token_id is None and tokenizer.sep_token_id is not None:
            # BERT has no end token, and the end token of training must be known when queries are written.
            tokenizer.eos_token = tokenizer.sep_token
        causal = not module.model.config.is_encoder_decoder
        self.corpus = Corpus.read(options.data)
        form = QueryForm(options.passages, options.max_passage_tokens, options.max_query_tokens)
        self.prompt = QueryPrompt(tokenizer, causal, form)
        train = self.read_split("data.train_split", options.train_split, self.corpus)
        self.train_examples = QueryExamples(*train, self.corpus, self.prompt, self.seed, options.train_split)
        queries, qrels = self.read_split("data.dev_split", options.dev_split, self.corpus)
        dev = queries[: options.dev_size], qrels
        self.dev_examples = QueryExamples(*dev, self.corpus, self.prompt, self.seed, options.dev_split)
        start = None if causal else start_token(module.model)
        self.collator = TextCollator(int(tokenizer.pad_token_id), start)

    def write_beside(self, model: Path) -> None:
        """The form of input and output, which ``grls prepare pseudo-queries`` reads."""
        write_json(model / FORM, self.prompt.form._asdict())


class QueryExamples:
    """Passages -> query.

    There is an example for each gold passage of a query. With the form ``one`` it reads that passage;
    with ``some``, example n reads n passages of the chain, drawn anew each epoch, in the order of the
    chain. With ``all``, a query is one example, which reads the whole chain. Queries that are too long
    are left out and counted in a warning, which names the ``split``.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        qrels: Qrels,
        corpus: Corpus,
        prompt: QueryPrompt,
        seed: int = 0,
        split: str = "train",
    ):
        self.prompt = prompt
        self.seed = seed
        targets = prompt.targets([query.text for query in queries])
        short = [row for row, target in enumerate(targets) if len(target) - 1 <= prompt.form.query_tokens]
        cut = (
            f"{len(queries) - len(short):,} of {counted(len(queries), 'query')} of {split}, for more than "
            f"{counted(prompt.form.query_tokens, 'token')} (max_query_tokens)"
        )
        if not short:
            raise ConfigError(f"no example is left to learn from: {cut}.")
        if len(short) < len(queries):
            log.warning("left out as too long: %s.", cut)
        self.queries = [queries[row] for row in short]
        self.targets = [targets[row] for row in short]
        self.chains = [gold_chains(query, qrels) for query in self.queries]
        gold = chain_passages(self.queries, self.chains, corpus)
        self.rows = dict(zip(gold, prompt.passages([*gold.values()]), strict=True))
        together = prompt.form.passages == "all"
        self.examples = [
            (query, passage)
            for query, chains in enumerate(self.chains)
            for passage in range(1 if together else len(chains[0]))
        ]

    def __len__(self) -> int:
        return len(self.examples)

    def draw(self, number: int, epoch: int) -> Example:
        query, passage = self.examples[number]
        shuffle = free_order(self.queries[query])
        chain = drawn_chain(self.chains[query], shuffle, f"{self.seed}-{epoch}-{query}")
        if self.prompt.form.passages == "one":
            chain = [chain[passage]]
        elif self.prompt.form.passages == "some":
            rng = random.Random(f"{self.seed}-{epoch}-{query}-{passage}")
            chain = [chain[n] for n in sorted(rng.sample(range(len(chain)), passage + 1))]
        return Example(self.prompt.source([self.rows[p] for p in chain]), list(self.targets[query]))

    def lengths(self) -> Sequence[int]:
        mean = sum(map(len, self.rows.values())) / len(self.rows)
        sizes = []
        for query, passage in self.examples:
            counts = {"one": 1, "some": passage + 1, "all": len(self.chains[query][0])}  # passages read
            sizes.append(int(counts[self.prompt.form.passages] * mean) + len(self.targets[query]))
        return sizes
