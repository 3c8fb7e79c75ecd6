"""``grls train-reranker``: train a judge of documents on what they did to a language model."""

from __future__ import annotations

import torch

from grls.corpus import Corpus
from grls.files import refuse_foreign
from grls.logs import quiet
from grls.readers.ralm.reranker import Reranker, read_examples
from grls.train.reranker import train_reranker as fit


def train_reranker(
    train: str,
    dev: str,
    data: str,
    output: str,
    encoder: str = "all-MiniLM-L6-v2",
    prefix_tokens: int = 64,
    max_tokens: int = 256,
    epochs: int = 3,
    batch_size: int = 4,
    learning_rate: float = 2e-5,
    seed: int = 0,
    resume: bool = False,
    device: str = "auto",
) -> None:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9).

    Writes OUTPUT/model, for `grls ralm --rerank trained --reranker OUTPUT/model`, OUTPUT/logs and
    OUTPUT/checkpoints.

    Args:
        train: Examples that `grls ralm --job examples` wrote.
        dev: Examples that choose the best epoch.
        data: Their corpus, or the data set folder that holds it.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder.
        prefix_tokens: Tokens (of the language model) before a stride that it reads; as the examples have.
        max_tokens: Longest prefix and document together, in its own tokens.
        epochs: Epochs.
        batch_size: Prefixes a step, each with all its candidates.
        learning_rate: Peak rate.
        seed: Of order, dropout, and the weights that the encoder lacks.
        resume: Go on from the last checkpoint in OUTPUT, with the same options and data.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    quiet()
    refuse_foreign(f"{output}/model", "config.json")
    corpus = Corpus.read(data)
    examples = read_examples(train), read_examples(dev)
    torch.manual_seed(seed)  # an encoder that has no head yet gets one
    reranker = Reranker.load(encoder, prefix_tokens, max_tokens, device)
    best = fit(reranker, corpus, *examples, output, epochs, batch_size, learning_rate, seed, resume)
    print(f"best dev loss {best:.4f} nats a stride; the reranker is in {output}/model")
