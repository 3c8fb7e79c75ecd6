"""Measures a few steps of each training, and of each search, on a sample of the data.

A measurement is of what the run will do: the same recipe, batches of the data, the same device and precision.
Training steps are measured after one that warms up, and are not kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn

from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.data.types import Query
from grls.fitting.clock import TimeIsUp
from grls.fitting.effort import ENCODER_BATCH, writer_batch
from grls.fitting.facts import DataFacts
from grls.fitting.machine import Machine
from grls.fitting.models import BaseModel
from grls.fitting.options import FitOptions
from grls.fitting.recipe import recipe
from grls.fitting.sample import SPLIT
from grls.fitting.speeds import EncoderSpeeds, WriterSpeeds
from grls.fitting.stages import encoder_recipes, encoder_tokens, frozen_layers, writer_recipes
from grls.index import build_index
from grls.io.progress import Progress, reporting
from grls.models.biencoder import BiEncoderModel
from grls.models.load.build import GeneratorSpec, Pretrained
from grls.models.load.language import CausalLM
from grls.models.precision import accelerator, move
from grls.models.text_encoder import passage_text
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.train.biencoder.collate import PairCollator
from grls.train.biencoder.examples import BiEncoderExamples
from grls.train.biencoder.loss import MaskedRankingLoss
from grls.train.biencoder.options import BiEncoderOptions
from grls.train.chains.data import ChainData
from grls.train.chains.module import RetrieveChains
from grls.train.chains.proposals import Rescore
from grls.train.chains.span_targets import WriteSpans

_PART = 2
"""A measured batch of training is at most this part of the recipe's, on a CPU."""

_FEW = 2
"""Examples of the step that warms up, on a CPU."""

_LONG = 8.0
"""Seconds that the measured steps of a training should take at most."""

_INPUTS = 6
"""Inputs of a search that is measured."""


class Bench:
    """Measures on one device.

    Args:
        sample: The sample of the data.
        facts: What the data are like.
        machine: What the machine can do.
        options: What the user has chosen.
        limit: Seconds after which no model is measured any further; None: no limit.
    """

    def __init__(
        self,
        sample: str | Path,
        facts: DataFacts,
        machine: Machine,
        options: FitOptions,
        limit: float | None = None,
    ):
        self._end = None if limit is None else time.perf_counter() + limit
        self._bar: Progress | None = None
        self.sample = str(sample)
        self.facts = facts
        self.options = options
        self.device = accelerator() if options.device == "auto" else torch.device(options.device)
        precision = machine.precision if options.precision == "auto" else options.precision
        self.precision = precision
        self.corpus = Corpus.read(sample)
        self.queries, self.qrels = read_split(sample, SPLIT, self.corpus)

    def seconds(self, work: Callable[[], Any], times: int = 1) -> float:
        """The mean time of some work.

        Raises:
            TimeIsUp: The time of measuring is over.
        """
        if self._end is not None and time.perf_counter() > self._end:
            raise TimeIsUp
        seconds = self._timed(work, times)
        if self._bar is not None:
            self._bar.update()
        return seconds

    @contextmanager
    def _parts(self, count: int, model: str) -> Iterator[None]:
        """Show how far the measurement of a model is, and not its loops."""
        bar = Progress(count, "measure", f"parts of the {model}'s work", shown=None)
        try:
            with bar as self._bar, reporting(lambda _: None):
                yield
        finally:
            self._bar = None

    def _timed(self, work: Callable[[], Any], times: int = 1) -> float:
        self._wait()
        begun = time.perf_counter()
        for _ in range(times):
            work()
        self._wait()
        return (time.perf_counter() - begun) / times

    def bm25(self) -> tuple[float, float]:
        """Seconds of a passage in the index, and of a query."""
        few = Corpus.from_passages(self.corpus.passages(range(min(20, len(self.corpus)))))
        BM25Retriever(few).retrieve(self.queries[:1], 10)  # what it compiles and imports
        made: list[BM25Retriever] = []
        built = self._timed(lambda: made.append(BM25Retriever(self.corpus)))
        asked = self._timed(lambda: made[0].retrieve(self.queries, 100))
        return built / len(self.corpus), asked / len(self.queries)

    def encoder(self, model: BaseModel) -> EncoderSpeeds:
        """Of the bi-encoder: load, embed passages and queries, train in two sizes of batches."""
        with self._parts(5, "bi-encoder"):
            return self._encoder(model)

    def _encoder(self, model: BaseModel) -> EncoderSpeeds:
        options = recipe(encoder_recipes(self.facts))
        opened: list[BiEncoderModel] = []
        limit = encoder_tokens(self.facts, model)
        device = str(self.device)
        load = self.seconds(
            lambda: opened.append(BiEncoderModel.load(model.name, device=device, max_tokens=limit))
        )
        (encoder,) = opened
        how = replace(BiEncoderOptions(**options["fit"]), multistep=self.facts.hops)
        examples = BiEncoderExamples(self.queries, self.qrels, self.corpus, encoder, how)
        texts = [passage_text(passage) for passage in self.corpus.passages(range(min(32, len(self.corpus))))]
        asked = [encoder.query_text(query.text, self._evidence(query)) for query in self.queries[:32]]
        encoder.encode_passages(texts[:2])
        passage = self.seconds(lambda: encoder.encode_passages(texts)) / len(texts)
        query = self.seconds(lambda: encoder.encode_queries(asked)) / len(asked)
        step = self._encoder_step(encoder, examples, how)
        return EncoderSpeeds(load, step, passage, query)

    def _encoder_step(
        self, encoder: BiEncoderModel, examples: BiEncoderExamples, how: BiEncoderOptions
    ) -> float:
        loss = MaskedRankingLoss(encoder.model, scale=how.scale or 1.0, similarity_fct=encoder.scores)
        collate = PairCollator(encoder, examples)
        numbers = _shuffled(len(examples))

        def batch_loss(count: int) -> Tensor:
            rows = collate([{"number": next(numbers)} for _ in range(count)])
            columns = [
                {key.removeprefix(f"{part}_"): value for key, value in rows.items() if key.startswith(part)}
                for part in ("query", "passage0")
            ]
            mean: Tensor = loss(
                [encoder.on_device(column) for column in columns], rows["label"].to(self.device)
            )
            return mean

        return self._step(encoder.model, batch_loss, ENCODER_BATCH)

    def writer(self, model: BaseModel, source: str | None = None) -> WriterSpeeds:
        """Of the generator: load, index, train in two sizes of batches, search, rescore.

        Args:
            model: The model that it begins with.
            source: What it is opened by; None: its name.
        """
        with self._parts(6 if self.facts.short else 5, "generator"):
            return self._writer(model, source)

    def _writer(self, model: BaseModel, source: str | None) -> WriterSpeeds:
        kind: type[GeneratorSpec] = CausalLM if model.causal else Pretrained
        options = recipe(writer_recipes(self.facts))
        modules: list[RetrieveChains] = []
        module_options = {k: v for k, v in options["model"]["init_args"].items() if k != "generator"}
        module_options["freeze_layers"] = frozen_layers(self.facts, model)
        load = self.seconds(
            lambda: modules.append(
                RetrieveChains(kind(name_or_path=source or model.name), **module_options)  # type: ignore[call-arg]
            )
        )
        (module,) = modules
        module.setup("fit")
        module.to(self.device)
        data = self._chains(options["data"]["init_args"])
        data.read(module)
        indexed = self.seconds(lambda: build_index(data.spans or self.corpus, data.codec))
        step = self._writer_step(module, data)
        search, rescored = self._search(module, data)
        return WriterSpeeds(load, step, search, rescored, indexed / len(self.corpus))

    def _chains(self, options: dict[str, Any]) -> ChainData:
        """The data of the recipe; BM25 stands for the bi-encoder as the teacher."""
        spans = WriteSpans(**options["spans"])
        rescore = Rescore(["bm25"], passages=10) if self.facts.short else None
        own = {
            "data": self.sample,
            "spans": spans,
            "rescore": rescore,
            "teacher": "bm25",
            "teacher_temperature": None,
            "train_split": SPLIT,
            "dev_split": SPLIT,
        }
        return ChainData(**{**options, **own})

    def _writer_step(self, module: RetrieveChains, data: ChainData) -> float:
        numbers = _shuffled(len(data.train_examples))

        def batch_loss(count: int) -> Tensor:
            rows = [data.train_examples.draw(next(numbers), 0) for _ in range(count)]
            batch = move_data_to_device(data.collator(rows), self.device)
            return module.batch_loss(batch)

        return self._step(module.model, batch_loss, writer_batch(self.facts))

    def _search(self, module: RetrieveChains, data: ChainData) -> tuple[float, float]:
        """Seconds of an input of a search, and of a passage that is read to its end."""
        model = move(module.model, str(self.device), self.precision)
        options = SearchOptions(beams=10, truncate_queries=True)
        parts = (model, data.codec, data.corpus, data.index, options)
        retriever = GenerativeRetriever(*parts, spans=data.spans, rescore_input=data.rescore_input)
        inputs = [one.source for one in data.dev_inputs()][-_INPUTS:]
        exclude = [[retriever.done]] * len(inputs)
        retriever.search(inputs[:1], 10, exclude[:1])
        searched = self.seconds(lambda: retriever.search(inputs, 20, exclude)) / len(inputs)
        if data.rescore_input is None:
            return searched, 0.0
        read = [list(range(min(10, len(data.corpus))))] * 2
        rescored = self.seconds(lambda: retriever.rescore(inputs[:2], read[: len(inputs)]))
        return searched, rescored / sum(map(len, read))

    def _step(self, model: Any, batch_loss: Callable[[int], Tensor], whole: int) -> float:
        """Seconds of an optimizer step on a whole batch."""
        gpu = self.device.type == "cuda"
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-7)
        model.train()

        def step(size: int) -> None:
            with self._mixed():
                loss = batch_loss(size)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        few = whole if gpu else _FEW
        each = self.seconds(lambda: step(few)) / few
        count = whole if gpu else max(_FEW, min(whole // _PART, int(_LONG / each)))
        times = 2 if 2 * count * each <= _LONG else 1
        seconds = self.seconds(lambda: step(count), times) * whole / count
        model.eval()
        return seconds

    @contextmanager
    def _mixed(self) -> Iterator[None]:
        mixed = self.precision == "bfloat16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=mixed):
            yield

    def _evidence(self, query: Query) -> list[Any]:
        """The first gold passage of a query, where the data ask for hops."""
        names = gold_passages(query, self.qrels)[: int(self.facts.hops)]
        numbers = [number for number in self.corpus.numbers(names) if number is not None] if names else []
        return self.corpus.passages(numbers) if numbers else []

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def _shuffled(count: int) -> Iterator[int]:
    """Numbers below ``count`` at random, without end."""
    rng = random.Random(0)
    while True:
        yield from rng.sample(range(count), count)
