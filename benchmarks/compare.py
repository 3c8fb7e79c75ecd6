"""The whole comparison on one data set: train every system, retrieve, fuse, report.

    python -m benchmarks.compare entailmentbank
    python -m benchmarks.compare entailmentbank --dry_run true

Systems: the generator with and without the memorisation stage, the bi-encoder fine-tuned and frozen, BM25,
ensembles of generator and bi-encoder, and the generator with the bi-encoder as a prior. Every step is a
`grls` command, printed before it runs; existing results are kept, so a killed comparison goes on
(after a change of settings, remove runs/NAME). This module only decides the bias of DONE: the bias with the
best set F1 on dev is used on test. The commands tune weights of ensembles and of hybrid decoding on dev.
Nothing is chosen on test.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

from jsonargparse import auto_cli

from benchmarks.common import going_on
from benchmarks.trainings import options as training
from grls.cli import main as grls
from grls.data.types import Steps
from grls.errors import GrlsError
from grls.evaluation.evaluate import evaluate_run

BIASES = {
    "generator": (0.0, -1.0, -2.0),
    "biencoder": (0.0, 0.1, 0.2, 0.3),
}
"""Biases of DONE to try on dev: log-odds for a generator, inner products of unit vectors for a bi-encoder."""

SECOND = ("generator2", "biencoder2")
"""The systems trained with a second seed."""


@dataclass(frozen=True)
class Plan:
    """The comparison on a data set.

    Args:
        hops: Hops of fixed multi-step retrieval; 0 leaves it out.
        dynamic: Compare dynamic retrieval.
        pooled: Fixed retrieval ranks the passages of several chains (HotpotQA: two hops, twenty passages).
        frozen: Compare the sentence encoder without fine-tuning (useless for an invented language).
        biases: Biases to try on dev for the bi-encoder; vectors of another length than one need other biases.
        measures: Measures of the report; the first one says which system is best.
        seeds: Train generator and bi-encoder with a second seed, for ensembles of two equal systems.
        nomem: Options that replace the memorised model by an untrained one.
    """

    hops: int = 10
    dynamic: bool = True
    pooled: bool = False
    frozen: bool = True
    seeds: bool = False
    biases: tuple[float, ...] = BIASES["biencoder"]
    measures: str = "R@5 R@1 R@10 R@20 nDCG@10"
    nomem: tuple[str, ...] = (
        "--model.generator=WarmStart",
        "--model.generator.encoder=all-MiniLM-L6-v2",
        "--model.generator.decoder_layers=3",
    )


SMALL_T5 = ("vocabulary=1000", "d_model=128", "d_ff=512", "d_kv=32", "num_layers=2", "num_decoder_layers=2",
            "num_heads=4", "dropout=0.0")  # fmt: skip
PLANS = {
    "entailmentbank": Plan(),
    "strategyqa": Plan(seeds=True),
    "explagraphs": Plan(),
    "nq": Plan(hops=0, dynamic=False),
    "hotpotqa": Plan(hops=2, dynamic=False, pooled=True, measures="R@2 R@10 R@20 nDCG@10"),
    "ruletaker": Plan(
        frozen=False,
        biases=(-4.0, 0.0, 4.0, 8.0, 16.0),
        nomem=(
            "--model.generator=ScratchT5",
            "--model.generator.data=data/ruletaker",
            *(f"--model.generator.{option}" for option in SMALL_T5),
        ),
    ),
}


@dataclass
class Comparison:
    """Runs the commands of one comparison, over ``data/NAME`` into ``runs/NAME``; see :func:`main`.

    Attributes:
        commands: The commands that were run or printed.
        runs: The runs on test, for the report.
        best_bias: System -> bias of DONE in its dynamic retrieval.
    """

    name: str
    dry_run: bool = False
    skip: tuple[str, ...] = ()
    steps: tuple[Steps, ...] = ("single", "fixed", "dynamic")
    commands: list[list[str]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    best_bias: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan = PLANS[self.name]
        hops = plan.hops if "fixed" in self.steps else 0
        self.plan = replace(plan, hops=hops, dynamic=plan.dynamic and "dynamic" in self.steps)
        self.folder = Path("runs") / self.name
        self.data = f"data/{self.name}"

    def run(self) -> None:
        """Everything, in order."""
        self.train()
        self.indexes()
        for system in self.systems():
            self.retrieve(system)
        if not {"generator", "biencoder"} & set(self.skip):
            self.ensembles()
            self.hybrid()
        options = ("--measures", self.plan.measures, "--output", f"{self.folder}/report")
        self.grls("experiment", *self.runs, *options)

    def systems(self) -> tuple[str, ...]:
        """The single systems."""
        more = [*(["frozen"] if self.plan.frozen else []), *self.seconds()]
        every = ("generator", "nomem", "biencoder", *more, "bm25")
        return tuple(system for system in every if system not in self.skip)

    def seconds(self) -> list[str]:
        """The systems with a second seed."""
        return [system for system in SECOND if self.plan.seeds and system not in self.skip]

    def train(self) -> None:
        """Train both stages of the generator, the second one also without the first, and the bi-encoder."""
        stages = {
            "memorise": ("memorise", ()),
            "retrieve": ("retrieve", ()),
            "nomem": ("retrieve", self.plan.nomem),
        }
        left_out = {*self.skip, *(("memorise", "retrieve") if "generator" in self.skip else ())}
        stages = {output: stage for output, stage in stages.items() if output not in left_out}
        for output, (stage, options) in stages.items():
            layers = training(self.name, stage)
            where = ("--output", f"{self.folder}/{output}") if options else ()
            result = self.folder / output / "model" / "config.json"
            self.grls("train", *layers, *where, *options, *going_on(result), makes=result)
        result = self.folder / "biencoder" / "model" / "modules.json"
        if "biencoder" not in self.skip:
            self.grls("train", *training(self.name, "biencoder"), makes=result)
        for output in self.seconds():
            self.second(output)

    def second(self, output: str) -> None:
        """The same training with another seed."""
        where = ("--output", f"{self.folder}/{output}")
        result = self.folder / output / "model"
        if output == "generator2":
            seeds = ("--seed_everything", "1")
            options = (*training(self.name, "retrieve"), *where, *seeds, *going_on(result / "config.json"))
            self.grls("train", *options, makes=result / "config.json")
        else:
            options = (*training(self.name, "biencoder"), *where, "--fit.seed", "1")
            self.grls("train", *options, makes=result / "modules.json")

    def indexes(self) -> None:
        """A retriever folder for each system that has a model."""
        for system in self.systems():
            if system != "bm25":
                stage = "retrieve" if system == "generator" else system
                model = "all-MiniLM-L6-v2" if system == "frozen" else f"{self.folder}/{stage}/model"
                output = f"{self.folder}/{system}-retriever"
                self.grls(
                    "index", model, "--corpus", self.data, "--output", output,
                    makes=Path(output) / "grls.json",
                )  # fmt: skip

    def retrieve(self, system: str) -> None:
        """Retrieve in a single step (also on dev, to tune fusion), and hop by hop as planned."""
        for split in ("dev", "test"):
            self.retrieve_run(system, "single", split, "--k", "20", "--search.beams", "20")
        if self.plan.pooled:
            wide = ("--hops.pool", "true", "--k", "20", "--search.beams", "20")
            self.retrieve_run(system, "fixed", "test", *_hops(self.plan.hops, 10), *wide)
        elif self.plan.hops:
            self.retrieve_run(system, "fixed", "test", *_hops(self.plan.hops, 1))
        if self.plan.dynamic and system in ("generator", "nomem", "biencoder"):
            self.dynamic(system)

    def dynamic(self, system: str) -> None:
        """Dynamic retrieval with the best bias of DONE on dev (nomem takes the generator's bias)."""
        options = _hops(12, 2)
        if system == "nomem":
            bias = self.best_bias.get("generator", 0.0)
            self.retrieve_run(system, "dynamic", "test", *options, "--hops.done_bias", f"{bias:g}")
            return
        tuned = {}
        for bias in self.plan.biases if system == "biencoder" else BIASES[system]:
            name = f"{system}-dynamic{bias:+g}"
            self.retrieve_run(system, "dynamic", "dev", *options, "--hops.done_bias", f"{bias:g}", name=name)
            if not self.dry_run:
                run = f"{self.folder}/{name}-dev.jsonl"
                tuned[bias] = evaluate_run(run, self.data, "dev")["set"]["f1"]
        best = max(tuned, key=lambda bias: tuned[bias]) if tuned else 0.0
        self.best_bias[system] = best
        print(f"# {system}: set F1 on dev by done_bias: {tuned}; test with {best:g}")
        self.retrieve_run(system, "dynamic", "test", *options, "--hops.done_bias", f"{best:g}")

    def retrieve_run(self, system: str, steps: str, split: str, *options: str, name: str = "") -> None:
        """One run."""
        retriever = system if system == "bm25" else f"{self.folder}/{system}-retriever"
        output = f"{self.folder}/{name or f'{system}-{steps}'}{'-dev' if split == 'dev' else ''}"
        if split == "test":
            self.runs.append(f"{output}.jsonl")
        self.grls(
            "retrieve", retriever, "--data", self.data, "--split", split, "--hops.steps", steps, *options,
            "--name", f"{system}, {steps}", "--output", output, makes=Path(f"{output}.info.json"),
        )  # fmt: skip

    def ensembles(self) -> None:
        """Fuse generator and bi-encoder as in the paper, and with tuned weights; two seeds; and with BM25."""
        pair = ("generator", "biencoder")
        dev = [f"{self.folder}/{system}-single-dev.jsonl" for system in pair]
        tuned = ("--config", "configs/fusion.yaml", "--tune.runs", json.dumps(dev))
        both = "generator + biencoder"
        self.fuse("ensemble-single", f"{both}, interleaved, single", pair)
        self.fuse("ensemble-tuned-single", f"{both}, tuned, single", pair, *tuned)
        self.fuse(
            "ensemble-rrf-single", f"{both} + bm25, rrf, single", (*pair, "bm25"), "--fusion.method", "rrf"
        )
        plan = self.plan
        if plan.hops:
            cut = ("--k", "20") if plan.pooled else ()
            self.fuse("ensemble-fixed", f"{both}, interleaved, fixed", pair, *cut)
        for second in self.seconds():
            system = second.removesuffix("2")
            name = f"two {system}s, interleaved, single"
            self.fuse(f"ensemble-{system}s-single", name, (system, second))

    def hybrid(self) -> None:
        """The generator with the bi-encoder as prior, whose weight is tuned on dev."""
        folder, output = f"{self.folder}/hybrid-retriever", f"{self.folder}/hybrid-single"
        result, wide = Path(f"{output}.info.json"), ("--search.beams", "20")
        self.grls(
            "index", "hybrid", f"{self.folder}/generator-retriever",
            "--priors", f"{self.folder}/biencoder-retriever", "--output", folder,
            makes=Path(folder) / "grls.json",
        )  # fmt: skip
        # the folder holds the weights, so only the run tells whether they were tuned
        self.grls("tune", folder, "--data", self.data, *wide, makes=result)
        self.runs.append(f"{output}.jsonl")
        self.grls(
            "retrieve", folder, "--data", self.data, "--k", "20", *wide,
            "--name", "generator + biencoder, hybrid, single", "--output", output, makes=result,
        )  # fmt: skip

    def fuse(self, output: str, name: str, systems: tuple[str, ...], *options: str) -> None:
        """One ensemble."""
        runs = [f"{self.folder}/{system}-{output.rpartition('-')[2]}.jsonl" for system in systems]
        result = str(self.folder / output)
        self.runs.append(f"{result}.jsonl")
        options = (*options, "--output", result, "--name", name)
        self.grls("fuse", *runs, *options, makes=Path(f"{result}.info.json"))

    def grls(self, *arguments: str, makes: Path | None = None) -> None:
        """Run a command unless its result exists."""
        command = list(arguments)
        self.commands.append(command)
        print(f"grls {shlex.join(command)}", flush=True)
        if self.dry_run or (makes is not None and makes.is_file()):
            return
        if grls(command) != 0:
            raise GrlsError(f"the comparison stops at: grls {shlex.join(command)}")


def _hops(most: int, chains: int) -> tuple[str, ...]:
    """Options for ``most`` hops with ``chains`` chains and as many passages that continue each chain."""
    return ("--hops.max", str(most), "--hops.chains", str(chains), "--hops.branch", str(chains))


def main(
    name: str,
    dry_run: bool = False,
    skip: tuple[str, ...] = (),
    steps: tuple[Steps, ...] = ("single", "fixed", "dynamic"),
) -> None:
    """Compare every system on a data set.

    Args:
        name: entailmentbank, strategyqa, explagraphs, nq, hotpotqa or ruletaker; the data are in data/NAME.
        dry_run: Print the commands only.
        skip: Systems to leave out; without generator or bi-encoder there are no ensembles.
        steps: Kinds of retrieval to compare; ``single`` is always included.
    """
    if name not in PLANS:
        raise SystemExit(f"error: unknown data set {name!r}; choose one of {', '.join(PLANS)}.")
    Comparison(name, dry_run, skip, steps).run()


if __name__ == "__main__":
    auto_cli(main)
