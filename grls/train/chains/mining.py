"""Mines hard negatives for the margin loss: wrong passages that the current model retrieves.

Learning to rank in generative retrieval (LTRGR, arXiv 2306.15222) compares the right passage with the
wrong ones that constrained beam search ranks before it. They depend on the current weights, so they are
searched for when the first batch of an epoch is made, for the hops of that epoch; a checkpoint keeps
them.

A generator that writes spans ranks passages by all their spans. There the margin loss compares a span of
a right passage, drawn as for the target, with the span of a wrong passage that the search finds
likeliest. A text that a right passage holds as well is no hard negative.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch.distributed

from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, MismatchError, Option, at_least
from grls.index.rows import Ints
from grls.io.recipes import list_texts
from grls.models.head import RescoreInput, readout
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import open_sources
from grls.retrieve.spec import remedy_of_other_corpus
from grls.train.chains.examples import ChainExample, HopExample, Teaching


class MineNegatives(L.Callback):
    """Mines hard negatives for the hops of training queries at the start of an epoch.

    Args:
        passages: Largest number of hard negatives of a hop; 0 mines none.
        queries: Number of training queries to mine for, drawn anew each time; other queries have no margin
            loss; null: all.
        first_epoch: First epoch with a margin loss, counted from 0: an untrained model has no hard negatives.
        beams: Beam width of the search.
        batch_size: Inputs decoded together.
    """

    def __init__(
        self,
        passages: int = 0,
        queries: int | None = None,
        first_epoch: int = 1,
        beams: int = 10,
        batch_size: int = 32,
    ):
        at_least(0, "mine.", passages=passages, first_epoch=first_epoch)
        at_least(1, "mine.", queries=queries)
        self.passages = passages
        self.queries = queries
        self.first_epoch = first_epoch
        self.options = SearchOptions(beams=max(beams, passages), batch_size=batch_size)
        self._mined: tuple[int, dict[str, list[int]]] = (-1, {})

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        margin = getattr(pl_module, "margin", 0.0)
        if bool(margin) != bool(self.passages):
            raise ConfigError(
                f"a margin loss needs both {Option('model.margin')} and {Option('mine.passages')} above 0, "
                f"got {margin} and {self.passages}."
            )
        if self.passages and getattr(trainer.datamodule, "prior", None) is not None:  # type: ignore[attr-defined]
            raise ConfigError(
                f"{Option('mine.passages')} searches with the generator alone, but {Option('data.prior')} "
                "trains it beside a prior: give only one of the two."
            )
        if self.passages and trainer.datamodule.workers:  # type: ignore[attr-defined]
            raise ConfigError(
                f"{Option('mine.passages')} needs {Option('data.workers', 0)}: the search needs the current "
                "weights."
            )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self.passages:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        teaching: Teaching = data.collator.teaching
        teaching.negatives = {seed: tuple(wrong) for seed, wrong in self._mined[1].items()}
        teaching.begin = lambda: self._begin(trainer, pl_module, teaching)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._mined[0], "negatives": self._mined[1]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._mined = state_dict["epoch"], state_dict["negatives"]

    def _begin(self, trainer: L.Trainer, module: Any, teaching: Teaching) -> None:
        epoch = trainer.current_epoch
        if epoch == self._mined[0]:
            return
        self._mined = epoch, self._mine(trainer, module, epoch) if epoch >= self.first_epoch else {}
        teaching.negatives = {seed: tuple(wrong) for seed, wrong in self._mined[1].items()}

    def _mine(self, trainer: L.Trainer, module: Any, epoch: int) -> dict[str, list[int]]:
        """Hard negatives by the seed of their hop; each process searches for its share and gets all."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        examples = data.train_examples
        numbers = list(range(len(examples)))
        if self.queries is not None and self.queries < len(examples):
            numbers = random.Random(f"mine-{data.seed}-{epoch}").sample(numbers, self.queries)
        hops = [hop for number in numbers for hop in examples.draw(number, epoch).hops]
        hops = hops[trainer.global_rank :: trainer.world_size]
        parts = module.model, data.codec, data.corpus, data.index, self.options
        retriever = GenerativeRetriever(*parts, spans=data.spans)
        request = [hop.source for hop in hops], self.passages, [hop.known for hop in hops], "mine"
        wrong: dict[str, list[int]] = {}  # passages, or one span of each wrong passage
        with module.whole_weights():
            if retriever.spans is not None:
                spans = retriever.likeliest_spans(*request)
                wrong = {hop.seed: found for hop, found in zip(hops, spans, strict=True)}
            else:
                row_of = np.asarray(retriever.index.rows.row_of)
                for hop, hits in zip(hops, retriever.search(*request), strict=True):
                    known = set(row_of[list(hop.known)].tolist())  # rows: equal texts count as one passage
                    wrong[hop.seed] = [hit.passage for hit in hits if int(row_of[hit.passage]) not in known]
        if trainer.world_size > 1:
            shares: list[Any] = [None] * trainer.world_size
            torch.distributed.all_gather_object(shares, wrong)
            wrong = {seed: found for share in shares for seed, found in share.items()}
        return wrong


_REMEMBERED = 50_000
"""Passages whose tokens are cached."""


class Read(NamedTuple):
    """A passage that is read to its end token after hop number ``hop``."""

    hop: int
    tokens: tuple[int, ...]
    right: bool


@dataclass(frozen=True)
class Rescore:
    """Options of training a generator to rescore passages.

    DONE is rescored in chains that end with DONE.

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


class Proposals:
    """Draws the passages to rescore: the best ones of retrievers for each hop, without known ones.

    A draw is a function of the hop's seed.
    """

    def __init__(self, options: Rescore, corpus: Corpus, codec: Codec, device: str):
        # Not in the constructor of the options, where jsonargparse would hide the error.
        counts = {name: value for name, value in vars(options).items() if isinstance(value, int)}
        if not options.retrievers or min(counts.values()) < 1:
            raise ConfigError(
                f"rescore needs retrievers and counts of at least 1, got {options.retrievers} and {counts}."
            )
        search = SearchOptions(truncate_queries=True)
        self.sources = open_sources(corpus, options.retrievers, device, search, options.analyzer)
        for source in self.sources:
            if source.corpus.fingerprint != corpus.fingerprint:
                raise MismatchError(
                    f"{source.name} is over {source.corpus.source} and the data set's corpus is "
                    f"{corpus.source}: {remedy_of_other_corpus(source.corpus, corpus)}."
                )
        self.options = options
        self.corpus = corpus
        self.codec = codec
        self.readout = readout(codec)
        self._rescore_input = RescoreInput(options.tokens)
        self._tokens: dict[int, tuple[int, ...]] = {}

    def __call__(self, examples: Sequence[ChainExample]) -> list[Read]:
        """The passages to rescore, for a sample of the hops; hops are numbered one chain after another."""
        # The number of a hop, the hop, and whether its chain ends with DONE.
        chosen: list[tuple[int, HopExample, bool]] = []
        before, done = 0, (len(self.corpus),)
        for example in examples:
            ends = example.hops[-1].gold == done
            hops = {  # hops of equal evidence are one
                hop.evidence: (before + n, hop, ends)
                for n, hop in reversed([*enumerate(example.hops)])
                if hop.query
            }
            rng = random.Random(f"assess-{example.hops[0].seed}")
            chosen += sorted(rng.sample(list(hops.values()), min(self.options.hops, len(hops))))
            before += len(example.hops)
        ranked = self._ranked([hop for _, hop, _ in chosen])
        read: list[Read] = []
        for (number, hop, ends), best in zip(chosen, ranked, strict=True):
            read += self._read(number, hop, ends, best)
        return read

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
                depth = min(self.options.depth, len(scores))
                best = np.sort(np.argpartition(-scores, depth - 1)[:depth])
                # Passages without a common word are not proposed.
                ranked[n].append(best[scores[best] > source.least_score])
        return ranked

    def _read(self, number: int, hop: HopExample, ends: bool, best: Sequence[Ints]) -> list[Read]:
        """Right and proposed passages of a hop, and DONE where the chain ends with DONE."""
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
        if number == len(self.corpus):
            return tuple(self._rescore_input.read(self.codec.done_sequence, self.codec))
        if number not in self._tokens:
            if len(self._tokens) >= _REMEMBERED:
                self._tokens.clear()
            (sequence,) = self.codec.passages(self.corpus.passages([number]))
            self._tokens[number] = tuple(self._rescore_input.read(sequence, self.codec))
        return self._tokens[number]
