"""Training examples of a query generator: gold passages of a query -> the query.

An example is drawn anew each epoch, as a function of (epoch, seed, number) alone.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, free_order
from grls.data.types import Query
from grls.errors import ConfigError
from grls.io.counts import counted
from grls.train.core.examples import Example, drawn_chain, gold_chains, gold_rows
from grls.train.doc2query.form import QueryPrompt

log = logging.getLogger(__name__)


class QueryExamples:
    """Passages -> query.

    There is an example for each gold passage of a query. With the form ``one`` it reads that passage; with
    ``some``, example n reads n passages of the chain, drawn anew each epoch, in the order of the chain. With
    ``all``, a query is one example, which reads the whole chain. Queries that are too long are left out and
    counted in a warning.

    Args:
        queries: The training queries.
        qrels: Their judgements.
        corpus: The passages.
        prompt: Makes input and output of the generator.
        seed: Seed of the draws.
        split: Name of the split, for messages.

    Raises:
        DataError: A query has no gold passage, or a gold passage is not in the corpus.
        ConfigError: Every query is too long.
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
        short = [place for place, row in enumerate(targets) if len(row) - 1 <= prompt.form.query_tokens]
        self._report_long(split, len(queries), len(short))
        self.queries = [queries[place] for place in short]
        self.targets = [targets[place] for place in short]
        self.chains = [gold_chains(query, qrels) for query in self.queries]
        self.rows = gold_rows(self.queries, self.chains, corpus, prompt.passages)
        whole = prompt.form.passages == "all"
        self.places = [
            (number, place)
            for number, chains in enumerate(self.chains)
            for place in range(1 if whole else len(chains[0]))
        ]

    def _report_long(self, split: str, count: int, kept: int) -> None:
        what = (
            f"{count - kept:,} of {counted(count, 'query')} of {split}, for more than "
            f"{counted(self.prompt.form.query_tokens, 'token')} (max_query_tokens)"
        )
        if not kept:
            raise ConfigError(f"no example is left to learn from: {what}.")
        if kept < count:
            log.warning("left out as too long: %s.", what)

    def __len__(self) -> int:
        return len(self.places)

    def draw(self, number: int, epoch: int) -> Example:  # noqa: D102
        query, place = self.places[number]
        shuffle = free_order(self.queries[query])
        chain = drawn_chain(self.chains[query], shuffle, f"{self.seed}-{epoch}-{query}")
        if self.prompt.form.passages == "one":
            chain = [chain[place]]
        elif self.prompt.form.passages == "some":
            rng = random.Random(f"{self.seed}-{epoch}-{query}-{place}")
            chain = [chain[n] for n in sorted(rng.sample(range(len(chain)), place + 1))]
        return Example(self.prompt.source([self.rows[p] for p in chain]), list(self.targets[query]))

    def lengths(self) -> Sequence[int]:  # noqa: D102
        mean = sum(map(len, self.rows.values())) / len(self.rows)
        return [int(self._read(*place) * mean) + len(self.targets[place[0]]) for place in self.places]

    def _read(self, query: int, place: int) -> int:
        """Number of passages that an example reads."""
        counts = {"one": 1, "some": place + 1, "all": len(self.chains[query][0])}
        return counts[self.prompt.form.passages]
