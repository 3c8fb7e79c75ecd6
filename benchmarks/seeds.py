"""The same training with several seeds: mean and spread of its results.

    python -m benchmarks.seeds ruletaker-paper
    python -m benchmarks.seeds entailmentbank --seeds '[0, 1, 2]' --dry_run true

A seed decides the first weights, the order of the examples and all draws of training; data and options stay.
Each step is a `grls` command, printed before it runs; existing results are kept, so a killed run
goes on (after a change of settings, remove runs/NAME/seed-*). Two processes may share the work, one seed
each; after both have ended, call the benchmark with all seeds for the table. The runs of all
seeds may also be fused. The table on test has the mean over seeds, the sample standard deviation, and every
seed's value; it is also written to runs/NAME/seeds.md.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli

from benchmarks.common import going_on
from benchmarks.recipes import RECIPES, Stage
from benchmarks.trainings import options as training
from grls.cli import main as grls
from grls.errors import GrlsError
from grls.evaluation.evaluate import evaluate_run, measure_label
from grls.io.files import atomic_file
from grls.models.option_names import Precision

_ALIKE = ("--fusion.method", "sum")
_FUSED = (*_ALIKE, "--tune.k", "5")


@dataclass
class Repeat:
    """Runs the commands of one recipe with several seeds, into ``runs/NAME/seed-N``; see :func:`main`."""

    name: str
    dry_run: bool = False
    precision: str | None = None
    search_precision: Precision = "float32"
    commands: list[list[str]] = field(default_factory=list)

    def measures_of(self, seed: int) -> dict[str, dict[str, float]]:
        """Train and retrieve with one seed: the measures of each run."""
        recipe, folder, data = RECIPES[self.name], Path("runs") / self.name / f"seed-{seed}", self._data
        for stage in recipe.stages:
            self._train(stage, folder, seed)
        last = recipe.stages[-1].config
        retrievers = {stage: folder / f"{stage}-retriever" for stage in recipe.by.values()}
        retrievers[last] = folder / "retriever"
        for config, retriever in retrievers.items():
            model = folder / config / "model"
            arguments: tuple[str, ...] = (str(model), "--corpus", data, "--output", str(retriever))
            self._grls("index", *arguments, makes=retriever / "grls.json")
        measured = {}
        runs = {}
        for name, options in recipe.runs.items():
            retriever = retrievers[recipe.by.get(name, last)]
            if name in recipe.priors:
                retriever = self._hybrid(retriever, recipe.priors[name], folder / f"{name}-retriever")
            runs[name] = (folder, (str(retriever), "--precision", self.search_precision, *options))
        runs |= {name: (folder.parent, options) for name, options in recipe.beside.items()}
        fused = (*recipe.ensembles.values(), *recipe.across.values())
        tuned = {member for members in fused for member in members}
        for name, (where, options) in runs.items():
            for split in ("dev", "test") if name in tuned else ("test",):
                output = where / f"{name}-{split}"
                arguments = (*options, "--data", data, "--split", split)
                result = Path(f"{output}.info.json")
                self._grls("retrieve", *arguments, "--output", str(output), makes=result)
            measured[name] = self._measured(output)
        files = {name: where / name for name, (where, _) in runs.items()}
        for name, members in recipe.ensembles.items():
            output = folder / f"{name.replace(' ', '')}-test"
            measured[name] = self._fused([files[member] for member in members], output)
        return measured

    def _hybrid(self, generator: Path, priors: Mapping[str, float], output: Path) -> Path:
        """Make the folder of a generator with priors, and return its path."""
        weights = map(str, priors.values())
        arguments = (str(generator), "--priors", *priors, "--weights", *weights, "--output", str(output))
        self._grls("index", "hybrid", *arguments, makes=output / "grls.json")
        return output

    def across(self, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
        """Fuse the runs of all seeds, with equal weights for each member, then the members; the measures."""
        root, of = Path("runs") / self.name, "-".join(["of", *map(str, seeds)])
        measured = {}
        for name, members in RECIPES[self.name].across.items():
            kinds = [root / f"{member}-{of}" for member in members]
            for member, kind in zip(members, kinds, strict=True):
                for split in ("dev", "test"):
                    runs = [f"{root}/seed-{seed}/{member}-{split}.jsonl" for seed in seeds]
                    arguments = (*_ALIKE, "--data", self._data, "--output", f"{kind}-{split}")
                    self._grls("fuse", *runs, *arguments, makes=Path(f"{kind}-{split}.info.json"))
            measured[name] = self._fused(kinds, root / f"{name.replace(' ', '')}-{of}-test")
        return measured

    def _fused(self, members: Sequence[Path], output: Path) -> dict[str, float]:
        """Fuse runs with weights tuned on dev; the measures."""
        dev, test = ([f"{member}-{split}.jsonl" for member in members] for split in ("dev", "test"))
        arguments = (*_FUSED, "--data", self._data, "--output", str(output))
        result = Path(f"{output}.info.json")
        self._grls("fuse", *test, "--tune.runs", json.dumps(dev), *arguments, makes=result)
        return self._measured(output)

    @property
    def _data(self) -> str:
        return f"data/{self._set}"

    @property
    def _set(self) -> str:
        return RECIPES[self.name].data or self.name

    def _measured(self, run: Path) -> dict[str, float]:
        """The measures of a run on test; empty in a dry run."""
        return {} if self.dry_run else flat(evaluate_run(f"{run}.jsonl", self._data, "test"))

    def _train(self, stage: Stage, folder: Path, seed: int) -> None:
        options = training(self._set, stage.config)
        options += ["--seed_everything", str(seed)]
        if self.precision is not None:
            options += ["--trainer.precision", self.precision]
        if stage.after is not None:
            options += ["--model.generator.name_or_path", str(folder / stage.after / "model")]
        output = folder / stage.config
        result = output / "model" / "config.json"
        self._grls("train", *options, "--output", str(output), *going_on(result), makes=result)

    def _grls(self, *arguments: str, makes: Path) -> None:
        """Run a command unless its result exists."""
        command = list(arguments)
        self.commands.append(command)
        print(f"grls {shlex.join(command)}", flush=True)
        if self.dry_run or makes.is_file():
            return
        if grls(command) != 0:
            raise GrlsError(f"the seeds stop at: grls {shlex.join(command)}")


def flat(measures: Mapping[str, Any]) -> dict[str, float]:
    """Measures between 0 and 1 by name, without counts; the group is added to names that do not say it."""
    named: dict[str, float] = {}
    for name, value in measures.items():
        group = name.replace("_", " ")
        if isinstance(value, Mapping):
            for key, number in flat(value).items():
                says_group = any(word in key for word in group.split())  # "sequence recall", "recall@5"
                named[measure_label(*([] if says_group else [group]), key)] = number
        elif isinstance(value, float):
            named[measure_label(name)] = value
    return named


def table(by_seed: Sequence[Mapping[str, Mapping[str, float]]], seeds: Sequence[int]) -> str:
    """A table in Markdown of the measures of every seed, in percent."""
    lines = [
        f"| run | measure | mean | spread | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        f"|---|---|---:|---:|{'---:|' * len(seeds)}",
    ]
    for run in by_seed[0]:
        for measure in by_seed[0][run]:
            values = [100 * measures[run][measure] for measures in by_seed]
            spread = f"{statistics.stdev(values):.1f}" if len(values) > 1 else "–"
            each = " | ".join(f"{value:.1f}" for value in values)
            lines.append(f"| {run} | {measure} | {statistics.mean(values):.1f} | {spread} | {each} |")
    return "\n".join(lines)


def main(
    name: str,
    seeds: tuple[int, ...] = (0, 1, 2),
    dry_run: bool = False,
    precision: str | None = None,
    search_precision: Precision = "float32",
) -> None:
    """Train with several seeds and print mean and spread.

    Args:
        name: ruletaker-paper; entailmentbank, strategyqa, nq or explagraphs (a language model that writes
            spans, then hop by hop for explagraphs);
            entailmentbank-wt (with WorldTree's pairs: spans and rescoring learned together, then hop by
            hop); explagraphs-rescore, strategyqa-rescore (spans and rescoring learned together). The data
            are in data/NAME, or in data/explagraphs and data/strategyqa for the last two. The bi-encoder's
            retriever that trainings and runs name must exist.
        seeds: The seeds.
        dry_run: Print the commands only.
        precision: Precision of training; `bf16-mixed` on a processor with bfloat16.
        search_precision: Precision of retrieval; `bfloat16` on a processor with bfloat16.
    """
    if name not in RECIPES:
        raise SystemExit(f"error: unknown recipe {name!r}; choose one of {', '.join(RECIPES)}.")
    if not seeds:
        raise SystemExit("error: --seeds is empty; name at least one seed.")
    repeat = Repeat(name, dry_run, precision, search_precision)
    by_seed = [repeat.measures_of(seed) for seed in seeds]
    across = repeat.across(seeds) if len(seeds) > 1 else {}
    if dry_run:
        return
    text = table(by_seed, seeds)
    for run, measures in across.items():
        rows = [f"| {run} | {measure} | {100 * value:.1f} |" for measure, value in measures.items()]
        text = "\n".join([text, "", "| all seeds fused | measure | |", "|---|---|---:|", *rows])
    print(text)
    with atomic_file(str(Path("runs") / name / "seeds.md")) as stream:
        stream.write(text + "\n")


if __name__ == "__main__":
    auto_cli(main)
