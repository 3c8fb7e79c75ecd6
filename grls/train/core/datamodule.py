"""Base of all LightningDataModules: batches of similar length, shards, resuming mid-epoch.

The base does not know what is learned: each stage reads its data and makes its examples.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from grls.data.codec import tokenizer_fingerprint
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels, read_split, splits_beside
from grls.data.types import Query
from grls.errors import ConfigError, DataError, MismatchError, Option
from grls.index.rows import Ints
from grls.io.progress import counted
from grls.train.core.examples import Examples
from grls.train.options import DataOptions, EncoderOptions

_PRINTS = "fingerprints"
"""Key of the data's fingerprints in a checkpoint."""
_BATCH = "examples a batch"
"""Key of the size of a batch in a checkpoint."""


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()


class FitData(L.LightningDataModule):
    """Examples of train and dev, in batches."""

    train_examples: Examples
    dev_examples: Examples
    collator: Any
    dev_collator: Any = None
    """Makes batches of dev; None: the collator of training."""
    trainer: Any
    """Lightning sets it before it calls any hook; None without one."""

    def __init__(self, options: DataOptions, seed: int = 0):
        super().__init__()
        self.options: Any = options
        self.seed = seed
        self.fingerprints: dict[str, str] = {}
        """Name -> fingerprint of what the run reads; a resumed run must find the same."""
        self._seen = (0, 0)
        self.sampler: LengthBucketedSampler | None = None

    def setup(self, stage: str) -> None:
        if not hasattr(self, "train_examples"):
            module = self.trainer.lightning_module
            self.read(module)
            self.fingerprints["the tokenizer"] = tokenizer_fingerprint(module.tokenizer)

    def read_split(self, option: str, split: str, corpus: Corpus) -> tuple[list[Query], Qrels]:
        """Queries and judgements of the split that an option names; a resumed run must find the same."""
        file = Path(self.options.data) / "qrels" / f"{split}.tsv"
        if not file.is_file() and (others := splits_beside(file)):
            raise DataError(f"no such file; there are {others}: give another {Option(option)}.", file)
        queries, qrels = read_split(self.options.data, split, corpus, known=True)
        self.fingerprints |= {
            "corpus.jsonl": corpus.fingerprint,
            f"queries.jsonl (split {split})": digest(queries),
            f"qrels/{split}.tsv": digest(qrels),
        }
        return queries, qrels

    def read(self, module: Any) -> None:
        """Set ``train_examples``, ``dev_examples`` and ``collator`` for the module that is trained."""
        raise NotImplementedError

    def write_beside(self, model: Path) -> None:
        """Write files into the folder of the trained model."""

    def train_dataloader(self) -> DataLoader[Any]:
        """Length-bucketed batches of this process; a resumed run starts where it stopped."""
        loader, self.sampler = self._loader(self.train_examples, True, self.collator)
        self.sampler.resume(*self._seen)
        self._seen = (0, 0)
        return loader

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.dev_examples, False, self.dev_collator or self.collator)[0]

    def state_dict(self) -> dict[str, Any]:
        """The progress of the run: epoch, and the number of its batches that are done.

        The epoch is computed from all batches of the run, since Lightning's count of epochs is one off
        between the hooks that write checkpoints.
        """
        loop = self.trainer.fit_loop
        epoch, batches = divmod(loop.epoch_loop.batch_progress.total.ready, loop.max_batches)
        sizes = {"epoch": epoch, "batches": batches, _BATCH: self.examples_a_batch}
        return {**sizes, _PRINTS: self.fingerprints}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, before in state_dict[_PRINTS].items():
            if self.fingerprints.get(name, before) != before:
                raise MismatchError(
                    f"{name} has changed since the run on {self.options.data} began: put it back as it "
                    f"was, or begin a new run in another {Option('output')}."
                )
        then = state_dict[_BATCH]
        if then != self.examples_a_batch:
            raise ConfigError(
                f"the checkpoint is of a run with {counted(then, 'example')} in a batch of all processes, "
                f"and now they are {self.examples_a_batch} ({self.trainer.world_size} processes), so its "
                f"place in the epoch is unknown: resume with {Option('data.global_batch_size', then)}, or "
                "begin a new run."
            )
        self._seen = (state_dict["epoch"], state_dict["batches"])
        if self.trainer.strategy.restore_checkpoint_after_setup and self.sampler is not None:  # it began
            self.sampler.resume(*self._seen)
            self._seen = (0, 0)

    @property
    def examples_a_batch(self) -> int:
        together = 1 if self.trainer is None else int(self.trainer.world_size)
        return int(self.options.global_batch_size or self.options.batch_size * together)

    def dev_copies(self, batch: int) -> int:
        """How often each example of a dev batch is there."""
        ranks = int(self.trainer.world_size)
        return copies_of_examples(len(self.dev_examples), self.examples_a_batch, batch, ranks)

    def _loader(
        self, examples: Examples, shuffle: bool, collator: Any
    ) -> tuple[DataLoader[Any], LengthBucketedSampler]:
        sampler = LengthBucketedSampler(
            np.asarray(examples.lengths()), self.examples_a_batch, self.seed, shuffle,
            self.trainer.global_rank, self.trainer.world_size, self.options.length_pool,
            getattr(examples, "lengths_in", None),
        )  # fmt: skip
        loader: DataLoader[Any] = DataLoader(
            DrawnExamples(examples),
            batch_sampler=sampler,
            collate_fn=collator,
            num_workers=self.options.workers,
            # Python 3.14 would pickle what makes batches, retrievers included, as macOS and Windows do.
            multiprocessing_context="fork" if self.options.workers and sys.platform == "linux" else None,
        )
        return loader, sampler


class EncoderData(FitData):
    """The examples of an encoder, which are set before its training begins."""

    def __init__(self, data: str, options: EncoderOptions, length_pool: int = 1):
        sizes: dict[str, Any] = {"global_batch_size": options.batch_size, "length_pool": length_pool}
        super().__init__(DataOptions(data=data, **sizes), options.seed)


Draw = tuple[int, int]
"""Example number, epoch."""


class DrawnExamples(Dataset[Any]):
    """Examples as a torch data set; an item is indexed by (number, epoch)."""

    def __init__(self, examples: Examples):
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, draw: Draw) -> Any:
        return self.examples.draw(*draw)


def copies_of_examples(examples: int, batch_size: int, batch: int, ranks: int) -> int:
    """How often each example of a batch in file order is there: once, or by each rank that has no share."""
    size = min(batch_size, examples - batch * batch_size)
    return max(1, 1 + ranks - size)


@dataclass(eq=False)
class LengthBucketedSampler(Sampler[list[Draw]]):
    """Batches of similar length in random order, sharded over ranks.

    The order of an epoch is a function of (seed, epoch) alone, so a resumed run only skips what it has
    seen. Each rank gets a share of each batch. A rank for which a last batch is too small takes the whole
    batch, as all ranks without a share do, so that the mean over the examples of all ranks stays the
    same.

    Args:
        lengths: The length of each example.
        batch_size: Examples of a batch, of all ranks together.
        shuffle: Draw a new order each epoch; otherwise every pass is epoch 0, in file order.
        pool: Batches that are sorted by length together; 1 mixes all lengths.
        lengths_in: Gives the lengths in an epoch, where they vary from epoch to epoch.
    """

    lengths: Sequence[int] | Ints
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    rank: int = 0
    ranks: int = 1
    pool: int = 50
    lengths_in: Callable[[int], Sequence[int]] | None = None
    epoch: int = field(default=0, init=False)
    skip: int = field(default=0, init=False)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def resume(self, epoch: int, batches: int) -> None:
        self.epoch, self.skip = epoch, batches

    def __iter__(self) -> Iterator[list[Draw]]:
        # The epoch is counted before the loop: Lightning asks for no batch after the last one of an epoch, so
        # code after the loop would never run.
        epoch, skip = self.epoch, self.skip
        self.epoch, self.skip = epoch + self.shuffle, 0
        rng = np.random.default_rng([self.seed, epoch])
        count, step = len(self.lengths), self.batch_size
        batches: Sequence[Sequence[int]] = [range(count)[i : i + step] for i in range(0, count, step)]
        if self.shuffle:
            order, pooled = rng.permutation(count), []
            lengths = np.asarray(self.lengths if self.lengths_in is None else self.lengths_in(epoch))
            for start in range(0, count, step * self.pool):
                pool = order[start : start + step * self.pool]
                pool = pool[np.argsort(lengths[pool], kind="stable")]
                pooled += [pool[i : i + step].tolist() for i in range(0, len(pool), step)]
            batches = [pooled[i] for i in rng.permutation(len(pooled))]
        for batch in batches[skip:]:  # each is for all ranks together
            own = batch[self.rank :: self.ranks] if self.rank < len(batch) else batch
            yield [(n, epoch) for n in own]
