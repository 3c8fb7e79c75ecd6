"""``grls train reranker``: train a reranker of documents for a language model, or of a data set's hops."""

from __future__ import annotations

from grls.train.reranker.options import USUAL_FIT, USUAL_RERANK_HOPS, RerankerOptions, RerankHopOptions


def train_reranker(
    *,
    train: str | None = None,
    dev: str | None = None,
    data: str,
    output: str,
    encoder: str = "all-MiniLM-L6-v2",
    prefix_tokens: int | None = None,
    max_tokens: int = 256,
    fit: RerankerOptions = USUAL_FIT,
    hops: RerankHopOptions = USUAL_RERANK_HOPS,
    resume: bool = False,
    device: str = "auto",
) -> None:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9).

    The paper trains RoBERTa-base, 10,000 steps of 32 prefixes with 16 candidates each, at 1e-5; the defaults
    here are for fewer examples.

    Without --train and --dev it learns the hops of the data set: which passage follows the question and the
    passages found so far. That model is a cross-encoder, for `grls index rescored R --model OUTPUT/model`.

    Writes OUTPUT/model (for `grls ralm --rerank.by trained --rerank.reranker OUTPUT/model`), OUTPUT/logs,
    OUTPUT/checkpoints and OUTPUT/settings.json, with which the options of a resumed run are compared.

    Args:
        train: File of training examples, written by `grls ralm examples`; null: the hops of the data set.
        dev: File of examples that choose the best epoch, written by `grls ralm examples`; null with `train`.
        data: Data set folder, or corpus file, with which the examples were collected; without examples, the
            data set folder whose hops are learned.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder to start from.
        prefix_tokens: Length of the prefix before a stride, in tokens of the language model. It must be that
            of the examples; null takes it from them.
        max_tokens: Longest input (prefix and document), in tokens of the encoder.
        fit: Options of the training.
        hops: Options of the hops that are learned without examples.
        resume: Resume from the last checkpoint in OUTPUT; options and data must be the same.
        device: cpu, cuda, cuda:1, …; auto takes a GPU if there is one.
    """
    from grls.train.core.processes import is_first
    from grls.train.reranker.run import run_reranker

    best = run_reranker(
        train=train,
        dev=dev,
        data=data,
        output=output,
        encoder=encoder,
        prefix_tokens=prefix_tokens,
        max_tokens=max_tokens,
        fit=fit,
        hops=hops,
        resume=resume,
        device=device,
    )
    if is_first():
        unit = "hop" if train is None else "stride"
        print(f"best dev loss {best:.4f} nats a {unit}; the reranker is in {output}/model")
