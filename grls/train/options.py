"""The options of ``grls train``: of the stages of a generator, of a bi-encoder and of a reranker.

A training is a class of options. Those of the shell, of YAML and of Python have these names. This module
imports neither torch nor Lightning, so that ``--help`` is quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from grls.answer.riches.options import KeyKind, Thoughts
from grls.data.types import ScoreMode
from grls.decode.interleave.options import Beam
from grls.errors import ConfigError, Option
from grls.io.arguments import (
    Count,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveShare,
    Share,
    options,
)
from grls.io.recipes import recipe_values
from grls.models.load.base_models import BaseModel
from grls.models.load.generators import GeneratorSpec
from grls.models.load.opening import language_source, open_config
from grls.models.option_names import Device, Kind, Similarity, TrainerPrecision
from grls.train.doc2query.options import PassagesRead

Loss = Literal["full", "allowed"]
Shares = float | tuple[float, float]
"""A share of each epoch, or the shares of the first and the last epoch, linear between them."""
_Front = Annotated[float, "(0, 1)"]


@options("trainer")
class TrainerOptions:
    """Options of Lightning's trainer.

    Args:
        max_epochs: Passes over the examples; -1: no limit; null: 1,000, or no limit beside ``max_steps``.
        max_steps: Largest number of optimizer steps; -1: no limit.
        precision: ``auto`` is ``bf16-mixed`` where the processor has instructions for it, else ``32-true``;
            null: ``32-true``.
        accelerator: ``cpu``, ``cuda``, …; ``auto`` takes a GPU if there is one.
        devices: Number of processes on this machine, each with a device; ``auto``: all GPUs, or one process.
        num_nodes: Number of machines.
        strategy: Of several processes: ``auto``, ``ddp`` (all weights in each), ``fsdp`` (weights, gradients
            and states of the optimizer in shards) or ``fsdp_cpu_offload`` (the shards in main memory).
        accumulate_grad_batches: Batches whose gradients are added up for one step.
        gradient_clip_val: Largest norm of the gradient; larger ones are scaled down to it; null: no limit.
        limit_train_batches: Batches of an epoch, as a number or (0.5) a share; null: all.
        check_val_every_n_epoch: Epochs from one measurement on dev to the next; null: count batches alone.
        val_check_interval: Batches from one measurement on dev to the next, or a share of an epoch.
        log_every_n_steps: Steps between two logged losses.
        callbacks: Callbacks of Lightning, or of yours (``module.Class``): class -> its arguments, such as
            {EMAWeightAveraging: {decay: 0.99}}.
        more: Further arguments of Lightning's trainer, such as {max_time: "00:08:00:00"}.
    """

    max_epochs: int | None = None
    max_steps: int = -1
    precision: TrainerPrecision | None = None
    accelerator: str = "auto"
    devices: int | str = "auto"
    num_nodes: Count = 1
    strategy: str = "auto"
    accumulate_grad_batches: Count = 1
    gradient_clip_val: float | None = None
    limit_train_batches: int | float | None = None
    check_val_every_n_epoch: Count | None = 1
    val_check_interval: int | float | None = None
    log_every_n_steps: Count = 50
    callbacks: dict[str, dict[str, Any]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.more:
            if name in vars(self):
                raise ConfigError(f"{Option('trainer.more')}: {name} is {Option(f'trainer.{name}')}.")
            if name in ("plugins", "default_root_dir"):
                raise ConfigError(f"{Option('trainer.more')}: {name} is set by grls: leave it out.")


@options("checkpoint")
class CheckpointOptions:
    """Options of the checkpoint whose weights are the trained model.

    Args:
        monitor: Measure on dev that chooses it, such as ``dev_recall``, ``dev_f1`` or ``dev_loss``; of equal
            values that with the lower ``dev_loss``. The lowest loss or ``dev_unclosed`` is best, of other
            measures the highest value. null: the model is that of the last step.
    """

    monitor: str | None = "dev_recall"

    @property
    def mode(self) -> str:
        """Whether the lowest (``min``) or the highest (``max``) value is best."""
        return "min" if str(self.monitor).endswith(("loss", "unclosed")) else "max"


@options("last")
class LastOptions:
    """Options of the checkpoint to resume from, ``checkpoints/last.ckpt``.

    Args:
        every_n_train_steps: Write it every so many steps; null: at the end of every epoch.
    """

    every_n_train_steps: int | None = None


@options("model", kw_only=True)
class ModelOptions:
    """Options of the model and its optimizer.

    Args:
        generator: The model to start from: Pretrained, ScratchT5, WarmStart, PretrainedLM or CausalLM (a
            class of grls.models.load.generators), and its options.
        closing_markers: Give the model the markers ``</QUESTION>``, ``</EVIDENCE>`` and ``</TITLE>``, so that
            query, evidence and titles end with one, as in the paper (appendix A.3). A model that has them
            keeps them. They are part of its tokenizer, which is saved with it.
        optimizer: ``adafactor`` with a fixed learning rate, as in the paper, or ``adamw``.
        learning_rate: Peak learning rate.
        schedule: Learning rate after the warm-up: ``constant``, or ``linear`` decay to zero.
        warmup: Share of all steps in which the learning rate rises (0 to 1).
        loss: Cross-entropy over the vocabulary (``full``), or over the tokens that the constraint index
            allows (``allowed``).
        gradient_checkpointing: Recompute activations in the backward pass: less memory, more time.
        freeze_encoder: Do not train the encoder and the weights that it shares (T5: the word embeddings).
        freeze_embeddings: Do not train the word embeddings and an output head that is tied to them; null:
            frozen in causal models, whose vocabulary is large, unless identifiers add rows to it.
        lora_rank: Rank of low-rank adapters beside every linear layer but the head. Only the adapters are
            trained, and merged into the saved model. 0: no adapters, all weights are trained.
    """

    generator: GeneratorSpec
    closing_markers: bool = False
    optimizer: Literal["adafactor", "adamw"] = "adafactor"
    learning_rate: PositiveFloat = 1e-4
    schedule: Literal["constant", "linear"] = "linear"
    warmup: Share = 0.1
    loss: Loss = "full"
    gradient_checkpointing: bool = False
    freeze_encoder: bool = False
    freeze_embeddings: bool | None = None
    lora_rank: NonNegativeInt = 0


@options("model", kw_only=True)
class MemoriseModelOptions(ModelOptions):
    """Options of the model and its optimizer. Defaults of the paper: Adafactor, constant 1e-5."""

    learning_rate: PositiveFloat = 1e-5
    schedule: Literal["constant", "linear"] = "constant"
    warmup: Share = 0.0


@options("model.ranking")
class Ranking:
    """A loss over candidates (``data.candidates``), :mod:`grls.train.generator.loss`.

    The log-probability of a candidate is taken as ``model.loss`` says.

    Args:
        loss: ``dpo`` (pairs of a right and a wrong candidate, against the model before the first step),
            ``kto`` (each candidate alone, against that model), ``margin`` (pairs, by a hinge) or ``listwise``
            (cross-entropy over all candidates of a hop).
        beta: How strongly ``dpo`` and ``kto`` keep to the model before the first step.
        margin: By how much a right candidate is to be likelier than a wrong one (nats), of ``margin``.
        right_weight: Weight of right candidates in ``kto``, lambda_D of its paper; that of wrong ones is 1.
        cross_entropy: Weight of the cross-entropy that is added. With 0, hops without a wrong candidate are
            not learned.
    """

    loss: Literal["dpo", "kto", "margin", "listwise"]
    beta: PositiveFloat = 0.1
    margin: PositiveFloat = 1.0
    right_weight: PositiveFloat = 1.0
    cross_entropy: NonNegativeFloat = 1.0


@options("model", kw_only=True)
class RetrieveModelOptions(ModelOptions):
    """Options of the model and its optimizer. Defaults of the paper: Adafactor, 1e-4, 10 % warm-up.

    Args:
        ranking: Loss over the candidates of ``data.candidates``; null: cross-entropy alone.
        rescore_weight: Weight of the loss of rescoring (``data.rescore``).
        freeze_layers: Number of first layers of a causal model that are not trained, with their adapters.
            Together with frozen embeddings it saves time and memory: these layers need no backward pass.
    """

    ranking: Ranking | None = None
    rescore_weight: NonNegativeFloat = 1.0
    freeze_layers: NonNegativeInt = 0


@options("model", kw_only=True)
class ChainModelOptions(RetrieveModelOptions):
    """Options of the model and its optimizer."""

    optimizer: Literal["adafactor", "adamw"] = "adamw"
    loss: Loss = "allowed"


@options("model", kw_only=True)
class WriterModelOptions(ModelOptions):
    """Options of the model and its optimizer."""

    optimizer: Literal["adafactor", "adamw"] = "adamw"
    freeze_embeddings: bool | None = False


@options("data", kw_only=True)
class DataOptions:
    """Options of the data and their batches.

    Args:
        data: Data set folder in BEIR's layout.
        batch_size: Examples a batch and process.
        global_batch_size: Examples of a batch of all processes together, in place of ``batch_size``: the run
            has the same losses with any number of processes, and can be resumed with another number; null:
            ``batch_size`` times the number of processes.
        dev_size: Largest number of dev inputs to measure.
        length_pool: Batches that are sorted by length together; 1 mixes all lengths in a batch (more padding,
            more varied batches).
        workers: Processes that prepare batches; 0 prepares them in the training process.
    """

    data: str
    batch_size: Count = 100
    global_batch_size: Count | None = None
    dev_size: Count = 200
    length_pool: Count = 50
    workers: NonNegativeInt = 0


@options("data", kw_only=True)
class GeneratorDataOptions(DataOptions):
    """Options of the data and their batches.

    Args:
        max_passage_tokens: Longest passage in tokens; longer passages are cut.
        max_query_tokens: Longest query in tokens; longer queries are refused, or cut with
            ``truncate_queries``.
        max_input_tokens: Longest model input in tokens: query and evidence together.
        truncate_queries: Cut queries that are too long; false refuses them.
        evidence_words: Largest number of words of each evidence passage in a model input: its first sentence
            and the sentences nearest to the question. 0: the whole passage.
        identifiers: Folder of identifiers of the corpus (``grls identify``), which the generator learns to
            write instead of whole passages; null: whole passages.
    """

    max_passage_tokens: Count = 512
    max_query_tokens: Count = 256
    max_input_tokens: Count = 512
    truncate_queries: bool = False
    evidence_words: NonNegativeInt = 0
    identifiers: str | None = None


@options()
class PassageInput:
    """The model input for a passage that is memorised.

    Args:
        reads: ``front``: the front of the passage, as in the paper; ``whole``: all of it.
        query: Put the marker of queries in front, as at retrieval; false: no marker, as in the paper.
    """

    reads: Literal["front", "whole"] = "front"
    query: bool = False


@options("data", kw_only=True)
class MemoriseDataOptions(GeneratorDataOptions):
    """Options of the passages and their batches.

    Args:
        front: Share of a passage's tokens in its front (0 to 1).
        unit: ``text``: the front is a share of the tokens; ``path``: passages are
            ``subject; relation; object``, and the front is subject and relation.
        target: ``whole``: the decoder writes the whole passage; ``rest``: it writes the passage without the
            front.
        reading: The model input of a passage: its front, or all of it.
    """

    front: _Front = 0.7
    unit: Literal["text", "path"] = "text"
    target: Literal["whole", "rest"] = "whole"
    reading: PassageInput = field(default_factory=PassageInput)

    def __post_init__(self) -> None:
        if self.target == "rest" and self.reading.reads != "front":
            raise ConfigError("target `rest` is the passage without its front: it needs reads `front`.")
        if self.target == "rest" and self.identifiers is not None:
            raise ConfigError(f"target `rest` is part of a passage: leave {Option('data.identifiers')} out.")


@options("data.mix")
class Mix:
    """Examples that are mixed into fine-tuning.

    Args:
        pseudo: File of pseudo-queries, written by ``grls prepare pseudo-queries``; null mixes none in.
        pseudo_share: Share of pseudo-queries among the examples of an epoch (0 to 1), or the shares of the
            first and the last epoch.
        memorise: The model input for passages that are memorised along; null mixes none in.
        memorise_share: Share of passages to memorise among the examples of an epoch (0 to 1).
        size: Examples an epoch; null: as many as without a mix.
    """

    pseudo: str | None = None
    pseudo_share: Shares = 0.5
    memorise: PassageInput | None = None
    memorise_share: Share = 0.2
    size: Count | None = None


@options("data.prior")
class LearnBeside:
    """Priors for training, by name.

    Args:
        retrievers: Retriever folders of bi-encoders over the corpus, or ``bm25``.
        weights: A weight for each prior; null: 1.
    """

    retrievers: list[str]
    weights: list[NonNegativeFloat] | None = None

    def __post_init__(self) -> None:
        count = len(self.retrievers)
        weights = count if self.weights is None else len(self.weights)
        if not count or weights != count:
            raise ConfigError(
                f"{Option('data.prior')} needs retrievers, and one weight for each of them (or null); got "
                f"{count} retrievers and {weights} weights."
            )


@options("data.spans")
class WriteSpans:
    """Options of training on spans of passages; the generator learns to write the spans that fit the query.

    Args:
        words: Number of words of a span; unused beside ``identifiers``.
        drawn: Number of spans drawn for every hop, along which the loss is taken.
    """

    words: Count = 8
    drawn: Count = 4


@options("data.rescore")
class Rescore:
    """Options of training a generator to rescore passages.

    DONE is rescored in chains that end with DONE.

    Args:
        retrievers: Retrievers that propose passages: folders of bi-encoders over the corpus, or ``bm25``.
        passages: Number of proposed passages for each rescored hop, beside the right ones.
        right: Largest number of right passages of a hop that are rescored.
        hops: Number of rescored hops of a chain, drawn anew each epoch.
        tokens: Number of first tokens of a passage that are read.
    """

    retrievers: list[str]
    passages: Count = 12
    right: Count = 6
    hops: Count = 1
    tokens: Count = 128

    def __post_init__(self) -> None:
        if not self.retrievers:
            raise ConfigError(f"{Option('data.rescore.retrievers')} is empty: name a retriever, or bm25.")


@options("data.candidates")
class CandidateOptions:
    """Options of the candidates that ``model.ranking`` learns to order.

    Args:
        run: A run over the training queries, as ``grls retrieve --split train`` writes it: of the model
            itself, or of any other retriever. A ranking has candidates of the first hop; a chain has one for
            each of its hops. Later hops of a query whose order is drawn anew each epoch have none.
        wrong: Number of wrong candidates of a hop, the best of the run.
    """

    run: str
    wrong: Count = 4


@options("data", kw_only=True)
class RetrieveDataOptions(GeneratorDataOptions):
    """Options of the queries and their batches; ``batch_size`` counts hops, of chains queries.

    Args:
        train_split: Split of the training queries.
        dev_split: Split of the dev queries.
        multistep: Learn hop by hop; false: learn every gold passage from the query alone; null: hop by hop
            if a training query has several gold passages.
        done: Learn DONE after the last hop (multi-step only).
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        mix: Examples that are mixed in: pseudo-queries, passages to memorise.
        by_hop: Measure dev recall at every hop, with the gold passages before it as evidence, which is not
            retrieved again (if hops are learned); false: from the query alone.
        teacher: Teacher whose probabilities are mixed into the targets: a retriever folder over the same
            corpus (of a bi-encoder, a sparse or a multi-vector encoder), or ``bm25``; null: no teacher.
        teacher_share: Share of the teacher in the targets (above 0 to 1).
        branches: Number of passages drawn from the teacher at each hop and trained beside the gold passage.
        prior: Bi-encoders or BM25 beside which the generator learns: the loss is that of the product of both.
            Decode with the same prior; null: no prior.
        spans: Learn to write spans of passages instead of passages from their beginning; beside
            ``identifiers``, how those of a passage are drawn, if it has several; null: no spans.
        rescore: Learn to rescore passages that are read to their end; null: no rescoring.
        candidates: Right and wrong passages that ``model.ranking`` learns to order; null: none.
        decay: Token n of a passage has the weight ``decay ** n``; below 1, the first tokens weigh more, which
            decide what a beam keeps.
    """

    train_split: str = "train"
    dev_split: str = "dev"
    multistep: bool | None = True
    done: bool = True
    shuffle: bool = False
    mix: Mix = field(default_factory=Mix)
    by_hop: bool = False
    teacher: str | None = None
    teacher_share: PositiveShare = 0.5
    branches: NonNegativeInt = 0
    prior: LearnBeside | None = None
    spans: WriteSpans | None = None
    rescore: Rescore | None = None
    candidates: CandidateOptions | None = None
    decay: PositiveShare = 1.0

    def __post_init__(self) -> None:
        if self.branches and self.teacher is None:
            raise ConfigError(f"branches need a teacher: set {Option('data.teacher')}.")


@options("recall")
class RecallOptions:
    """Options of the measurement on dev.

    It logs ``dev_recall`` (recall@k of the gold passages from the query alone; with ``data.by_hop``, at every
    hop) and, with ``hops``, ``dev_f1`` (set F1 of dynamic multi-step retrieval).

    Args:
        k: Cut-off of recall.
        beams: Beam width.
        hops: Largest number of hops of dynamic retrieval, measured as ``dev_f1``; 0 measures only single-step
            recall.
        rescore: Passages of each input to rescore, for a generator that learns rescoring; 0: none.
    """

    k: Count = 5
    beams: Count = 5
    hops: NonNegativeInt = 0
    rescore: NonNegativeInt = 0


@options("data", kw_only=True)
class QuoteDataOptions(DataOptions):
    """Options of the questions and their batches.

    The prompt is the question without instructions or examples (``grls answer riches --prompt.kind none``).
    Gold passages come from the queries' ``evidence`` in its order, or from the qrels.

    Args:
        train_split: Split of the training queries.
        dev_split: Split of the dev queries.
        keys: Kind of the keys that are quoted: sentence, paragraph, titled (a paragraph with its title),
            title, header or proposition.
        anywhere: Allow quotes from anywhere in a key. This changes the ``allowed`` loss and the measurement
            on dev; targets still quote whole keys.
        propositions: JSONL file of propositions with ``passage`` (a passage id) and ``text``; needed for keys
            of kind proposition.
        markers: Opening and closing marker of a quote.
        thoughts: Text before a quote: ``shared`` (the words of the key that occur in the question or an
            earlier quote), ``title`` (the title of the passage), or ``none``.
        answer: Answer of queries without one, such as ``proved``; null leaves their last line out.
        chat: Put the question into the chat template of the model.
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        max_prompt_tokens: Longest prompt in tokens; queries with a longer one are left out and counted.
        max_target_tokens: Longest target in tokens; queries with a longer one are left out and counted.
    """

    train_split: str = "train"
    dev_split: str = "dev"
    keys: KeyKind = "sentence"
    anywhere: bool = False
    propositions: str | None = None
    markers: tuple[str, str] = ("«", "»")
    thoughts: Thoughts = "shared"
    answer: str | None = None
    chat: bool = False
    shuffle: bool = False
    max_prompt_tokens: Count = 256
    max_target_tokens: Count = 512


@options("quotes")
class QuoteOptions:
    """Options of the measurement on dev.

    Dev queries are answered without instructions or examples in the prompt. It logs ``dev_recall`` (share of
    a query's gold passages that are quoted), ``dev_hits`` (share of answers whose first quoted passage is
    gold) and ``dev_unclosed`` (share of answers whose last quote the length limit cut off).

    Args:
        beams: Beam width.
        beam: Kind of beam search: ``adaptive``, ``full`` or ``greedy``.
        mode: Score mode within quotes: ``renormalized`` over the allowed tokens, or ``full`` over the
            vocabulary.
        max_new_tokens: Longest answer in tokens.
        limit: Largest number of dev queries to answer, of the ``data.dev_size`` first ones.
    """

    beams: Count = 4
    beam: Beam = "adaptive"
    mode: ScoreMode = "full"
    max_new_tokens: Count = 128
    limit: Count = 100


@options("data", kw_only=True)
class QueryDataOptions(DataOptions):
    """Options of the passages, their queries and the batches.

    Args:
        train_split: Split of the training queries.
        dev_split: Split of the dev queries; ``dev_size`` counts queries.
        passages: Gold passages that the model reads: ``one``, ``all`` of a query in their order, or ``some``
            of them, drawn anew each epoch. To write queries for chains of passages, a model needs ``all`` or
            ``some``.
        max_passage_tokens: Longest passage in tokens; longer passages are cut.
        max_query_tokens: Longest query in tokens; longer queries are left out and counted.
    """

    train_split: str = "train"
    dev_split: str = "dev"
    passages: PassagesRead = "one"
    max_passage_tokens: Count = 128
    max_query_tokens: Count = 64


@dataclass(frozen=True, kw_only=True)
class TrainingStage:
    """What all stages take.

    Args:
        model: Options of the model and its optimizer.
        data: Options of the data and their batches.
        trainer: Options of Lightning's trainer.
        checkpoint: Options of the checkpoint whose weights are the trained model.
        last: Options of the checkpoint to resume from.
        output: Folder for everything that the run writes: ``model/`` (for the next stage), ``checkpoints/``
            (they hold pickles, so do not share them), and ``logs/`` with ``config.yaml``, all options.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
        seed_everything: Seed of dropout, of new weights, of the order of examples and of all draws.
    """

    name: ClassVar[str]
    model: ModelOptions
    data: DataOptions
    trainer: TrainerOptions = field(default_factory=TrainerOptions)
    checkpoint: CheckpointOptions = field(default_factory=CheckpointOptions)
    last: LastOptions = field(default_factory=LastOptions)
    output: str = "runs/train"
    resume: bool = False
    seed_everything: int = 0


@dataclass(frozen=True, kw_only=True)
class RecallStage(TrainingStage):
    """A stage of a generator that retrieves.

    Args:
        recall: Options of the measurement on dev.
    """

    recall: RecallOptions = field(default_factory=RecallOptions)


@dataclass(frozen=True, kw_only=True)
class MemoriseStage(RecallStage):
    """Train a generator to write each passage of a corpus, given its front."""

    name = "memorise"
    model: MemoriseModelOptions
    data: MemoriseDataOptions


@dataclass(frozen=True, kw_only=True)
class RetrieveStage(RecallStage):
    """Train a generator to write the next passage, given the query and the evidence so far.

    The model to start from is usually that of `grls train memorise`.
    """

    name = "retrieve"
    model: RetrieveModelOptions
    data: RetrieveDataOptions


@dataclass(frozen=True, kw_only=True)
class ChainStage(RecallStage):
    """Train a generator on all hops of a query at once, with spans, a teacher, priors or rescoring."""

    name = "chains"
    model: ChainModelOptions
    data: RetrieveDataOptions


@dataclass(frozen=True, kw_only=True)
class RichesStage(TrainingStage):
    """Train a language model to answer with quotes, for `grls answer riches`.

    Args:
        quotes: Options of the measurement on dev.
    """

    name = "riches"
    model: WriterModelOptions
    data: QuoteDataOptions
    quotes: QuoteOptions = field(default_factory=QuoteOptions)


@dataclass(frozen=True, kw_only=True)
class QueryStage(TrainingStage):
    """Train a query generator, for `grls prepare pseudo-queries`; the model has the lowest loss on dev."""

    name = "doc2query"
    model: WriterModelOptions
    data: QueryDataOptions
    checkpoint: CheckpointOptions = field(default_factory=lambda: CheckpointOptions("dev_loss"))


STAGES: dict[str, type[TrainingStage]] = {
    stage.name: stage for stage in (MemoriseStage, RetrieveStage, ChainStage, RichesStage, QueryStage)
}


@options("fit")
class EncoderOptions:
    """Options of training a bi-encoder or a reranker.

    Args:
        epochs: Passes over the examples.
        batch_size: Examples of a batch, of all processes together.
        learning_rate: Peak learning rate.
        seed: Seed of dropout, of new weights, of the order of examples and of all draws of an epoch.
        strategy: Of several processes: ``ddp``, all weights in each; ``fsdp``, weights, gradients and
            states of the optimizer in shards; ``fsdp_cpu_offload``, the shards in main memory.
        precision: ``float32``; ``bfloat16``: mixed precision; ``auto``: mixed precision where the processor
            has instructions for it. Weights are always float32.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, more time.
        lora_rank: Rank of low-rank adapters beside every linear layer of the encoder. Only the adapters (and
            the head of a reranker) are trained, and merged into the saved model. 0: no adapters, all weights
            are trained.
        max_steps: Largest number of optimizer steps; null: no limit beside ``epochs``.
    """

    epochs: Count = 3
    batch_size: Count = 4
    learning_rate: PositiveFloat = 2e-5
    seed: int = 0
    strategy: Literal["ddp", "fsdp", "fsdp_cpu_offload"] = "ddp"
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    gradient_checkpointing: bool = False
    lora_rank: NonNegativeInt = 0
    max_steps: Count | None = None

    def steps(self, examples: int) -> int:
        """Optimizer steps of a training on so many examples."""
        steps = self.epochs * -(-examples // self.batch_size)
        return min(self.max_steps or steps, steps)


@options("hops", kw_only=True)
class HopPairs:
    """Options of the examples that are made of the hops of a query.

    Args:
        multistep: true: an example for each hop, query and earlier gold evidence -> next gold passage; false:
            each gold passage with the query alone; null: true if any query has several gold passages.
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        evidence_words: Largest number of words of each evidence passage beside a query: its first sentence
            and the sentences nearest to the question. 0: the whole passage. The model stores it.
        hard_negatives: Number of wrong passages of an example, drawn anew each epoch from a retriever's
            ranking for the query with the evidence of that hop (from the third hop on in the order of the
            file, also where the order is drawn). For a bi-encoder, the passages of the other examples in a
            batch are negatives in any case.
    """

    multistep: bool | None = None
    shuffle: bool = False
    evidence_words: NonNegativeInt = 48
    hard_negatives: NonNegativeInt = 7


_CANDIDATES = 50
"""Smallest number of passages of a ranking from which the hard negatives of an epoch are drawn."""


@options("fit", kw_only=True)
class PairOptions(HopPairs):
    """Options of the pairs that are made from a query.

    Args:
        done: Learn DONE as the passage after the last hop (multi-step only).
        seed: Seed of all draws of an epoch.
    """

    multistep: bool | None = None
    evidence_words: NonNegativeInt = 0
    hard_negatives: NonNegativeInt = 0
    done: bool = True
    seed: int = 0

    @property
    def ranked(self) -> int:
        """Length of the ranking from which hard negatives are drawn, without gold passages."""
        return max(_CANDIDATES, 2 * self.hard_negatives) if self.hard_negatives else 0


@options("fit", kw_only=True)
class BiEncoderOptions(PairOptions, EncoderOptions):
    """Options of the pairs (:class:`PairOptions`) and of the training.

    Args:
        mini_batch_size: Texts that are embedded at a time, each group again in the backward pass: a batch of
            any size in the memory of one group, for more time; null: the whole batch is kept.
        matryoshka: Leading dimensions of the embeddings that are learned to be of use alone, such as 64 128
            384 (with the last of them all); null: none but all.
        teacher_share: Share of the loss that is distilled from a teacher's scores, if there are any (above 0
            to 1); the rest is the ranking loss.
        schedule: Learning rate after the warm-up: ``linear`` decay to zero, or ``constant``.
        warmup: Share of all steps in which the learning rate rises (0 to 1).
        optimizer: ``adamw``, or ``adafactor`` with the learning rate above instead of relative steps.
        similarity: How vectors are compared, in training and in search: ``cosine``, ``dot``, ``euclidean``,
            ``manhattan``; the model keeps it. null: as the model says, else by the cosine.
        scale: Factor on the inner products before the softmax, the inverse of a temperature; null: 20 where
            the model normalises its embeddings or compares by cosine, else 1.
        length_pool: Batches that are sorted by length together; 1 mixes all lengths in a batch.
        device: ``cpu``, or ``auto``: the first GPU if there is one (CUDA_VISIBLE_DEVICES chooses it).
        dev_size: Largest number of dev queries whose recall is measured after each epoch.
        dev_passages: Passages that they are searched in, the gold ones among them; null: the whole corpus.
        by_hop: Measure recall at every hop, with the gold passages before as evidence (where hops are
            trained); otherwise from the query alone.
        k: Cut-off of dev recall.
    """

    epochs: Count = 1
    batch_size: Count = 32
    mini_batch_size: Count | None = None
    matryoshka: tuple[Count, ...] | None = None
    teacher_share: PositiveShare = 0.5
    schedule: Literal["linear", "constant"] = "linear"
    warmup: Share = 0.1
    optimizer: Literal["adamw", "adafactor"] = "adamw"
    similarity: Similarity | None = None
    scale: PositiveFloat | None = None
    length_pool: Count = 1
    device: Literal["auto", "cpu"] = "auto"
    dev_size: Count = 500
    dev_passages: Count | None = None
    by_hop: bool = False
    k: Count = 5

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
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
    """

    data: str
    output: str
    source: str
    kind: Kind = "auto"
    train_split: str = "train"
    dev_split: str | None = "dev"
    max_tokens: Count | None = None
    fit: BiEncoderOptions = USUAL_FIT
    negatives: str = "bm25"
    teacher: str | None = None
    resume: bool = False

    def __post_init__(self) -> None:
        if self.teacher is not None and self.negatives != "bm25":
            raise ConfigError(
                f"{Option('teacher')} names the hard negatives, too: leave out {Option('negatives')}."
            )


@options("hops", kw_only=True)
class RerankHopOptions(HopPairs):
    """Options of the examples that are made of the hops of a data set.

    Args:
        train_split: Split of the training queries.
        dev_split: Split of the queries that choose the best epoch.
        dev_size: Largest number of dev queries whose loss is measured after each epoch.
        negatives: Retriever that ranks passages for hard negatives, hop by hop: a folder, or ``bm25``.
    """

    train_split: str = "train"
    dev_split: str = "dev"
    dev_size: Count = 500
    hard_negatives: Count = 7
    negatives: str = "bm25"


USUAL_RERANKER = EncoderOptions()
USUAL_RERANK_HOPS = RerankHopOptions()


@options(kw_only=True)
class RerankerTraining:
    """The options of `grls train reranker`.

    Args:
        train: File of training examples, written by `grls ralm examples`; null: the hops of the data set.
        dev: File of examples that choose the best epoch, written by `grls ralm examples`; null with `train`.
        data: Data set folder, or corpus file, with which the examples were collected; without examples, the
            data set folder whose hops are learned.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder to start from.
        max_tokens: Longest input (prefix and document), in tokens of the encoder.
        fit: Options of the training.
        hops: Options of the hops that are learned without examples.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
        device: cpu, cuda, cuda:1, …; auto takes a GPU if there is one.
    """

    train: str | None = None
    dev: str | None = None
    data: str
    output: str
    encoder: str = "all-MiniLM-L6-v2"
    max_tokens: Count = 256
    fit: EncoderOptions = USUAL_RERANKER
    hops: RerankHopOptions = USUAL_RERANK_HOPS
    resume: bool = False
    device: Device = "auto"


def suited(model: BaseModel, recipes: Sequence[str], layers: int | None = None) -> dict[str, Any]:
    """What recipes of chains, made for the packaged model, set for another; ``layers``: its first alone."""
    settings: dict[str, Any] = {}
    if "rescore" in recipes:  # it freezes twelve layers, in small models two fifths
        frozen = 0
        if model.causal:
            source, more = language_source(model.name)
            frozen = min(12, 2 * (layers or int(open_config(source, **more).num_hidden_layers)) // 5)
        settings["model.freeze_layers"] = frozen
    return settings


def read_stage(
    stage: str, layers: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> TrainingStage:
    """The options of a stage, read as the shell reads them.

    Args:
        stage: The name of the stage.
        layers: Recipes or YAML files; later ones override earlier ones.
        options: Options by their dotted names, over the layers: ``{"trainer.max_epochs": 1}``.
    """
    from grls.io.option_errors import PlainParser

    values = recipe_values(layers)
    for name, value in (options or {}).items():
        *sections, option = name.split(".")
        place: Any = values
        for section in sections:
            inner = place.get(section) or {}
            place[section] = inner = {"class_path": inner} if isinstance(inner, str) else inner
            place = inner.setdefault("init_args", {}) if "class_path" in inner else inner
        place[option] = str(value) if isinstance(value, Path) else value
    parser = PlainParser(prog=f"grls train {stage}")
    parser.add_class_arguments(STAGES[stage])
    return STAGES[stage](**parser.instantiate(parser.parse_object(values)).as_dict())


def as_record(options: Any) -> Any:
    """Options as YAML and JSON hold them; those of a generator with the path of its class."""
    if isinstance(options, dict):
        return {name: as_record(value) for name, value in options.items()}
    if isinstance(options, list | tuple):
        return [as_record(value) for value in options]
    if is_dataclass(options) and not isinstance(options, type):
        record = as_record(vars(options))
        if isinstance(options, GeneratorSpec):
            kind = type(options)
            return {"class_path": f"{kind.__module__}.{kind.__qualname__}", "init_args": record}
        return record
    return options if isinstance(options, str | int | float | None) else str(options)
