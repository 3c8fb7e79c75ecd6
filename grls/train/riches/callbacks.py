"""Measures answers with quotes on dev during training, for the choice of the best checkpoint."""

from __future__ import annotations

from typing import Any

import lightning as L

from grls.answer.riches.answerer import Riches
from grls.data.dataset import gold_passages
from grls.decode.interleave.options import InterleaveOptions
from grls.errors import ConfigError, Option
from grls.models.base import positions_in
from grls.train.generator.callbacks import log_means, refuse_unmeasured
from grls.train.options import QuoteOptions


class QuoteRecall(L.Callback):
    """Answers dev queries at the end of each validation, without instructions or examples in the prompt.

    See :class:`grls.train.options.QuoteOptions`.
    """

    def __init__(self, options: QuoteOptions):
        self.options = InterleaveOptions(
            options.beams, options.beam, options.mode, max_new_tokens=options.max_new_tokens
        )
        self.limit = options.limit

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        module: Any = pl_module
        config = module.model.config
        positions = positions_in(config)
        longest = max(len(prompt) for _, prompt, *_ in data.dev_examples.items)
        needed = longest + self.options.max_new_tokens
        if positions is not None and not config.is_encoder_decoder and needed > positions:
            raise ConfigError(
                f"a dev question and its answer take {needed} tokens, but the model has {positions} "
                f"positions; lower {Option('quotes.max_new_tokens')} or "
                f"{Option('data.max_prompt_tokens')}."
            )
        measured = ("train_loss", "dev_loss", "dev_recall", "dev_hits", "dev_unclosed")
        refuse_unmeasured(trainer, measured)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure and log; each process answers its share of the queries."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        if trainer.sanity_checking:
            return
        module: Any = pl_module
        program = Riches(module.model, module.tokenizer, data.corpus, data.keys, data.prompt, self.options)
        queries = [query for query, *_ in data.dev_examples.items]  # none is too long
        queries = queries[: self.limit][trainer.global_rank :: trainer.world_size]
        with module.whole_weights():
            module.model.eval()
            answers = program.answer(queries)
        scores: dict[str, list[float]] = {"dev_recall": [], "dev_hits": [], "dev_unclosed": []}
        for query, answer in zip(queries, answers, strict=True):
            gold, quoted = gold_passages(query, data.dev[1]), [hit.id for hit in answer.ranking]
            scores["dev_recall"].append(len(set(gold) & set(quoted)) / len(gold))
            scores["dev_hits"].append(float(bool(quoted) and quoted[0] in gold))
            scores["dev_unclosed"].append(float(bool(answer.quotes) and not answer.quotes[-1].closed))
        log_means(trainer, pl_module, scores)
