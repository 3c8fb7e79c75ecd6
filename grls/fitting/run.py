"""``grls fit``: a data set becomes a tuned retriever, step by step.

Every step is in the journal once it is done, so a killed run goes on where it stopped. After each stage what
is left is planned anew for the time that is left. The steps themselves: :mod:`grls.fitting.steps`, and the
comparison at the end: :mod:`grls.fitting.ending`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from grls.errors import ConfigError
from grls.fitting.clock import FitClock, kept_clock, spent_seconds
from grls.fitting.ending import FitEnding
from grls.fitting.journal import PLAN, FitJournal, kept_beside, refuse_other_output
from grls.fitting.kept_plan import plan_again, plan_as_revised, plan_record, revision_record
from grls.fitting.options import FitOptions
from grls.fitting.plain import remove_copy
from grls.fitting.plan import Plan, Stage
from grls.fitting.planner import make_plan, revised_plan
from grls.fitting.progress import FitProgress, shown_name
from grls.fitting.query_writer import WrittenQueries, refuse_no_query_writer, written_queries
from grls.fitting.result import RESULT, Fitted
from grls.fitting.splits import (
    PSEUDO,
    TEST,
    TRAIN,
    DividedData,
    SourceData,
    divide,
    lacks_training,
    read_source,
    write_divided,
)
from grls.fitting.steps import FitSteps
from grls.fitting.timing import TIMING
from grls.fitting.tuning import gain_of_hops
from grls.fitting.work import FitWork
from grls.io.extras import require
from grls.io.files import scratch_folder
from grls.io.logs import quiet

_HOPS_TUNED = "tune dense-hops"
"""The stage that measures a single step and hops."""

_ENDING = ("compare", "fusion", "report")
"""Stages of the comparison."""

_WRITING = 0.15
"""The share of a budget in which a query generator writes."""


def plan_dataset(data: str, output: str | Path, options: FitOptions) -> Plan:
    """The plan that :func:`fit_dataset` would follow; nothing else is done.

    Args:
        data: See :func:`fit_dataset`.
        output: Where the run would write; what is measured is kept there.
        options: What the user has chosen.

    Raises:
        ConfigError: A model cannot be had, the budget is too short for anything, or the folder holds
            something else.
        DataError: The data set is missing or has faults.
        MismatchError: The folder holds a run with other data or options.
        WriteError: The folder cannot be written.
    """
    source = read_source(data, options)
    _refuse_pseudo_model(options)
    refuse_other_output(output, _settings(source, options))
    divided = divide(source, options.seed)
    with scratch_folder(output) as scratch:
        write_divided(source, divided, scratch / "data")
        kept = kept_beside(output, _settings(source, options), PLAN)
        named = _named(options, divided)
        plan = None if kept is None else plan_again(scratch / "data", output, named, kept)
        plan = plan or make_plan(scratch / "data", output, named)
        return replace(plan, notes=(*divided.notes, *_of_pseudo_model(source, options)))


def _settings(source: SourceData, options: FitOptions) -> dict[str, Any]:
    """What a run depends on, as its journal says."""
    return {"data": source.fingerprint(), **options.record()}


def _refuse_pseudo_model(options: FitOptions) -> None:
    if options.pseudo_model is not None:
        refuse_no_query_writer(options.pseudo_model)


def _of_pseudo_model(source: SourceData, options: FitOptions) -> list[str]:
    """What a plan says of a query generator, which works in the run alone."""
    if options.pseudo_model is None:
        return []
    if not lacks_training(source):
        return [f"{options.pseudo_model} writes nothing: there are training queries"]
    return [f"the run lets {options.pseudo_model} write queries in place of the parts of sentences"]


def _named(options: FitOptions, divided: DividedData) -> FitOptions:
    """The options, with the names of the splits of a run."""
    return replace(options, train_split=TRAIN, dev_split=divided.tune, test_split=TEST)


def fit_dataset(
    data: str, output: str | Path, options: FitOptions, shown: bool = True, name: str | None = None
) -> Fitted:
    """Make the best retriever for a data set: train, index, tune, compare, and keep the best on dev.

    Args:
        data: Data set folder in BEIR's layout. Without dev queries a part of the training queries is split
            off; without training queries pseudo-queries stand in for them.
        output: The folder of the run, which opens as the retriever that is kept. A run that was killed goes
            on when it is called again with the same data and options.
        options: What the user has chosen.
        shown: Whether plan, progress and results are printed.
        name: What results call the data set; None: its folder.

    Raises:
        ConfigError: A model cannot be had, the budget is too short for anything, or the folder holds
            something else.
        DataError: The data set is missing or has faults; all of them are named before any training.
        MismatchError: The folder holds a run with other data or options.
        WriteError: The folder cannot be written, or another run works there, in this process or another.
    """
    quiet()
    require("report", "grls fit, whose page compares all systems,")
    source = read_source(data, options, name)
    place = Path(output)
    _refuse_pseudo_model(options)
    journal = FitJournal(place, _settings(source, options))
    try:
        if journal.ended and (place / RESULT).is_file():
            return _read(place, shown)
        return _FitRun(source, place, options, journal, shown).run()
    finally:
        journal.close()


def _read(output: Path, shown: bool) -> Fitted:
    """The result of a run that is done."""
    fitted = Fitted.read(output)
    if shown:
        print(f"{output}: this run is done.\n{fitted.text()}")
    return fitted


class _FitRun:
    """A run.

    Args:
        source: The data set as it was given.
        output: The folder of the run.
        options: What the user has chosen.
        journal: What is done.
        shown: Whether anything is printed.
    """

    def __init__(
        self, source: SourceData, output: Path, options: FitOptions, journal: FitJournal, shown: bool
    ):
        self.source = source
        self.output = output
        self.options = options
        self.journal = journal
        self.progress = FitProgress(output / "stages", shown)
        self.clock = FitClock(options.seconds, max(journal.seconds, spent_seconds(output)))

    def run(self) -> Fitted:
        """Do what is left of the run."""
        if (last := self.journal.last) is not None:
            self.progress.say(f"{self.output}: this run goes on after {shown_name(last)}.")
        self.journal.begin()
        with kept_clock(self.output, self.clock):
            return self._fitted()

    def _fitted(self) -> Fitted:
        """The result, once all steps are done."""
        divided = divide(self.source, self.options.seed, self._written())
        steps = self._steps(divided)
        self._data(steps, divided)
        plan = self._plan(steps, divided)
        if plan.models.biencoder is not None or plan.models.generator is not None:
            require("train", "grls fit with a model to train")
        steps.step("bm25", {}, steps.words)
        plan, stages = self._train(steps, plan)
        ending = FitEnding(steps, self.source, divided, plan, stages)
        return ending.end()

    def _written(self) -> WrittenQueries | None:
        """The queries of the query generator; None: there is none, or it is not needed."""
        name, seed = self.options.pseudo_model, self.options.seed
        if name is None or not lacks_training(self.source):
            return None
        depends = {"model": name, "seed": seed}
        record = self.journal.done("pseudo-queries", depends)
        if record is None:
            taken = {query.id for query in self.source.queries}
            limit = None if self.options.seconds is None else _WRITING * self.options.seconds
            begun = self.clock.seconds
            with self.progress.stage("pseudo-queries"):
                made = written_queries(
                    name, self.source.corpus, PSEUDO, seed, taken, self.options.device, limit
                )
            record = made.record()
            self.journal.add(
                "pseudo-queries", {"model": name, "seed": seed}, self.clock.seconds - begun, record
            )
        return WrittenQueries.of_record(name, record)

    def _steps(self, divided: DividedData) -> FitSteps:
        work = FitWork(self.output, self.options, divided.tune, self.progress)
        return FitSteps(work, self.journal, self.clock)

    def _data(self, steps: FitSteps, divided: DividedData) -> None:
        def write() -> dict[str, Any]:
            write_divided(self.source, divided, self.output / "data")
            return {"queries": divided.counts(), "notes": list(divided.notes)}

        there = self.output / "data" / "corpus.jsonl"
        result = steps.step("data", {}, write, lambda _: there.is_file())
        unused = [] if lacks_training(self.source) else _of_pseudo_model(self.source, self.options)
        for note in (*result["notes"], *unused):
            self.progress.say(f"  {note}")

    def _plan(self, steps: FitSteps, divided: DividedData) -> Plan:
        """The plan, which is the same in a run that goes on."""
        named, kept = _named(self.options, divided), self.journal.kept(PLAN)
        if kept is None and not (self.output / TIMING).is_file():
            part = "" if self.options.seconds is None else ", which is a part of the budget"
            self.progress.say(f"Measuring how fast each model works on a sample of the data{part}.")
        try:
            with self.progress.stage("plan"):
                plan = None if kept is None else plan_again(steps.work.data, self.output, named, kept)
                if plan is None:
                    plan = make_plan(steps.work.data, self.output, named, copies=True)
                    self.journal.keep(PLAN, plan_record(plan))
        except ConfigError:
            self.journal.forget()
            raise
        self.progress.say(f"\n{plan.text()}\n")
        return plan

    def _train(self, steps: FitSteps, plan: Plan) -> tuple[Plan, list[Stage]]:
        """Do all stages before the comparison; returns the plan, revised, and the stages that are left."""
        stages = list(plan.stages)
        took: dict[str, float] = {}
        while stages and stages[0].name not in _ENDING:
            stage, *stages = stages
            self.progress.expect({one.key: one.seconds for one in (stage, *stages)})
            later = sum(one.seconds for one in stages)
            steps.do(stage, self.clock.allowance(stage.seconds, later))
            if stage.name == "generator":
                remove_copy(self.output)
            took[stage.key] = self.journal.of(stage.key)
            plan, stages = self._revised(steps, plan, stages, took)
        remove_copy(self.output)
        return plan, stages

    def _revised(
        self, steps: FitSteps, plan: Plan, stages: list[Stage], took: dict[str, float]
    ) -> tuple[Plan, list[Stage]]:
        """The plan and the stages that are left, for the time that is left."""
        last = list(took)[-1]
        gain = gain_of_hops(steps.results[last]) if last == _HOPS_TUNED else None
        new = gain is not None and plan.effort.level.writer and not plan.facts.writer_hops
        if plan.budget is None and not new:
            return plan, stages
        name = f"plan after {last}"
        if (known := self.journal.done(name, {})) is None:
            revised = revised_plan(plan, took, self.clock.seconds, new)
            if new and revised.effort.level.hops:
                self.progress.say(f"generator: by hops, too, as the bi-encoder finds more by them ({gain})")
            known = revision_record(revised)
            self.journal.add(name, {}, 0.0, known)
        plan = plan_as_revised(plan, known, took)
        return plan, [stage for stage in plan.stages if stage.key not in took]
