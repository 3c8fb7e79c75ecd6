"""LightningDataModules of the two stages.

They read a data set folder, take the tokenizer from the LightningModule they feed, and hold the constraint
index where the loss asks for it. ``dev_inputs`` is what the validation callback retrieves.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import lightning as L
from torch.utils.data import DataLoader

from grls.corpus import Corpus
from grls.dataset import Qrels, gold_passages, read_split
from grls.errors import ConfigError, DataError
from grls.index import ConstraintIndex, build_index
from grls.models.generator import start_token
from grls.text import Codec, Limits
from grls.train.batching import DrawnExamples, LengthBucketedSampler
from grls.train.collate import Collator
from grls.train.examples import Example, Examples, MemoriseExamples, RetrieveExamples
from grls.types import Query


class DevInput(NamedTuple):
    """One input of the dev retrieval.

    Attributes:
        source: Model input, token ids.
        gold: Ids of the passages to be found.
    """

    source: list[int]
    gold: frozenset[str]


class StageData(L.LightningDataModule):
    """What both stages share.

    Args:
        data: Data set folder in BEIR's layout.
        batch_size: Examples a batch and process.
        dev_size: Most dev inputs (memorise: passages; retrieve: queries) that are retrieved.
        max_passage_tokens: Passages are cut to this length.
        max_query_tokens: Longer queries are refused, or cut with ``truncate_queries``.
        max_input_tokens: Length limit of a whole model input.
        truncate_queries: Cut queries that are too long.
        length_pool: Batches that are sorted by length together; 1 mixes all lengths in a batch (more padding,
            less alike examples).
        workers: Processes that prepare batches; 0 prepares them in the training process.
        seed: Of the order of examples and of what is drawn for each epoch.
    """

    def __init__(
        self,
        data: str,
        batch_size: int = 100,
        dev_size: int = 200,
        max_passage_tokens: int = 512,
        max_query_tokens: int = 256,
        max_input_tokens: int = 512,
        truncate_queries: bool = False,
        length_pool: int = 50,
        workers: int = 0,
        seed: int = 0,
    ):
        super().__init__()
        self.data = data
        self.batch_size = batch_size
        self.dev_size = dev_size
        self.limits = Limits(max_passage_tokens, max_query_tokens, max_input_tokens)
        self.truncate_queries = truncate_queries
        self.length_pool = length_pool
        self.workers = workers
        self.seed = seed
        self._seen = (0, 0)
        self._ready = False

    @property
    def _trainer(self) -> Any:
        """The trainer, which Lightning sets before it calls anything here."""
        return self.trainer

    def setup(self, stage: str) -> None:
        """Read the data set and make the examples of train and dev."""
        if self._ready:
            return
        # Not in the constructor: jsonargparse would bury our error in one of its own.
        for name in ("batch_size", "dev_size", "length_pool"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        module: Any = self._trainer.lightning_module
        self.codec = Codec(module.tokenizer, self.limits)
        self.corpus = Corpus.read(self.data)
        self.index: ConstraintIndex = build_index(self.corpus, self.codec)
        self.check(module.loss)
        self.train_examples, self.dev_examples = self.examples()
        self.collator = Collator(
            pad_token=int(module.tokenizer.pad_token_id),
            start_token=start_token(module.model),
            index=self.index if module.loss == "allowed" else None,
        )
        self._ready = True

    def check(self, loss: str) -> None:
        """Refuse options that do not fit the loss."""

    @abstractmethod
    def examples(self) -> tuple[Examples, Examples]:
        """The examples of train and dev."""

    @abstractmethod
    def dev_inputs(self) -> list[DevInput]:
        """What the validation callback retrieves, single-step; nothing where the stage has no passages."""

    def dev_queries(self) -> tuple[list[Query], Qrels]:
        """What the validation callback retrieves hop by hop.

        Raises:
            ConfigError: The stage has no queries.
        """
        raise ConfigError(f"{type(self).__name__} has no dev queries: measure single-step recall instead.")

    def train_dataloader(self) -> DataLoader[Example]:
        """Length-bucketed batches of this process, from where a resumed run stopped."""
        self.sampler = self._sampler(self.train_examples, shuffle=True)
        self.sampler.resume(*self._seen)
        self._seen = (0, 0)
        return self._loader(self.train_examples, self.sampler)

    def val_dataloader(self) -> DataLoader[Example]:
        """Dev examples in file order."""
        return self._loader(self.dev_examples, self._sampler(self.dev_examples, shuffle=False))

    def state_dict(self) -> dict[str, int]:
        """How far the run has come: epoch, and batches of it that are done.

        Counted from all batches of the run, since Lightning's count of epochs is one off between the hooks
        that write checkpoints.
        """
        loop = self._trainer.fit_loop
        epoch, batches = divmod(loop.epoch_loop.batch_progress.total.ready, loop.max_batches)
        return {"epoch": epoch, "batches": batches}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on where a checkpoint was written."""
        self._seen = (state_dict["epoch"], state_dict["batches"])

    def _sampler(self, examples: Examples, shuffle: bool) -> LengthBucketedSampler:
        trainer = self._trainer
        return LengthBucketedSampler(
            examples.lengths(),
            self.batch_size,
            self.seed,
            shuffle,
            trainer.global_rank,
            trainer.world_size,
            self.length_pool,
        )

    def _loader(self, examples: Examples, sampler: LengthBucketedSampler) -> DataLoader[Example]:
        return DataLoader(
            DrawnExamples(examples),
            batch_sampler=sampler,
            collate_fn=self.collator,
            num_workers=self.workers,
            persistent_workers=False,
        )


class MemoriseData(StageData):
    """Stage one: front of a passage -> passage. Dev is a sample of the corpus: memory is the aim.

    Args:
        data: Data set folder in BEIR's layout.
        front: Share of a passage's tokens that the encoder sees.
        unit: ``text``, or ``path`` for ``subject; relation; object`` (the front is subject and relation).
        target: ``whole``: the decoder writes the whole passage; ``rest``: what the front lacks.
        kwargs: The options of :class:`StageData`.
    """

    def __init__(
        self,
        data: str,
        front: float = 0.7,
        unit: Literal["text", "path"] = "text",
        target: Literal["whole", "rest"] = "whole",
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.front = front
        self.unit: Literal["text", "path"] = unit
        self.target: Literal["whole", "rest"] = target

    def check(self, loss: str) -> None:  # noqa: D102
        if loss == "allowed" and self.target == "rest":
            raise ConfigError(
                "loss `allowed` needs target `whole`: the rest of a passage is no path of the index. Choose "
                "target `whole` or loss `full`."
            )

    def examples(self) -> tuple[Examples, Examples]:  # noqa: D102
        every = MemoriseExamples(self.corpus, self.codec, self.front, self.unit, self.target)
        self._sample = random.Random(self.seed).sample(range(len(every)), min(self.dev_size, len(every)))
        return every, Chosen(every, self._sample)

    def dev_inputs(self) -> list[DevInput]:
        """Fronts of the sampled passages; each is to find its passage.

        Under target ``rest`` the model does not write whole passages, so nothing can be retrieved.
        """
        if self.target == "rest":
            return []
        every = self.dev_examples
        ids = self.corpus.ids(self._sample)
        return [DevInput(every.draw(n, 0).source, frozenset([passage])) for n, passage in enumerate(ids)]


class RetrieveData(StageData):
    """Stage two: query and evidence so far -> next passage, then DONE.

    Args:
        data: Data set folder in BEIR's layout.
        train_split: Split to train on.
        dev_split: Split to measure on.
        multistep: Learn hop by hop; otherwise every gold passage from the query alone.
        done: Learn DONE after the last hop.
        shuffle: Draw the order of the evidence anew each epoch.
        kwargs: The options of :class:`StageData`.
    """

    def __init__(
        self,
        data: str,
        train_split: str = "train",
        dev_split: str = "dev",
        multistep: bool = True,
        done: bool = True,
        shuffle: bool = False,
        **kwargs: Any,
    ):
        super().__init__(data, **kwargs)
        self.train_split = train_split
        self.dev_split = dev_split
        self.multistep = multistep
        self.done = done
        self.shuffle = shuffle

    def examples(self) -> tuple[Examples, Examples]:  # noqa: D102
        train = read_split(self.data, self.train_split, self.corpus)
        dev = read_split(self.data, self.dev_split, self.corpus)
        for split, (queries, _) in ((self.train_split, train), (self.dev_split, dev)):
            if not queries:
                raise DataError(
                    "the split has no query: nothing to train or to measure on. Add qrels, or choose another "
                    "split (--data.train_split, --data.dev_split).",
                    f"{self.data}/qrels/{split}.tsv",
                )
        self._dev = dev[0][: self.dev_size], dev[1]
        return self._retrieve_examples(*train), self._retrieve_examples(*self._dev)

    def _retrieve_examples(self, queries: Sequence[Query], qrels: Qrels) -> RetrieveExamples:
        return RetrieveExamples(
            queries,
            qrels,
            self.corpus,
            self.codec,
            multistep=self.multistep,
            done=self.done,
            shuffle=self.shuffle,
            truncate=self.truncate_queries,
            seed=self.seed,
        )

    def dev_inputs(self) -> list[DevInput]:
        """The dev queries; each is to find its gold passages."""
        queries, qrels = self._dev
        texts = self.codec.queries([q.id for q in queries], [q.text for q in queries], self.truncate_queries)
        return [
            DevInput(self.codec.model_input(tokens), frozenset(gold_passages(query, qrels)))
            for query, tokens in zip(queries, texts, strict=True)
        ]

    def dev_queries(self) -> tuple[list[Query], Qrels]:  # noqa: D102
        return self._dev


class Chosen:
    """Some examples of a collection.

    Args:
        examples: The collection.
        numbers: Which of them.
    """

    def __init__(self, examples: Examples, numbers: Sequence[int]):
        self.all = examples
        self.numbers = list(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def draw(self, number: int, epoch: int) -> Example:  # noqa: D102
        return self.all.draw(self.numbers[number], epoch)

    def lengths(self) -> Sequence[int]:  # noqa: D102
        lengths = self.all.lengths()
        return [lengths[n] for n in self.numbers]
