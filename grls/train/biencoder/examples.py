"""What a bi-encoder learns: a query (and the evidence so far) beside its right passage and wrong ones.

An example is drawn anew each epoch from (epoch, seed, its query) alone, as those of a generator are. Beside
the texts it names what must not count as wrong: other gold passages of the query. It knows nothing of
vectors, and not where hard negatives come from: it gets a ranking of passages a query.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from grls.data.codec import DONE_ID
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels
from grls.data.types import Passage, Query
from grls.errors import DataError
from grls.models.biencoder import DONE_PASSAGE, BiEncoder
from grls.models.text_encoder import passage_text
from grls.train.biencoder.options import PairOptions as PairOptions
from grls.train.core.examples import drawn_chain, free_order, gold_chains

NO_KEY = -1
"""Fills up the gold keys of an example; the key of no text."""

_FILLER = 1000
"""Random passages among which a short ranking finds enough that are not gold."""

log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """One training example.

    Attributes:
        query: Query and evidence so far, as text.
        passages: Texts: the right one, then the hard negatives.
        keys: A number for each of ``passages``; equal texts have equal numbers.
        gold: Numbers of the texts that are right for the query at any hop; ``NO_KEY`` fills up to the same
            length for all examples.
    """

    query: str
    passages: tuple[str, ...]
    keys: tuple[int, ...]
    gold: tuple[int, ...]


class BiEncoderExamples:
    """The pairs of all training queries.

    Where the metadata of a query holds equally good proofs (``proofs``), each epoch draws one, as for a
    generator; the passages of all of them are right.

    Args:
        queries: The training queries.
        qrels: Their judgements.
        corpus: The passages.
        encoder: How query, evidence and passages become text.
        options: Which pairs.
        rankings: Passage ids a query, best first, to draw hard negatives from; gold ones are left out, and a
            short ranking is filled up at random.

    Raises:
        DataError: There is no query; one has no gold passage, or names one that is not in the corpus; or the
            corpus has too few other passages for the hard negatives.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        qrels: Qrels,
        corpus: Corpus,
        encoder: BiEncoder,
        options: PairOptions,
        rankings: Sequence[Sequence[str]] = (),
    ):
        if not queries:
            raise DataError("the training split holds no query; training needs queries with gold passages.")
        self.queries = queries
        self.encoder = encoder
        encoder.evidence_words = options.evidence_words
        self.chains = [gold_chains(query, qrels) for query in queries]
        self.options = replace(options, multistep=self._multistep(options))
        self._passages: dict[str, Passage] = {DONE_ID: DONE_PASSAGE}
        self._numbers: dict[str, int] = {}
        self._add_gold(corpus)
        self._gold = [self._gold_keys(chains) for chains in self.chains]
        self._width = max(len(keys) for keys in self._gold)
        self._negatives = self._rank(corpus, rankings) if options.hard_negatives else []
        self.done = options.done and bool(self.options.multistep)
        self.places = [(q, hop) for q, some in enumerate(self.chains) for hop in range(self._hops(some))]

    def __len__(self) -> int:
        return len(self.places)

    def draw(self, number: int, epoch: int) -> Pair:
        """Example ``number`` as it is in ``epoch``."""
        query, hop = self.places[number]
        chain = self._chain(query, epoch)
        before = [self._passages[p] for p in chain[:hop]] if self.options.multistep else []
        right = DONE_ID if hop == len(chain) else chain[hop]
        names = [right, *self._drawn_negatives(query, hop, epoch)]
        gold = self._gold[query]
        return Pair(
            self.encoder.query_text(self.queries[query].text, before),
            tuple(passage_text(self._passages[name]) for name in names),
            tuple(self._key(name) for name in names),
            (*sorted(gold), *[NO_KEY] * (self._width - len(gold))),
        )

    def passages(self) -> list[str]:
        """The texts of all passages that are learned from, each passage once, DONE not among them."""
        gold = [passage for chains in self.chains for chain in chains for passage in chain]
        wrong = [passage for some in self._negatives for passage in some]
        return [passage_text(self._passages[passage]) for passage in dict.fromkeys([*gold, *wrong])]

    def lengths(self) -> list[int]:
        """About how long the query text of each example is, in characters; to sort by."""
        texts = [len(passage_text(p)) for p in self._passages.values()]
        mean = sum(texts) // len(texts)
        return [
            len(self.queries[q].text) + hop * mean * bool(self.options.multistep) for q, hop in self.places
        ]

    def _multistep(self, options: PairOptions) -> bool:
        """As the options say, else as the data do, which is told where it leaves hops and DONE out."""
        if options.multistep is not None:
            return options.multistep
        several = any(len(chain) > 1 for chains in self.chains for chain in chains)
        if not several:
            log.warning(
                "every query has one gold passage, so neither hops nor DONE are trained (--multistep true "
                "trains them)."
            )
        return several

    def _hops(self, chains: list[tuple[str, ...]]) -> int:
        return len(chains[0]) + self.done

    def _chain(self, query: int, epoch: int) -> list[str]:
        """The gold passages of a query in this epoch's order, the same for all of its hops."""
        shuffle = self.options.shuffle or free_order(self.queries[query])
        return drawn_chain(self.chains[query], shuffle, f"{self.options.seed}-{epoch}-{query}")

    def _drawn_negatives(self, query: int, hop: int, epoch: int) -> list[str]:
        if not self._negatives:
            return []
        rng = random.Random(f"{self.options.seed}-{epoch}-{query}-{hop}")
        return rng.sample(self._negatives[query], self.options.hard_negatives)

    def _key(self, passage: str) -> int:
        """The number of a passage's text: two passages with one text are the same to an encoder."""
        text = passage_text(self._passages[passage])
        return self._numbers.setdefault(text, len(self._numbers))

    def _gold_keys(self, chains: list[tuple[str, ...]]) -> frozenset[int]:
        return frozenset(self._key(passage) for chain in chains for passage in chain)

    def _add_gold(self, corpus: Corpus) -> None:
        users = {
            passage: query.id
            for query, some in zip(self.queries, self.chains, strict=True)
            for chain in some
            for passage in chain
        }
        self._add(corpus, users)
        missing = next((passage for passage in users if passage not in self._passages), None)
        if missing is not None:
            raise DataError(
                f"gold passage {missing!r} of query {users[missing]!r} is not in {corpus.source}; add the "
                "passage or remove the reference."
            )

    def _add(self, corpus: Corpus, passages: Iterable[str]) -> None:
        """Read those passages of the corpus that are not known yet."""
        new = [p for p in dict.fromkeys(passages) if p not in self._passages]
        numbers = [n for n in corpus.numbers(new) if n is not None] if new else []
        self._passages.update({p.id: p for p in corpus.passages(numbers)} if numbers else {})

    def _rank(self, corpus: Corpus, rankings: Sequence[Sequence[str]]) -> list[list[str]]:
        """Ids a query that are wrong, hardest first, each text once."""
        self._add(corpus, (passage for ranking in rankings for passage in ranking))
        return [self._wrong(corpus, query, ranking) for query, ranking in enumerate(rankings)]

    def _wrong(self, corpus: Corpus, query: int, ranking: Sequence[str]) -> list[str]:
        least = self.options.hard_negatives
        found = self._distinct(query, ranking)[: self.options.ranked]
        if len(found) < least:
            rng = random.Random(f"{self.options.seed}-{query}")
            some = corpus.ids(rng.sample(range(len(corpus)), min(len(corpus), _FILLER + least)))
            self._add(corpus, some)
            found = self._distinct(query, [*found, *some])[:least]
        if len(found) < least:
            raise DataError(
                f"{corpus.source} has {len(found)} passages that are not gold for query "
                f"{self.queries[query].id!r}; hard_negatives of {least} needs as many: lower it."
            )
        return found

    def _distinct(self, query: int, passages: Sequence[str]) -> list[str]:
        """Those that are not gold for the query, each text once."""
        wrong: dict[int, str] = {}
        for passage in passages:
            key = self._key(passage)
            if key not in self._gold[query]:
                wrong.setdefault(key, passage)
        return list(wrong.values())
