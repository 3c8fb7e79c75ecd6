"""The stages of a plan from an effort: the options of each.

The module decides nothing about how much is done (:mod:`grls.fitting.effort`), but which recipes and options
a stage has. How long it takes: :mod:`grls.fitting.stage_times`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grls.fitting.effort import (
    ENCODER_BATCH,
    ENCODER_EPOCHS,
    WRITER_EPOCHS,
    Effort,
    encoder_examples,
    writer_batch,
)
from grls.fitting.facts import DataFacts
from grls.fitting.machine import Machine
from grls.fitting.models import BaseModel, BaseModels
from grls.fitting.options import FitOptions
from grls.fitting.plan import Stage
from grls.fitting.speeds import Speeds
from grls.fitting.stage_times import BEAMS, RESCORED, StageTimes, ranked_queries
from grls.io.counts import counted

_WORD_TEMPERATURES = [1.0, 0.5, 0.25]
"""Factors of the usual temperature of BM25's hops: below it the chain that the question names counts most."""

_PRIOR_BYTES = 32
"""Memory of both priors for a row of the index and a query in flight."""

_PRIOR_SHARE = 0.25
"""The share of free memory that priors may take."""

_IN_FLIGHT = 32
"""Queries that are searched together, usually."""

_FROZEN = 12
"""Layers of the packaged model that are not trained where it learns to rescore (recipe ``rescore``)."""


@dataclass(frozen=True)
class StageMaker:
    """Makes stages.

    Args:
        facts: What the data are like.
        machine: What the machine can do.
        models: The models to begin with.
        speeds: How long the parts take.
        options: What the user has chosen.
    """

    facts: DataFacts
    machine: Machine
    models: BaseModels
    speeds: Speeds
    options: FitOptions

    @cached_property
    def times(self) -> StageTimes:
        """How long the stages take."""
        return StageTimes(self.facts, self.machine, self.speeds, self.options)

    def stages(self, effort: Effort) -> list[Stage]:
        """All stages, in order."""
        level = effort.level
        stages = [self._tune_words(effort)] if self._word_hops(effort) else []
        stages += [self._biencoder(effort)] if level.encoder == "trained" else []
        stages += [self._dense(effort)] if level.encoder != "none" else []
        if level.encoder == "trained" and self.facts.hops:
            stages.append(self._tune_dense(effort))
        if level.writer:
            stages += [self._generator(effort), self._index(), self._hybrid(effort), self._tune(effort)]
        stages.append(self._compare(effort))
        systems = self.systems(effort)
        fused = [system for system in systems if system != "generator"]  # or the hybrid, the better of both
        stages += [self._fusion(effort, fused)] if len(fused) > 1 else []
        return [*stages, self._report(effort, systems)]

    def systems(self, effort: Effort) -> list[str]:
        """The systems that are compared, without their fusion."""
        level = effort.level
        systems = ["bm25"] + (["bm25-hops"] if self._word_hops(effort) else [])
        systems += ["dense"] if level.encoder != "none" else []
        systems += ["dense-hops"] if level.encoder == "trained" and self.facts.hops else []
        systems += ["generator"] if level.writer and self._cheap_alone(effort) else []
        return systems + (["hybrid"] if level.writer else [])

    def _cheap_alone(self, effort: Effort) -> bool:
        """Whether the generator is compared alone, too: where that is a small part of the budget."""
        return self.times.is_cheap("generator", effort)

    def _word_hops(self, effort: Effort) -> bool:
        """Whether BM25 is ranked by hops, too: the same rule."""
        return effort.word_hops and self.times.is_cheap("bm25-hops", effort)

    def _tune_words(self, effort: Effort) -> Stage:
        hops = self.facts.most_hops
        options = {**self._tuned(effort), "hops.steps": "ranked", "hops.max": hops}
        options |= {"grid.hops": [*range(1, hops + 1)], "grid.hop_temperatures": _WORD_TEMPERATURES}
        what = f"hops of BM25, on {effort.dev:,} dev queries"
        return Stage("tune", what, options, self.times.tune_words(effort), system="bm25-hops")

    def _biencoder(self, effort: Effort) -> Stage:
        facts, model = self.facts, self.models.biencoder
        assert model is not None
        epochs = min(ENCODER_EPOCHS, -(-effort.encoder_steps * ENCODER_BATCH // encoder_examples(facts)))
        dev = min(100, facts.splits[facts.dev].queries)
        options = {
            "source": model.name,
            "kind": "auto",
            "max_tokens": encoder_tokens(facts, model),
            "train_split": facts.train,
            "dev_split": facts.dev,
            "fit.multistep": facts.hops,
            "fit.epochs": epochs,
            "fit.max_steps": effort.encoder_steps,
            "fit.dev_size": dev,
            "fit.dev_passages": effort.encoder_passages,
            "fit.gradient_checkpointing": self.times.low_memory,
            "fit.k": self.options.k,
            "fit.seed": self.options.seed,
            "fit.precision": self.options.precision,
            "fit.device": "cpu" if self.options.device == "cpu" else "auto",
        }
        what = f"fine-tune {model.title}, {counted(effort.encoder_steps, 'step')} of {ENCODER_BATCH}"
        what += " hops" if facts.hops else " queries"
        seconds = self.times.biencoder(effort, epochs, dev)
        return Stage("biencoder", what, options, seconds, encoder_recipes(facts), "dense")

    def _dense(self, effort: Effort) -> Stage:
        options: dict[str, Any] = {"kind": "dense", "device": self.options.device}
        if effort.level.encoder == "frozen":
            assert self.models.biencoder is not None
            options["model"] = self.models.biencoder.name
        what = f"embed {counted(self.facts.passages, 'passage')}"
        return Stage("dense", what, options, self.times.dense(), system="dense")

    def _tune_dense(self, effort: Effort) -> Stage:
        hops = self.facts.most_hops
        options = {**self._tuned(effort), "hops.steps": "ranked", "hops.max": hops}
        options |= {"grid.hops": [*range(1, hops + 1)]}
        what = f"hops of the bi-encoder, on {counted(effort.dev, 'dev query')}"
        return Stage("tune", what, options, self.times.tune_dense(effort), system="dense-hops")

    def _generator(self, effort: Effort) -> Stage:
        facts, model = self.facts, self.models.generator
        assert model is not None
        batch = writer_batch(facts)
        whole = -(-facts.splits[facts.train].queries // batch)
        epochs = min(WRITER_EPOCHS, max(2, -(-effort.writer_steps // whole)))
        each = max(1, min(whole, effort.writer_steps // epochs))
        options: dict[str, Any] = {
            "seed_everything": self.options.seed,
            "trainer.max_epochs": epochs,
            "trainer.limit_train_batches": each,
            "trainer.precision": _LIGHTNING[self.options.precision],
            "trainer.accelerator": "cpu" if self.options.device == "cpu" else "auto",
            "trainer.devices": 1,
            "model.generator": {"class_path": model.loader, "init_args": {"name_or_path": model.name}},
            "model.gradient_checkpointing": self.times.low_memory,
            "data.train_split": facts.train,
            "data.dev_split": facts.dev,
            "data.multistep": facts.writer_hops,
            "data.done": facts.writer_hops,
            "data.dev_size": effort.writer_dev,
            "recall.k": self.options.k,
            "recall.beams": BEAMS,
        }
        options |= {"data.teacher": "dense"} if effort.level.encoder != "none" else {}
        options |= self._rescoring(effort, model)
        steps = f"{counted(epochs * each, 'step')} of {counted(batch, 'query')}"
        what = f"fine-tune {model.title} to write spans, {steps}"
        what += ", and to rescore" if effort.rescore else ""
        seconds = self.times.generator(effort, epochs, epochs * each)
        return Stage("generator", what, options, seconds, writer_recipes(facts), "hybrid")

    def _rescoring(self, effort: Effort, model: BaseModel) -> dict[str, Any]:
        if not effort.rescore:
            return {}
        options: dict[str, Any] = {
            "data.rescore.retrievers": ["dense", "bm25"] if effort.level.encoder != "none" else ["bm25"],
            "data.rescore.passages": 10,
            "model.rescore_weight": 3.0,
            "recall.rescore": BEAMS,
        }
        return options | {"model.freeze_layers": frozen_layers(self.facts, model)}

    def _index(self) -> Stage:
        what = "the constraint index of all spans"
        return Stage("index", what, dict(self._searched), self.times.index(), system="hybrid")

    def _hybrid(self, effort: Effort) -> Stage:
        priors = [*(["dense"] if effort.level.encoder != "none" else []), "bm25"]
        options = {"priors": priors, **self._searched}
        what = "the generator, with " + " and ".join(_NAMES[prior] for prior in priors) + " looking ahead"
        return Stage("hybrid", what, options, self.times.opened(0), system="hybrid")

    def _tune(self, effort: Effort) -> Stage:
        options = {**self._tuned(effort), **self._searched}
        parts = "weights"
        if effort.hops > 1:
            options |= {"hops.steps": "ranked", "hops.max": effort.hops, "hops.chains": effort.chains}
            options |= {"grid.hops": [*range(1, effort.hops + 1)], "grid.hop_temperatures": [1.0]}
            parts = f"weights and up to {counted(effort.hops, 'hop')} of {counted(effort.chains, 'chain')}"
        if effort.rescore:
            options["grid.rescore_passages"] = RESCORED
        what = f"{parts} of the hybrid, on {counted(effort.dev, 'dev query')}"
        return Stage("tune", what, options, self.times.tune(effort), system="hybrid")

    def _compare(self, effort: Effort) -> Stage:
        facts, systems = self.facts, self.systems(effort)
        limits = {"dev_limit": effort.dev, "test_limit": effort.test}
        whole = {"dev_limit": facts.splits[facts.dev].queries, "test_limit": facts.splits[facts.test].queries}
        options: dict[str, Any] = {"systems": systems, "k": self.options.depth}
        options |= {"precision": self.machine_precision}
        options |= {name: None if limits[name] == whole[name] else limits[name] for name in limits}
        counts = ranked_queries(facts, effort)
        return Stage("compare", ranked_what(counts), options, self.times.compare(effort, systems))

    def _fusion(self, effort: Effort, systems: Sequence[str]) -> Stage:
        options = {"members": systems, "fusion.method": "sum", "fusion.normalization": "min-max"}
        seconds = self.times.fusion(effort, len(systems))
        return Stage("fusion", "fuse the systems, with weights from dev", options, seconds, system="fusion")

    def _report(self, effort: Effort, systems: Sequence[str]) -> Stage:
        options = {"systems": [*systems, *(["fusion"] if len(systems) > 1 else [])], "baselines": ["bm25"]}
        options["baselines"] += ["dense"] if "dense" in systems else []
        return Stage(
            "report", "keep the best on dev; the page and the model card", options, self.times.report()
        )

    @property
    def machine_precision(self) -> str:
        """The precision of search."""
        chosen = self.options.precision
        return self.machine.precision if chosen == "auto" else chosen

    @property
    def _searched(self) -> dict[str, Any]:
        """The options of the hybrid's search; priors hold a value for each row of each query in flight."""
        fits = int(_PRIOR_SHARE * self.machine.room * 2**30 / (self.facts.rows * _PRIOR_BYTES))
        size = max(1, min(_IN_FLIGHT, fits))
        return {"search.beams": BEAMS, "search.truncate_queries": True, "search.batch_size": size}

    def _tuned(self, effort: Effort) -> dict[str, Any]:
        """The options of every tuning."""
        return {
            "split": self.facts.dev,
            "limit": effort.dev,
            "grid.k": self.options.k,
            "device": self.options.device,
            "precision": self.machine_precision,
        }


_NAMES = {"dense": "the bi-encoder", "bm25": "BM25"}
_LIGHTNING = {"auto": "auto", "float32": "32-true", "bfloat16": "bf16-mixed"}


def ranked_what(counts: Mapping[str, int], systems: str = "every system") -> str:
    """What a comparison does, for people.

    Args:
        counts: Split -> number of its queries.
        systems: What they are ranked with.
    """
    *more, last = counts
    before = ", ".join(f"{counts[split]:,} {split}" for split in more)
    queries = counted(counts[last], f"{last} query")
    return f"rank {before}{' and ' if before else ''}{queries} with {systems}"


def encoder_recipes(facts: DataFacts) -> tuple[str, ...]:
    """The recipes of the bi-encoder for a data set."""
    return ("biencoder", "default/biencoder" if facts.hops else "single-step/biencoder")


def encoder_tokens(facts: DataFacts, model: BaseModel) -> int:
    """The longest text of the bi-encoder in tokens: the recipe's, or the positions of the model."""
    usual = 192 if facts.hops else 256
    return usual if model.positions is None else min(usual, model.positions)


def frozen_layers(facts: DataFacts, model: BaseModel) -> int:
    """First layers of a generator that are not trained, where it learns to rescore."""
    return _FROZEN if facts.short and model.causal and model.place == "package" else 0


def writer_recipes(facts: DataFacts) -> tuple[str, ...]:
    """The recipes of the generator for a data set."""
    return ("chains", "default/chains" if facts.writer_hops else "single-step/chains")
