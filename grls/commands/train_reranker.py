"""``grls train reranker``: train a reranker of documents for a frozen language model."""

from __future__ import annotations

from grls.train.reranker.options import USUAL_FIT, RerankerOptions


def train_reranker(
    *,
    train: str,
    dev: str,
    data: str,
    output: str,
    encoder: str = "all-MiniLM-L6-v2",
    prefix_tokens: int | None = None,
    max_tokens: int = 256,
    fit: RerankerOptions = USUAL_FIT,
    resume: bool = False,
    device: str = "auto",
) -> None:
    """Train the predictive reranker of In-Context RALM (arXiv 2302.00083, equation 9).

    The paper trains RoBERTa-base, 10,000 steps of 32 prefixes with 16 candidates each, at 1e-5; the defaults
    here are for fewer examples.

    Writes OUTPUT/model (for `grls ralm --rerank.by trained --rerank.reranker OUTPUT/model`), OUTPUT/logs,
    OUTPUT/checkpoints and OUTPUT/settings.json, with which the options of a resumed run are compared.

    Args:
        train: File of training examples, written by `grls ralm examples`.
        dev: File of examples that choose the best epoch, written by `grls ralm examples`.
        data: Data set folder, or corpus file, with which the examples were collected.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder to start from.
        prefix_tokens: Length of the prefix before a stride, in tokens of the language model. It must be that
            of the examples; null takes it from them.
        max_tokens: Longest input (prefix and document), in tokens of the encoder.
        fit: Options of the training.
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
        resume=resume,
        device=device,
    )
    if is_first():
        print(f"best dev loss {best:.4f} nats a stride; the reranker is in {output}/model")
