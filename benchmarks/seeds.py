"""The same training with several seeds, and what of its results is chance.

    python -m benchmarks.seeds ruletaker-paper
    python -m benchmarks.seeds entailmentbank --seeds '[0, 1, 2]' --dry_run true

Every seed draws the first weights, the order of the examples and what is drawn of them anew; data and options
stay. Each step is a `grls` command, printed before it runs; what exists already is not made again, so a
killed run goes on (after a change of settings, remove runs/NAME/seed-*). Two processes may share the
work, one seed each; once both have ended, call it with all seeds for the table. Rankings may be cut, too, so
that sets are measured, and the runs of all seeds fused. The table on test has the mean over seeds, the sample
standard deviation, and every seed's value; it is written to runs/NAME/seeds.md, too.
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
from grls.evaluation.evaluate import evaluate_run
from grls.io.files import atomic_file
from grls.models.precision import Precision
from grls.runs.manifest import read_info

_ALIKE = ("--fusion.method", "sum", "--fusion.normalization", "min-max")
_FUSED = (*_ALIKE, "--tune.k", "5")


@dataclass
class Repeat:
    """Runs the commands of one recipe with several seeds.

    Args:
        name: The recipe, mostly that of a data set: ``data/NAME``; everything is written to
            ``runs/NAME/seed-N``.
        dry_run: Print the commands only.
        precision: In which numbers it trains, as lightning names them; None: as the configs say.
        search_precision: In which numbers it retrieves, as `grls retrieve` names them.
        commands: What was run or printed.
    """

    name: str
    dry_run: bool = False
    precision: str | None = None
    search_precision: Precision = "float32"
    commands: list[list[str]] = field(default_factory=list)

    def one(self, seed: int) -> dict[str, dict[str, float]]:
        """Train and retrieve with one seed: the measures of each run."""
        recipe, folder, data = RECIPES[self.name], Path("runs") / self.name / f"seed-{seed}", self._data
        for stage in recipe.stages:
            self._train(stage, folder, seed)
        last = recipe.stages[-1].config
        retrievers = {stage: folder / f"{stage}-retriever" for stage in recipe.by.values()}
        retrievers[last] = folder / "retriever"
        for config, retriever in retrievers.items():
            model = folder / config / "model"
            given: tuple[str, ...] = (str(model), "--corpus", data, "--output", str(retriever))
            self._grls("index", *given, makes=retriever / "grls.json")
        found = {}
        runs = {}
        for name, options in recipe.runs.items():
            own = retrievers[recipe.by.get(name, last)]
            if name in recipe.priors:
                own = self._hybrid(own, recipe.priors[name], folder / f"{name}-retriever")
            runs[name] = (folder, (str(own), "--precision", self.search_precision, *options))
        runs |= {name: (folder.parent, options) for name, options in recipe.beside.items()}
        fused = (*recipe.ensembles.values(), *recipe.across.values())
        tuned = {member for members in fused for member in members} | set(recipe.cuts)
        for name, (where, options) in runs.items():
            for split in ("dev", "test") if name in tuned else ("test",):
                output = where / f"{name}-{split}"
                given = (*options, "--data", data, "--split", split)
                made = Path(f"{output}.info.json")
                self._grls("retrieve", *given, "--output", str(output), makes=made)
            found[name] = self._measured(output)
        files = {name: where / name for name, (where, _) in runs.items()}
        for name, members in recipe.ensembles.items():
            output = folder / f"{name.replace(' ', '')}-test"
            inputs = [files[member] for member in members]
            found[name] = self._fused(inputs, output)
            if name in recipe.cuts:
                files[name] = self._fused_on_dev(inputs, output)
        for name in recipe.cuts:
            found[f"{name}, cut"] = self._cut(files[name])
        return found

    def _hybrid(self, generator: Path, priors: Mapping[str, float], output: Path) -> Path:
        """The folder of a generator with priors; which."""
        named = [{"retriever": name, "weight": weight} for name, weight in priors.items()]
        given = (str(generator), "--priors", json.dumps(named), "--output", str(output))
        self._grls("index", "hybrid", *given, makes=output / "grls.json")
        return output

    def across(self, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
        """Fuse the runs of all seeds: those of each kind alike, then the kinds. The measures by name."""
        root, of = Path("runs") / self.name, "-".join(["of", *map(str, seeds)])
        found = {}
        for name, members in RECIPES[self.name].across.items():
            kinds = [root / f"{member}-{of}" for member in members]
            for member, kind in zip(members, kinds, strict=True):
                for split in ("dev", "test"):
                    runs = [f"{root}/seed-{seed}/{member}-{split}.jsonl" for seed in seeds]
                    given = (*_ALIKE, "--data", self._data, "--output", f"{kind}-{split}")
                    self._grls("fuse", *runs, *given, makes=Path(f"{kind}-{split}.info.json"))
            found[name] = self._fused(kinds, root / f"{name.replace(' ', '')}-{of}-test")
        return found

    def _fused(self, members: Sequence[Path], output: Path) -> dict[str, float]:
        """Fuse runs, their weights tuned on dev: the measures."""
        dev, test = ([f"{member}-{split}.jsonl" for member in members] for split in ("dev", "test"))
        given = (*_FUSED, "--data", self._data, "--output", str(output))
        self._grls("fuse", *test, "--tune.runs", json.dumps(dev), *given, makes=Path(f"{output}.info.json"))
        return self._measured(output)

    def _fused_on_dev(self, members: Sequence[Path], output: Path) -> Path:
        """Fuse the dev runs with the weights of the ensemble ``output``; its path without split."""
        info = read_info(f"{output}.jsonl")
        weights = "WEIGHTS" if info is None else json.dumps(list(info.options["weights"]))
        run = Path(str(output).removesuffix("-test"))
        given = (*_ALIKE, "--fusion.weights", weights, "--data", self._data, "--output", f"{run}-dev")
        self._grls(
            "fuse", *(f"{some}-dev.jsonl" for some in members), *given, makes=Path(f"{run}-dev.info.json")
        )
        return run

    def _cut(self, run: Path) -> dict[str, float]:
        """End the rankings of a run where dev says: the measures."""
        given = ("--tune", f"{run}-dev.jsonl", "--data", self._data, "--output", f"{run}-cut")
        self._grls("fuse", "cut", f"{run}-test.jsonl", *given, makes=Path(f"{run}-cut.info.json"))
        return self._measured(Path(f"{run}-cut"))

    @property
    def _data(self) -> str:
        return f"data/{self._set}"

    @property
    def _set(self) -> str:
        return RECIPES[self.name].data or self.name

    def _measured(self, run: Path) -> dict[str, float]:
        """The measures of a run on test; nothing where it was not made."""
        return {} if self.dry_run else flat(evaluate_run(f"{run}.jsonl", self._data, "test"))

    def _train(self, stage: Stage, folder: Path, seed: int) -> None:
        options = training(self._set, stage.config)
        for option in ("seed_everything", "data.seed", "model.seed"):
            options += [f"--{option}", str(seed)]
        if self.precision is not None:
            options += ["--trainer.precision", self.precision]
        if stage.after is not None:
            options += ["--model.generator.name_or_path", str(folder / stage.after / "model")]
        output = folder / stage.config
        made = output / "model" / "config.json"
        self._grls("train", *options, "--output", str(output), *going_on(made), makes=made)

    def _grls(self, *arguments: str, makes: Path) -> None:
        """Run a command unless what it makes is there."""
        command = list(arguments)
        self.commands.append(command)
        print(f"grls {shlex.join(command)}", flush=True)
        if self.dry_run or makes.is_file():
            return
        if grls(command) != 0:
            raise GrlsError(f"the seeds stop at: grls {shlex.join(command)}")


def flat(measures: Mapping[str, Any]) -> dict[str, float]:
    """Measures between 0 and 1 by name, that of their group before it where it says more; no counts."""
    found: dict[str, float] = {}
    for name, value in measures.items():
        group = name.replace("_", " ")
        if isinstance(value, Mapping):
            for key, number in flat(value).items():
                told = any(word in key for word in group.split())  # "sequence recall", "recall@5"
                found[key if told else f"{group} {key}"] = number
        elif isinstance(value, float):
            found[group] = value
    return found


def table(found: Sequence[Mapping[str, Mapping[str, float]]], seeds: Sequence[int]) -> str:
    """A table in Markdown, in percent, of what every seed has."""
    lines = [
        f"| run | measure | mean | spread | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        f"|---|---|---:|---:|{'---:|' * len(seeds)}",
    ]
    for run in found[0]:
        for measure in found[0][run]:
            values = [100 * some[run][measure] for some in found]
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
            spans, of explagraphs then hop by hop, of entailmentbank then with passages as queries);
            entailmentbank-wt (with WorldTree's pairs: spans and rescore learned together, then hop by
            hop); explagraphs-rescore, strategyqa-rescore (spans and rescore learned together). The data
            are in data/NAME, those of the last two in data/explagraphs and data/strategyqa. The bi-encoder's
            retriever, and the neighbours, that trainings and runs name must be there.
        seeds: Which.
        dry_run: Print the commands only.
        precision: In which numbers to train; `bf16-mixed` where the processor has bfloat16.
        search_precision: In which numbers to retrieve; likewise `bfloat16`.
    """
    if name not in RECIPES:
        raise SystemExit(f"error: unknown recipe {name!r}; choose one of {', '.join(RECIPES)}.")
    if not seeds:
        raise SystemExit("error: --seeds names none.")
    repeat = Repeat(name, dry_run, precision, search_precision)
    found = [repeat.one(seed) for seed in seeds]
    across = repeat.across(seeds) if len(seeds) > 1 else {}
    if dry_run:
        return
    text = table(found, seeds)
    for run, measures in across.items():
        rows = [f"| {run} | {measure} | {100 * value:.1f} |" for measure, value in measures.items()]
        text = "\n".join([text, "", "| all seeds fused | measure | |", "|---|---|---:|", *rows])
    print(text)
    with atomic_file(str(Path("runs") / name / "seeds.md")) as stream:
        stream.write(text + "\n")


if __name__ == "__main__":
    auto_cli(main)
