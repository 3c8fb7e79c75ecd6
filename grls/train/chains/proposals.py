"""Draws passages that retrievers propose for a hop; the generator learns to rescore them.

They are the best passages of a bi-encoder or BM25 for the query and the evidence so far, without passages
that are gold or evidence. The draw is a function of the hop's seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, MismatchError
from grls.index.rows import Ints
from grls.io.listed import list_texts
from grls.models.rescore_spec import RescoreInput, readout
from grls.retrieve.corpora import remedy_of_other_corpus
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hybrid.priors import RetrieverPrior, open_sources
from grls.train.chains.examples import ChainExample, HopExample

_REMEMBERED = 50_000
"""Passages whose tokens are cached."""


class Read(NamedTuple):
    """A passage that is read to its end.

    Attributes:
        hop: The number of the hop before it.
        tokens: Its tokens, the end token last.
        right: Whether it is right.
    """

    hop: int
    tokens: tuple[int, ...]
    right: bool


@dataclass(frozen=True)
class Rescore:
    """Options of training a generator to rescore passages.

    DONE is rescored in chains that end with DONE. A passage that is memorised along with retrieval is
    rescored as well where its input is a query for the teacher (``teach_memories``).

    Args:
        retrievers: Retrievers that propose passages: folders of bi-encoders over the corpus, or ``bm25``.
        passages: Number of proposed passages for each rescored hop, beside the right ones.
        depth: Number of best passages of each retriever from which proposals are drawn.
        right: Largest number of right passages of a hop that are rescored.
        hops: Number of rescored hops of a chain, drawn anew each epoch.
        tokens: Number of first tokens of a passage that are read.
        analyzer: How BM25 splits texts into words.
    """

    retrievers: list[str]
    passages: int = 12
    depth: int = 60
    right: int = 6
    hops: int = 1
    tokens: int = 128
    analyzer: Analyzer = USUAL

    def __post_init__(self) -> None:
        list_texts(self, "retrievers")

    def check(self) -> None:
        """Refuse options that cannot work.

        Raises:
            ConfigError: No retriever is named, or a count is below 1.
        """
        # Not in the constructor, where jsonargparse would hide the error.
        counts = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        if not self.retrievers or min(counts.values()) < 1:
            raise ConfigError(
                f"rescore needs retrievers and counts of at least 1, got {self.retrievers} and {counts}."
            )


class Proposals:
    """Draws the passages to rescore.

    Args:
        options: The numbers of passages.
        sources: The retrievers that propose passages.
        corpus: The passages.
        codec: Text to tokens.
    """

    def __init__(self, options: Rescore, sources: Sequence[RetrieverPrior], corpus: Corpus, codec: Codec):
        self.options = options
        self.sources = sources
        self.corpus = corpus
        self.codec = codec
        self.readout = readout(codec)
        self._rescore_input = RescoreInput(options.tokens)
        self._tokens: dict[int, tuple[int, ...]] = {}

    @classmethod
    def open(cls, options: Rescore, corpus: Corpus, codec: Codec, device: str) -> Proposals:
        """Open the retrievers.

        Raises:
            ConfigError: The options cannot be used, or a folder holds no bi-encoder.
            MismatchError: A bi-encoder is over another corpus.
        """
        options.check()
        search = SearchOptions(truncate_queries=True)
        sources = open_sources(corpus, options.retrievers, device, search, options.analyzer)
        for source in sources:
            if source.corpus.fingerprint != corpus.fingerprint:
                raise MismatchError(
                    f"{source.name} is over {source.corpus.source} and the data set's corpus is "
                    f"{corpus.source}: {remedy_of_other_corpus(source.corpus, corpus)}."
                )
        return cls(options, sources, corpus, codec)

    def __call__(self, examples: Sequence[ChainExample]) -> list[Read]:
        """The passages to rescore, for a sample of the hops; hops are numbered one chain after another."""
        chosen = list(self._chosen(examples))
        ranked = self._ranked([hop for _, hop, _ in chosen])
        read: list[Read] = []
        for (number, hop, ends), best in zip(chosen, ranked, strict=True):
            read += self._read(number, hop, ends, best)
        return read

    def _chosen(self, examples: Sequence[ChainExample]) -> Iterator[tuple[int, HopExample, bool]]:
        """Sampled hops of each chain, and whether it ends with DONE; hops of equal evidence are one."""
        before, done = 0, (len(self.corpus),)
        for example in examples:
            ends = example.hops[-1].gold == done
            hops = {
                hop.evidence: (before + n, hop, ends)
                for n, hop in reversed([*enumerate(example.hops)])
                if hop.query
            }
            rng = random.Random(f"assess-{example.hops[0].seed}")
            yield from sorted(rng.sample(list(hops.values()), min(self.options.hops, len(hops))))
            before += len(example.hops)

    def _ranked(self, hops: Sequence[HopExample]) -> list[list[Ints]]:
        """The best passages of each retriever for each hop, without passages that are gold or evidence."""
        if not hops:
            return []
        queries = [Query(str(n), hop.query) for n, hop in enumerate(hops)]
        evidence = [self.corpus.passages(hop.evidence) for hop in hops]
        ranked: list[list[Ints]] = [[] for _ in hops]
        for source in self.sources:
            score_hop = source.ask(queries, evidence)
            for n, hop in enumerate(hops):
                scores = np.array(score_hop(np.array([n]))[0, : len(self.corpus)])
                scores[[number for number in hop.known if number < len(self.corpus)]] = -np.inf
                least = source.least_score  # passages without a common word are not proposed
                most = min(self.options.depth, len(scores))
                best = np.sort(np.argpartition(-scores, most - 1)[:most])
                ranked[n].append(best[scores[best] > least])
        return ranked

    def _read(self, number: int, hop: HopExample, ends: bool, best: Sequence[Ints]) -> list[Read]:
        """The right passages of a hop and proposed ones, and DONE where the chain ends with DONE."""
        options, done = self.options, len(self.corpus)
        rng = random.Random(f"assess-{hop.seed}-passages")
        right = rng.sample(hop.gold, min(options.right, len(hop.gold)))
        wrong = []
        for n in range(options.passages):
            passages = best[n % len(best)]
            if len(passages):
                wrong.append(int(passages[rng.randrange(len(passages))]))
        if ends and right != [done]:
            wrong.append(done)
        right_texts = {self._passage(passage) for passage in {*hop.known, *hop.gold} - {done}}
        labelled = [(self._passage(passage), True) for passage in right]
        labelled += [(tokens, False) for tokens in map(self._passage, wrong) if tokens not in right_texts]
        return [Read(number, *pair) for pair in dict.fromkeys(labelled)]

    def _passage(self, number: int) -> tuple[int, ...]:
        """The tokens of a passage that are read; number N is DONE."""
        if number == len(self.corpus):
            return tuple(self._rescore_input.read(self.codec.done_sequence, self.codec))
        if number not in self._tokens:
            if len(self._tokens) >= _REMEMBERED:
                self._tokens.clear()
            (sequence,) = self.codec.passages(self.corpus.passages([number]))
            self._tokens[number] = tuple(self._rescore_input.read(sequence, self.codec))
        return self._tokens[number]
