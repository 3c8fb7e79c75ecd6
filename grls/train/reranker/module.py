"""The LightningModule of a reranker.

Legend: C candidates of a prefix, f the reranker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import get_linear_schedule_with_warmup

from grls.answer.ralm.reranker import Reranker, RerankExample
from grls.data.corpus import Corpus
from grls.data.dataset import Qrels
from grls.data.types import Query
from grls.errors import Option
from grls.io.files import atomic_folder
from grls.models.cross_encoder import query_with_evidence
from grls.train.biencoder.examples import BiEncoderExamples, RetrieverMiner
from grls.train.core.module import EncoderModule
from grls.train.core.processes import averaged, mean_over_processes, summed
from grls.train.options import EncoderOptions, HopPairs, PairOptions, RerankHopOptions

WRONG = -20.0
"""Log-probability (nats) of a hop after a wrong passage; after the right one it is 0."""


class WrittenExamples(list[RerankExample]):
    """Examples of a file, the same in all epochs."""

    def draw(self, number: int, epoch: int) -> RerankExample:
        return self[number]

    def lengths(self) -> list[int]:
        return [len(example.prefix) for example in self]


class RerankHops:
    """The hops of queries as examples, without DONE.

    They are those of :class:`grls.train.biencoder.examples.BiEncoderExamples`. Only the right passage
    makes the hop likely, so the loss is the listwise one of localized contrastive estimation (Gao et al.
    2021, arXiv 2101.08751).
    """

    def __init__(
        self, queries: Sequence[Query], qrels: Qrels, corpus: Corpus, options: RerankHopOptions, seed: int = 0
    ):
        given = {name: getattr(options, name) for name in vars(HopPairs())}
        pairs = PairOptions(**given, done=False, seed=seed)
        remedy = f"name another retriever by {Option('hops.negatives')}"
        miner = RetrieverMiner(options.negatives, corpus, options.evidence_words, remedy)
        self.negatives_fingerprint = miner.fingerprint()
        query_text = partial(query_with_evidence, words=options.evidence_words)
        self._pairs = BiEncoderExamples(queries, qrels, corpus, query_text, pairs, miner)

    def __len__(self) -> int:
        return len(self._pairs)

    def draw(self, number: int, epoch: int) -> RerankExample:
        pair = self._pairs.draw(number, epoch)
        scores = (0.0, *[WRONG] * (len(pair.passages) - 1))
        return RerankExample(pair.query, pair.passages, scores)

    def lengths(self) -> list[int]:
        return self._pairs.lengths()


def rerank_loss(values: Tensor, scores: Tensor) -> Tensor:
    """Equation 9 of arXiv 2302.00083 for one prefix x.

    For candidates d_1 .. d_C and the likelihood p(y | [d_i; x]) of the stride y that follows,

        loss = -log sum_i p_rank(d_i | x) p(y | [d_i; x]),    p_rank(d_i | x) = softmax_i f(x, d_i):

    the likelihood of the text if the document were drawn by the reranker. ``values [C]`` are the
    reranker's logits f, ``scores [C]`` the log-probabilities (nats) of the stride after each candidate.
    """
    return -(values.log_softmax(-1) + scores.to(values.device)).logsumexp(-1)


def choice_gain(values: Tensor, scores: Tensor) -> Tensor:
    """Gain (nats a stride) of the reranker's choice over the retriever's choice, the first candidate."""
    return scores[int(values.argmax())] - scores[0]


class RerankerModule(EncoderModule):
    """The reranker, its loss, its optimizer: AdamW, 10 % linear warm-up, then decay to zero."""

    marker = "config.json"
    best: ClassVar[Any] = {"monitor": "dev_loss", "mode": "min"}

    def __init__(self, reranker: Reranker, options: EncoderOptions):
        super().__init__(reranker.model, options, "adamw")
        self._reranker = reranker
        if options.lora_rank:
            for name, weights in self.model.named_parameters():
                if not name.startswith(f"{self.model.base_model_prefix}."):  # the head: it may be new
                    weights.requires_grad = True

    def training_step(self, batch: list[RerankExample], batch_idx: int) -> Tensor:
        losses = torch.stack([rerank_loss(*read) for read in self._read(batch)])
        loss = mean_over_processes(losses.mean(), len(batch))
        self.log("train_loss", averaged(loss), prog_bar=True, batch_size=len(batch))
        return loss

    def validation_step(self, batch: list[RerankExample], batch_idx: int) -> None:
        """Log ``dev_loss``, and ``dev_gain``: gain of its choice over the retriever's (nats a stride).

        Of hops there is no gain: their first candidate is the right passage, no retriever's choice.
        """
        read, data = self._read(batch), self.trainer.datamodule  # type: ignore[attr-defined]
        size = summed(len(batch), self.device) // data.dev_copies(batch_idx)
        gain = {} if isinstance(data.dev_examples, RerankHops) else {"dev_gain": choice_gain}
        for name, measure in {"dev_loss": rerank_loss, **gain}.items():
            each = [measure(logits, scores).cpu() for logits, scores in read]
            mean = torch.stack(each).mean().to(self.device)
            self.log(name, averaged(mean_over_processes(mean, len(batch))), sync_dist=True, batch_size=size)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.options.learning_rate)
        steps = self.options.steps(len(self.trainer.datamodule.train_examples))  # type: ignore[attr-defined]
        schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def save(self, model: Any, folder: Path) -> None:
        self._reranker.model = model
        with atomic_folder(folder, self.marker) as new:
            self._reranker.save(new)

    def _read(self, batch: Sequence[RerankExample]) -> list[tuple[Tensor, Tensor]]:
        """Logits f of the candidates of each prefix, and their scores."""
        prefixes = [example.prefix for example in batch for _ in example.passages]
        texts = [text for example in batch for text in example.passages]
        values = self.within(self._reranker.logits, prefixes, texts)
        logits = values.split([len(example.passages) for example in batch])
        scores = [torch.tensor(example.scores, dtype=torch.float32) for example in batch]
        return list(zip(logits, scores, strict=True))
