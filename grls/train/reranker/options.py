"""The options of training a reranker."""

from __future__ import annotations

from typing import Literal

from grls.io.arguments import Count, NonNegativeInt, PositiveFloat, options


@options("fit")
class RerankerOptions:
    """Options of training a reranker. The defaults are for fewer examples than the paper has.

    Args:
        epochs: Passes over the examples.
        batch_size: Prefixes in a batch of all processes together, each with all its candidates.
        learning_rate: Peak learning rate.
        seed: Seed of the order, of dropout, and of new weights on top of the encoder.
        strategy: Of several processes: ``ddp``, all weights in each; ``fsdp``, weights, gradients and
            states of the optimizer in shards; ``fsdp_cpu_offload``, the shards in main memory.
        precision: ``float32``; ``bfloat16``: mixed precision; ``auto``: mixed precision where the processor
            has instructions for it. Weights are always float32.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, more time.
        lora_rank: Rank of low-rank adapters beside every linear layer of the encoder. Only these and the head
            are trained; the adapters are merged into the saved model. 0: no adapters, all weights are
            trained.
    """

    epochs: Count = 3
    batch_size: Count = 4
    learning_rate: PositiveFloat = 2e-5
    seed: int = 0
    strategy: Literal["ddp", "fsdp", "fsdp_cpu_offload"] = "ddp"
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    gradient_checkpointing: bool = False
    lora_rank: NonNegativeInt = 0


@options("hops")
class RerankHopOptions:
    """Options of the examples that are made of the hops of a data set.

    Args:
        train_split: Split of the training queries.
        dev_split: Split of the queries that choose the best epoch.
        multistep: true: an example for each hop, query and earlier gold evidence -> next gold passage; false:
            each gold passage with the query alone; null: true if any query has several gold passages.
        shuffle: Draw the order of the evidence anew each epoch, ignoring the order of the file.
        evidence_words: Largest number of words of each evidence passage beside a query: its first sentence
            and the sentences nearest to the question. 0: the whole passage. The model stores it.
        negatives: Retriever that ranks passages for hard negatives, hop by hop: a folder, or ``bm25``.
        hard_negatives: Number of wrong passages of an example, drawn anew each epoch.
    """

    train_split: str = "train"
    dev_split: str = "dev"
    multistep: bool | None = None
    shuffle: bool = False
    evidence_words: NonNegativeInt = 48
    negatives: str = "bm25"
    hard_negatives: Count = 7


USUAL_RERANK_HOPS = RerankHopOptions()

USUAL_RERANKER = RerankerOptions()
