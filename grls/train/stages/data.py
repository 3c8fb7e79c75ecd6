"""LightningDataModules of the two stages. They hold the constraint index."""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from grls.data.codec import LIMITS, Codec, Limits
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, gold_passages, read_queries
from grls.data.spans import SPANS, Spans
from grls.data.types import Query
from grls.errors import ConfigError, DataError, Option, at_least
from grls.index import ConstraintIndex, build_index
from grls.index.rows import Ints
from grls.models.head import RescoreInput
from grls.models.load.kinds import is_causal
from grls.models.seq2seq.slots import start_token
from grls.train.chains.module import RetrieveChains
from grls.train.chains.prior import OpenPriors
from grls.train.core.collate import Collator
from grls.train.core.datamodule import FitData
from grls.train.core.examples import Example, Examples
from grls.train.stages.examples import USUAL_INPUT, MemoriseExamples, PassageInput, RetrieveExamples

Shares = float | tuple[float, float]
"""A share of each epoch, or the shares of the first and the last epoch, linear between them."""


@dataclass(frozen=True)
class Mix:
    """Examples that are mixed into fine-tuning.

    Args:
        pseudo: File of pseudo-queries, written by ``grls prepare pseudo-queries``; null mixes none in.
        pseudo_share: Share of pseudo-queries among the examples of an epoch (0 to 1), or the shares of the
            first and the last epoch.
        memorise: The model input for passages that are memorised along; null mixes none in.
        memorise_share: Share of passages to memorise among the examples of an epoch (0 to 1).
        size: Examples an epoch; null: as many as without a mix.
        epochs: Number of epochs over which shares change from first to last; null: all epochs of the run.
    """

    pseudo: str | None = None
    pseudo_share: Shares = 0.5
    memorise: PassageInput | None = None
    memorise_share: float = 0.2
    size: int | None = None
    epochs: int | None = None


def share_at(shares: Shares, progress: float) -> float:
    """The share at a point between 0, the first epoch, and 1, the last one."""
    first, last = shares if isinstance(shares, tuple) else (shares, shares)
    return first + (last - first) * progress


class Mixture:
    """The examples of a stage with other examples mixed in, so that the model forgets less.

    Each kind of example is an endless stream: all of its examples in a random order, then all again in
    another one. An epoch takes its share from each stream, from where the epoch before stopped. So no
    example comes twice before all have come once, and an epoch is a function of (seed, epoch) alone.

    Args:
        main: The examples of the stage; they get the share that the parts leave.
        parts: Other examples with their share.
        epochs: Number of epochs over which shares change from first to last; later epochs keep the last.
        size: Examples an epoch; None: as many as ``main`` has.
    """

    def __init__(
        self,
        main: Examples,
        parts: Sequence[tuple[Examples, Shares]],
        epochs: int = 1,
        size: int | None = None,
        seed: int = 0,
    ):
        self.size = len(main) if size is None else size
        at_least(1, "data.mix.", size=self.size, epochs=epochs)
        for progress in (0, 1):
            now = [share_at(shares, progress) for _, shares in parts]
            if min(now, default=0) < 0 or sum(now) > 1 + 1e-9:
                raise ConfigError(f"expected shares of a mix from 0 to 1, together at most 1, got {now}.")
        self.shares = [shares for _, shares in parts]
        self.members: list[Examples] = [main, *(examples for examples, _ in parts)]
        if not all(map(len, self.members)):
            raise ConfigError("a part of the mix has no example; leave it out.")
        self.epochs = epochs
        self.seed = seed
        self._orders: dict[tuple[int, int], Ints] = {}
        self._starts = [np.zeros(len(self.members), dtype=np.int64)]
        self._lengths = [np.asarray(member.lengths()) for member in self.members]

    def __len__(self) -> int:
        return self.size

    def counts(self, epoch: int) -> list[int]:
        """Number of examples of each kind in an epoch, ``main`` first."""
        progress = min(epoch / (self.epochs - 1), 1) if self.epochs > 1 else 0
        sums = np.cumsum([0, *(share_at(shares, progress) for shares in self.shares)])
        ends = np.minimum(np.round(sums * self.size), self.size).astype(int)
        return [self.size - int(ends[-1]), *np.diff(ends).tolist()]

    def draw(self, number: int, epoch: int) -> Example:
        ends = np.cumsum(self.counts(epoch))
        member = int(np.searchsorted(ends, number, side="right"))
        position = number - (int(ends[member - 1]) if member else 0) + int(self._start(epoch)[member])
        turn, row = divmod(position, len(self.members[member]))
        return self.members[member].draw(int(self._order(member, turn)[row]), turn)

    def lengths(self) -> Sequence[int]:
        return self.lengths_in(0)

    def lengths_in(self, epoch: int) -> Sequence[int]:
        lengths: list[int] = []
        for member, count in enumerate(self.counts(epoch)):
            turns, rows = np.divmod(np.arange(count) + self._start(epoch)[member], len(self.members[member]))
            for turn in np.unique(turns).tolist():
                order = self._order(member, turn)
                lengths += self._lengths[member][order[rows[turns == turn]]].tolist()
        return lengths

    def _start(self, epoch: int) -> Ints:
        """Number of examples that earlier epochs took from each stream."""
        while len(self._starts) <= epoch:
            self._starts.append(self._starts[-1] + np.array(self.counts(len(self._starts) - 1)))
        return self._starts[epoch]

    def _order(self, member: int, turn: int) -> Ints:
        if (member, turn) not in self._orders:
            if len(self._orders) >= 8 * len(self.members):
                self._orders.clear()
            rng = np.random.default_rng([self.seed, member, turn])
            self._orders[member, turn] = rng.permutation(len(self.members[member]))
        return self._orders[member, turn]


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


_NOTHING = Mix()


class DevInput(NamedTuple):
    """One input of the dev retrieval (token ids), with the ids of its gold passages.

    ``query`` is for priors. ``evidence``: numbers of passages in order, which are not retrieved again.
    """

    source: list[int]
    gold: frozenset[str]
    query: Query | None = None
    evidence: tuple[int, ...] = ()


class StageData(FitData):
    """Shared parts of both stages of a generator.

    Args:
        data: Data set folder in BEIR's layout.
        max_passage_tokens: Longest passage in tokens; longer passages are cut.
        max_query_tokens: Longest query in tokens; longer queries are refused, or cut with
            ``truncate_queries``.
        max_input_tokens: Longest model input in tokens: query and evidence together.
        truncate_queries: Cut queries that are too long; false refuses them.
        evidence_words: Largest number of words of each evidence passage in a model input: its first sentence
            and the sentences nearest to the question. 0: the whole passage.
        kwargs: The options of :class:`grls.train.core.datamodule.FitData`; ``dev_size`` counts passages
            (memorise) or queries (retrieve).

    Attributes:
        priors: The priors beside which the generator is decoded; None: it is decoded alone.
        spans: The spans that it writes; None: it writes passages from their beginning.
        rescore_input: How it reads passages for rescoring; None: it does not learn to rescore.
    """

    priors: OpenPriors | None = None
    spans: Spans | None = None
    rescore_input: RescoreInput | None = None

    def __init__(
        self,
        data: str,
        max_passage_tokens: int = 512,
        max_query_tokens: int = 256,
        max_input_tokens: int = 512,
        truncate_queries: bool = False,
        evidence_words: int = 0,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.limits = Limits(max_passage_tokens, max_query_tokens, max_input_tokens, evidence_words)
        self.truncate_queries = truncate_queries

    def read(self, module: Any) -> None:
        self.codec = Codec(module.tokenizer, self.limits, is_causal(module.model))
        self.corpus = Corpus.read(self.data)
        self.spans = self.make_spans()
        self._prints["corpus.jsonl"] = self.corpus.fingerprint
        self.index: ConstraintIndex = build_index(self.spans or self.corpus, self.codec)
        self.train_examples, self.dev_examples = self.examples()
        self.collator = self.collate(module)

    def collate(self, module: Any) -> Any:
        if isinstance(module, RetrieveChains):
            raise ConfigError(
                f"RetrieveChains does not train on {type(self).__name__}: set {Option('data')} "
                "grls.train.chains.data.ChainData."
            )
        if self.codec.causal:
            raise ConfigError(
                f"{type(self).__name__} is for sequence-to-sequence models; train a causal one with "
                "grls.train.chains.data.ChainData."
            )
        return Collator(
            pad_token=int(module.tokenizer.pad_token_id),
            start_token=start_token(module.model),
            index=self.index if module.loss == "allowed" else None,
        )

    def make_spans(self) -> Spans | None:
        """The spans that the generator writes; None: it writes whole passages."""
        return None

    def beside_model(self) -> dict[str, Any]:
        """The length limits and the options of spans, which ``grls index`` reads."""
        files: dict[str, Any] = {LIMITS: self.limits.record()}
        return files if self.spans is None else {**files, SPANS: self.spans.record}

    @abstractmethod
    def examples(self) -> tuple[Examples, Examples]:
        """The examples of train and dev."""

    @abstractmethod
    def dev_inputs(self) -> list[DevInput]:
        """The inputs of single-step retrieval on dev; empty where the stage writes no whole passages."""

    def dev_queries(self) -> tuple[list[Query], Qrels]:
        raise ConfigError(f"{type(self).__name__} has no dev queries: measure single-step recall instead.")


class MemoriseData(StageData):
    """Stage one: front of a passage, or another input made from it -> passage.

    Dev is a sample of the training passages, since the aim is to memorise them.

    Args:
        data: Data set folder in BEIR's layout.
        front: Share of a passage's tokens in its front (0 to 1).
        unit: ``text``: the front is a share of the tokens; ``path``: passages are
            ``subject; relation; object``, and the front is subject and relation.
        target: ``whole``: the decoder writes the whole passage; ``rest``: it writes the passage without the
            front.
        reading: The model input of a passage: its front, or all of it.
        kwargs: The options of :class:`StageData`.
    """

    def __init__(
        self,
        data: str,
        front: float = 0.7,
        unit: Literal["text", "path"] = "text",
        target: Literal["whole", "rest"] = "whole",
        reading: PassageInput = USUAL_INPUT,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.reading = reading
        self.front = front
        self.unit: Literal["text", "path"] = unit
        self.target: Literal["whole", "rest"] = target

    def read(self, module: Any) -> None:
        if module.loss == "allowed" and self.target == "rest":
            raise ConfigError(
                "loss `allowed` needs target `whole`, since the index has no paths of partial passages. "
                "Choose target `whole` or loss `full`."
            )
        super().read(module)

    def examples(self) -> tuple[Examples, Examples]:
        examples = MemoriseExamples(self.corpus, self.codec, self.front, self.unit, self.target, self.reading)
        self._sample = random.Random(self.seed).sample(
            range(len(examples)), min(self.dev_size, len(examples))
        )
        return examples, Chosen(examples, self._sample)

    def dev_inputs(self) -> list[DevInput]:
        """The model inputs of the sampled passages, each its own gold passage.

        Empty under target ``rest``: the model does not write whole passages, so it cannot retrieve them.
        """
        if self.target == "rest":
            return []
        examples = self.dev_examples
        ids = self.corpus.ids(self._sample)
        return [DevInput(examples.draw(n, 0).source, frozenset([passage])) for n, passage in enumerate(ids)]


class RetrieveData(StageData):
    """Stage two: query and evidence so far -> next passage, then DONE.

    Args:
        data: Data set folder in BEIR's layout.
        train_split: Split of the training queries.
        dev_split: Split of the dev queries.
        multistep: Learn hop by hop; false: learn every gold passage from the query alone; null: hop by hop
            if a training query has several gold passages.
        done: Learn DONE after the last hop (multi-step only).
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        mix: Examples that are mixed in: pseudo-queries, passages to memorise.
        by_hop: Measure dev recall at every hop, with the gold passages before it as evidence, which is not
            retrieved again (if hops are learned); false: from the query alone.
        kwargs: The options of :class:`StageData`.
    """

    kind: Any = RetrieveExamples
    """The class of the examples of queries."""

    def __init__(
        self,
        data: str,
        train_split: str = "train",
        dev_split: str = "dev",
        multistep: bool | None = True,
        done: bool = True,
        shuffle: bool = False,
        mix: Mix = _NOTHING,
        by_hop: bool = False,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.mix = mix
        self.train_split = train_split
        self.dev_split = dev_split
        self.multistep = multistep
        self.by_hop = by_hop
        self.done = done
        self.shuffle = shuffle

    def examples(self) -> tuple[Examples, Examples]:
        train = self.read_split(self.train_split, self.corpus)
        if self.multistep is None:
            self.multistep = any(len(gold_passages(query, train[1])) > 1 for query in train[0])
        dev = self.read_split(self.dev_split, self.corpus)
        self._dev = dev[0][: self.dev_size], dev[1]
        return self._mixed(self._retrieve_examples(*train)), self._retrieve_examples(*self._dev)

    def _mixed(self, main: Examples) -> Examples:
        mix, parts = self.mix, list[tuple[Examples, Shares]]()
        if mix.pseudo is not None:
            queries = read_queries(mix.pseudo)
            without = next((query.id for query in queries if not query.evidence), None)
            if without is not None:
                raise DataError(f"the pseudo-query {without!r} has no evidence to learn.", mix.pseudo)
            # No DONE: a pseudo-query was written from its evidence, which need not be all that answers it.
            options = {"done": False, "shuffle": False, "seed": f"pseudo-{self.seed}"}
            parts.append((self._retrieve_examples(queries, {}, **options), mix.pseudo_share))
        if mix.memorise is not None:
            parts.append((self._memorise_examples(mix.memorise), mix.memorise_share))
        if not parts:
            return main
        epochs = mix.epochs or planned_epochs(self.trainer, mix.size or len(main), self.examples_a_batch)
        if epochs is None and any(share_at(shares, 0) != share_at(shares, 1) for _, shares in parts):
            raise ConfigError(
                f"shares that change need the number of epochs: set {Option('data.mix.epochs')}, "
                f"{Option('trainer.max_epochs')} or {Option('trainer.max_steps')}."
            )
        return Mixture(main, parts, epochs or 1, mix.size, self.seed)

    def other_files(self) -> list[str]:
        return [] if self.mix.pseudo is None else [self.mix.pseudo]

    def _memorise_examples(self, reading: PassageInput) -> Any:
        return MemoriseExamples(self.corpus, self.codec, reading=reading)

    def _retrieve_examples(self, queries: Sequence[Query], qrels: Qrels, **changed: Any) -> Any:
        options = {
            "multistep": self.multistep, "done": self.done, "shuffle": self.shuffle,
            "truncate": self.truncate_queries, "seed": self.seed, **changed,
        }  # fmt: skip
        return self.kind(queries, qrels, self.corpus, self.codec, **options)

    def dev_inputs(self) -> list[DevInput]:
        """The dev queries, or all of their hops, with the gold passages that are left."""
        queries, qrels = self._dev
        texts = self.codec.queries([q.id for q in queries], [q.text for q in queries], self.truncate_queries)
        inputs = []
        for query, tokens in zip(queries, texts, strict=True):
            gold = gold_passages(query, qrels)
            for hop in range(len(gold) if self.by_hop and self.multistep else 1):
                numbers = self.corpus.numbers(gold[:hop])
                evidence = tuple(number for number in numbers if number is not None)
                excerpts = self.codec.excerpts(query.text, self.corpus.passages(evidence))
                source = self.codec.model_input(tokens, excerpts)
                inputs.append(DevInput(source, frozenset(gold[hop:]), query, evidence))
        return inputs

    def dev_queries(self) -> tuple[list[Query], Qrels]:
        return self._dev


@dataclass(frozen=True)
class Chosen:
    all: Examples
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def draw(self, number: int, epoch: int) -> Example:
        return self.all.draw(self.numbers[number], epoch)

    def lengths(self) -> Sequence[int]:
        lengths = self.all.lengths()
        return [lengths[n] for n in self.numbers]
