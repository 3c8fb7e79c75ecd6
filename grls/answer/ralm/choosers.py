"""Opens the rule that orders documents, by its name in the options."""

from __future__ import annotations

from grls.answer.ralm.choose import AsRetrieved, Chooser, Oracle, ZeroShot
from grls.answer.ralm.options import RerankOptions
from grls.answer.ralm.reader import InContextRalm, refuse_long_window
from grls.answer.ralm.reranker import Reranker, Trained
from grls.answer.ralm.scoring import TextScorer
from grls.data.codec import tokenizer_fingerprint
from grls.errors import ConfigError, Option
from grls.io.counts import counted
from grls.models.load.language import load_language_model, weights_fingerprint


def chooser_of(rerank: RerankOptions, reader: InContextRalm, device: str) -> Chooser:
    """The rule that orders documents.

    Raises:
        ConfigError: There are fewer candidates than documents, or the judge has another tokenizer.
    """
    if rerank.by != "none" and rerank.candidates < reader.options.documents:
        raise ConfigError(
            f"{counted(rerank.candidates, 'candidate')} for "
            f"{counted(reader.options.documents, 'document')}; raise {Option('rerank.candidates')}."
        )
    if rerank.by == "oracle":
        return Oracle(reader.scorer, rerank.candidates)
    if rerank.by == "zero-shot":
        return ZeroShot(_judge(reader, rerank.judge, device), rerank.judge_tokens, rerank.candidates)
    if rerank.by == "trained" and reader.corpus is not None:
        loaded = Reranker.load(str(rerank.reranker), device=device, trained=True)
        return Trained(loaded, reader.tokenizer, reader.corpus, rerank.candidates)
    return AsRetrieved()


def judged_by(chooser: Chooser) -> str | None:
    """The fingerprint of the model that orders documents; None if no model does."""
    if isinstance(chooser, Trained):
        return weights_fingerprint(chooser.reranker.model)
    return weights_fingerprint(chooser.scorer.model) if isinstance(chooser, ZeroShot) else None


def _judge(reader: InContextRalm, name: str | None, device: str) -> TextScorer:
    if name is None:
        return reader.scorer
    model, tokenizer = load_language_model(name, device)
    if tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(reader.tokenizer):
        raise ConfigError(f"the judge {name!r} has another tokenizer than the model; take one of its family.")
    refuse_long_window(model, reader.options.window, f"the judge {name!r}")
    return reader.scorer_of(model)
