"""``grls train reranker``: train a judge of documents on what they did to a language model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from grls.data.corpus import Corpus
from grls.errors import MismatchError
from grls.io.files import read_json, refuse_foreign, sha256, write_json
from grls.io.logs import quiet
from grls.train.reranker.options import USUAL_FIT, RerankerOptions

log = logging.getLogger(__name__)

PREFIX = 64
"""Tokens before a stride, where the examples do not say."""


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

    Writes OUTPUT/model, for `grls ralm --rerank.by trained --rerank.reranker OUTPUT/model`, OUTPUT/logs,
    OUTPUT/checkpoints and OUTPUT/settings.json, against which the options of a resumed run are held.

    Args:
        train: Examples that `grls ralm examples` wrote.
        dev: Examples that choose the best epoch.
        data: Their corpus, or the data set folder that holds it.
        output: Folder for everything that the run writes.
        encoder: Folder or hub name of a bidirectional encoder.
        prefix_tokens: Tokens (of the language model) before a stride that it reads; null: as the examples
            have, and no other number is taken.
        max_tokens: Longest prefix and document together, in its own tokens.
        fit: How it is trained.
        resume: Go on from the last checkpoint in OUTPUT, with the same options and data.
        device: cpu, cuda, cuda:1, …; auto takes a GPU where there is one.
    """
    import torch

    from grls.answer.ralm.reranker import Reranker, read_examples
    from grls.train.reranker.fit import fit_reranker

    quiet()
    refuse_foreign(f"{output}/model", "config.json")
    corpus = Corpus.read(data)
    examples = read_examples(train), read_examples(dev)
    prefix_tokens = _prefix_tokens(train, dev, corpus, data, prefix_tokens)
    made = {
        "train": sha256(train), "dev": sha256(dev), "data": corpus.fingerprint, "encoder": encoder,
        "prefix_tokens": prefix_tokens, "max_tokens": max_tokens, **vars(fit),
    }  # fmt: skip
    kept = Path(output) / "settings.json"
    if resume:
        _refuse_others(kept, made)
    torch.manual_seed(fit.seed)  # an encoder that has no head yet gets one
    reranker = Reranker.load(encoder, prefix_tokens, max_tokens, device)
    if not resume:
        write_json(kept, made)
    best = fit_reranker(reranker, corpus, *examples, output, **vars(fit), resume=resume)
    print(f"best dev loss {best:.4f} nats a stride; the reranker is in {output}/model")


def _prefix_tokens(train: str, dev: str, corpus: Corpus, data: str, given: int | None) -> int:
    """Tokens of a prefix; held, with the corpus, against what the examples were collected with.

    Raises:
        MismatchError: They were collected otherwise.
    """
    from grls.answer.ralm.reranker import example_settings

    found: dict[str, int] = {}
    for option, file in (("--train", train), ("--dev", dev)):
        settings = example_settings(file)
        if settings.get("corpus", corpus.fingerprint) != corpus.fingerprint:
            raise MismatchError(
                f"the examples of {option} {file} were collected with another corpus than --data {data}: "
                "give --data that one, or collect them anew (`grls ralm examples`)."
            )
        if "prefix_tokens" in settings:
            found[option] = int(settings["prefix_tokens"])
    for option, tokens in found.items():
        if given is not None and tokens != given:
            raise MismatchError(
                f"the examples of {option} have prefixes of {tokens} tokens, got --prefix_tokens {given}: "
                "leave --prefix_tokens out, or collect them anew (`grls ralm examples "
                f"--examples.prefix_tokens {given}`)."
            )
    if len(set(found.values())) > 1:
        raise MismatchError(
            f"the prefixes of --train have {found['--train']} tokens and those of --dev {found['--dev']}: "
            "collect both with the same --prefix_tokens."
        )
    return next(iter(found.values()), PREFIX if given is None else given)


def _refuse_others(kept: Path, made: dict[str, Any]) -> None:
    """Refuse to resume with other options than the first run had.

    Raises:
        MismatchError: One is another.
    """
    if not kept.is_file():  # of a run before options were kept, or there is no run; the checkpoint tells
        log.warning("%s is missing, so the options cannot be held against those of the first run.", kept)
        return
    before = read_json(kept)
    others = [name for name in made if not isinstance(before, dict) or before.get(name) != made[name]]
    if others:
        nested = vars(USUAL_FIT)
        options = ", ".join(f"--fit.{name}" if name in nested else f"--{name}" for name in others)
        raise MismatchError(
            f"the run in {kept.parent} was begun with other options ({options}): resume it with the same "
            "options and data, or give another --output to begin anew."
        )
