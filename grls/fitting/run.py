"""``grls fit`` as a whole: data, stages, and the ranking of test for the report.

After each stage the output opens as the best candidate so far; whatever ends the run, it stays. At the end
the chosen candidate and the others rank test, as time allows.

What is done has a record in the journal (:mod:`grls.fitting.journal`); of equal names the last one counts::

    begin       the folder is that of a run
    questions   what the writer has made, or why nothing
    models      role -> model, which later calls must name again
    STAGE       what has come of it, its candidates, and what it was done with

A later call reads the stages in ``_restore``, and ``search_stages`` does the others: ``outcomes`` holds what
has come of each. A run on disk tells that its candidate has ranked these test queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.data.dataset import read_queries
from grls.data.inputs.splits import DEV, TEST, TRAIN
from grls.errors import DataError, GrlsError, MismatchError, Option
from grls.fitting.candidates import JudgedQueries, System
from grls.fitting.choose import FitChoice
from grls.fitting.journal import JOURNAL, FitClock, FitProgress, failure, fit_journal, refuse_other_output
from grls.fitting.options import AUTO, FitOptions
from grls.fitting.questions import QUESTIONS, plan_questions, written_questions
from grls.fitting.result import Fitted, Skipped, milliseconds, write_outcome
from grls.fitting.search import Allowance, Outcome, Stage, TimeIsUp, more_time, search_stages
from grls.fitting.splits import SplitData
from grls.fitting.stages import GATHERING, MORE, FitStages
from grls.io.ending import quiet, without_warnings
from grls.io.files import is_temporary
from grls.io.progress import duration, give_back_freed
from grls.io.work import Journal
from grls.runs.portions import info_file

_AIM = 0.97  # the share of a budget that is aimed at: stages end a little late
_WRITING = 0.4  # the share of the time that is left which questions take, with the embedding that judges them
_ENDING = 20.0  # seconds of choosing, page and card, at most a tenth of the budget
_FEW = 100  # dev queries below which more of them help most: with 60 the interval is about 20 points wide
_REPORTED = 100  # test queries that the kept candidate ranks, before time goes to anything else


def plan_dataset(data: SplitData, output: str | Path, options: FitOptions) -> str:
    """What :func:`fit_dataset` would look at and do; nothing is written, trained or measured."""
    refuse_other_output(Path(output), data.fingerprint, options.measure)
    progress, todo = FitProgress(Path(output), FitClock(Path(output)), False), list[str]()
    if options.writer is not None and data.pseudo:
        data, told = plan_questions(data, options)
        todo.append(told)
    stages = FitStages(data, Path(output), options, progress)
    return "\n".join([*stages.lines(), "", *stages.plan(todo)])


def fit_dataset(
    data: SplitData,
    output: str | Path,
    options: FitOptions,
    shown: bool = True,
    begun: float | None = None,
) -> Fitted:
    """Make the best retriever for a data set; ``output`` opens as the best so far at any time.

    A run that is called again with the same data goes on with what is done. ``shown``: print progress and
    results. ``begun``: when the budget began, by ``time.monotonic``; None: now.
    """
    quiet()
    journal = fit_journal(output, data.fingerprint, options.fixed, options.measure)
    try:
        with without_warnings():
            return _FitRun(data, Path(output), options, journal, shown, begun).run()
    finally:
        journal.close()


class _FitRun:
    def __init__(
        self,
        data: SplitData,
        output: Path,
        options: FitOptions,
        journal: Journal,
        shown: bool,
        begun: float | None,
    ):
        before = journal.known.get("models", {})
        if options.reranker == AUTO and "reranker" in before:  # that of an earlier call stays
            options = replace(options, reranker=before["reranker"])
        self.output, self.options, self.journal = output, options, journal
        self.clock = FitClock(output, options.seconds, options.adds, begun)
        self.whole = self.clock.left
        """The seconds of this call."""
        self.progress = FitProgress(output / "stages", self.clock, shown)
        self.best: FitChoice | None = None
        self.shown: dict[str, int] = {}
        """Candidate -> the portions of dev queries of its last row."""
        if done := [name for name, record in journal.known.items() if "systems" in record]:
            self.progress.say(f"{output}: this run goes on after {done[-1]}.")
        questions, asks = output / "stages" / "questions.jsonl", bool(options.writer and data.pseudo)
        written = questions.is_file() and asks
        if written:
            data = data.taught(read_queries(questions))
        self.data = data = data.written(output / "data")
        self.stages = FitStages(data, output, options, self.progress)
        if asks and not written:
            made, record = written_questions(self.stages, questions, _WRITING * self.clock.left)
            record["seconds"] += journal.known.get(QUESTIONS, {"seconds": 0.0})["seconds"]
            journal.put(QUESTIONS, record)
            if made:
                self.data = data = data.taught(made).written(output / "data")
                self.stages = FitStages(data, output, options, self.progress)
        elif options.writer is not None and not asks:
            self.progress.say(f"{options.writer} writes nothing: there are labelled questions to learn from")
        self.candidates, self.outcomes = self.stages.candidates, self.stages.outcomes
        self.progress.say("\n".join([*(f"  {line}" for line in self.stages.lines()), *self.stages.plan(())]))
        models = self.stages.models
        roles = "biencoder", "generator", "reranker"
        names = {role: model.name for role in roles if (model := getattr(models, role)) is not None}
        for role, name in names.items():
            if before.get(role, name) != name:
                option = Option(role, before[role])
                raise MismatchError(
                    f"{output} was made with {option}: name it again, or give another output."
                )
        if before | names != before:
            journal.put("models", before | names)

    def run(self) -> Fitted:
        stages, keep, systems = self.stages.all(), self.options.keep, self.candidates.systems
        self._restore({stage.name: stage for stage in stages})
        self._choose()
        names = {stage.name for stage in stages if stage.name not in (*GATHERING, "generator")}
        if keep is not None and not names.issuperset(keep.split(" + ")):
            self.candidates.system(keep)  # or an error, before anything is made
        outcomes = self.outcomes
        all_done = len(outcomes) == len(stages)
        if keep in systems and self.options.budget is None:  # nothing is to be made
            for stage in stages:
                outcomes.setdefault(stage.name, Outcome(nothing="it was not asked for"))
        elif len(outcomes) < len(stages) or any(
            system.portions < len(self.candidates.portions) for system in systems.values()
        ):
            outcomes.pop(MORE, None)
            all_done = False
        if all_done:
            self.progress.say("All is done: the page and the card are written anew.")
        search_stages(stages, outcomes, self._left, self._do, self.progress.row)
        if self.best is None:
            raise GrlsError(f"nothing could be ranked: {outcomes[stages[0].name].nothing}.")
        best = self.best if keep is None else self.candidates.keep(keep, self.best)
        self.candidates.link(best.chosen.name)
        if TEST in self.data.qrels:
            gold, ranked = self._rank_test(best.chosen.name)
        else:
            gold, ranked = self.candidates.rank_dev(), [*systems]
        done, skipped = list[tuple[str, float]](), list[Skipped]()
        if record := self.journal.known.get(QUESTIONS):
            if record["nothing"] is None:
                done.append((record["work"], record["seconds"]))
            else:
                skipped.append(Skipped(QUESTIONS, record["work"], record["nothing"]))
        for stage in stages:
            seconds, nothing, rest, _ = outcomes[stage.name]
            if nothing is None:
                done.append((self.stages.told(stage), round(seconds, 2)))
            else:
                skipped.append(Skipped(stage.name, stage.work, nothing, rest))
        lacked, more = [stage.seconds for stage in skipped if stage.seconds is not None], ""
        if lacked and self.whole < math.inf:  # what is not known may take as long again
            more = f"Next: more time, {more_time(max(lacked) or self.whole / 1.5)}."
        elif not self.data.unlabelled and len(best.chosen.values) < _FEW:
            more = "Next: more questions with their passages."
        elif self.data.hops and not self.data.links:
            more = "Next: links, names of other passages in the texts or metadata.links."
        spent = self.clock.seconds
        fitted = write_outcome(self.stages, best, gold, ranked, done, skipped, more, spent)
        self.clock.write()
        place = "" if is_temporary(self.output) else f"\n{fitted.output}: {fitted.report}"
        self.progress.say(f"\n{fitted.text()}{place}")
        return fitted

    def _given(self, name: str) -> list[Any]:
        """What a stage is done with that may be another in a later call."""
        systems = [[system.name, system.portions] for system in self.candidates.systems.values()]
        return [self.data.pseudo.get(TRAIN), *([self.options.decides, systems] if name in GATHERING else [])]

    def _restore(self, stages: Mapping[str, Stage]) -> None:
        """Take what earlier calls have done, in that order.

        A stage is done if its candidates are there with their runs, and all that it was done with is as it
        was. Of one that gathers candidates, those stay that are there: a fusion is, if its members are.
        """
        systems = self.candidates.systems
        for name, record in self.journal.known.items():
            if (stage := stages.get(name)) is None:
                continue
            try:
                made = [System(**fields) for fields in record["systems"]]
                given, outcome = record["given"], Outcome(float(record["seconds"]), record["nothing"])
            except (KeyError, TypeError, ValueError) as error:
                told = f"the record of {name} is of another version of grls: give another output"
                raise DataError(f"{told} ({error}).", str(self.output / JOURNAL)) from error
            known = {name, *systems}
            there = [
                system
                for system in made
                if known.issuperset(system.parts or (system.name,)) and self.candidates.is_there(system)
            ]
            needs = [self.outcomes.get(need) for need in stage.needs]
            as_it_was = all(need is not None and need.nothing is None for need in needs)
            done = there == made and given == self._given(name) and as_it_was
            if done:
                self.outcomes[name] = outcome
            if done or name in GATHERING:
                systems |= {system.name: system for system in there}

    def _left(self) -> float:
        """The seconds that are left for stages: without those of the end. The first stage has no limit."""
        whole = self.whole
        if whole == math.inf or self.best is None:
            return math.inf
        queries = min(_REPORTED, len(self.data.qrels.get(TEST, ())))
        ending = min(_ENDING, 0.1 * whole) + min(queries * self.best.chosen.cost, 0.1 * whole)
        return max(0.0, self.clock.left - (1 - _AIM) * whole - ending)

    def _do(self, stage: Stage, seconds: float, again: bool) -> Outcome:
        name, systems, given = stage.name, self.candidates.systems, self._given(stage.name)
        begun, nothing, gathers = perf_counter(), None, stage.name in GATHERING

        def spent() -> float:
            return perf_counter() - begun + self.outcomes.get(name, Outcome()).seconds

        try:
            with self.progress.stage(name, seconds, again):
                nothing = stage.run(Allowance(seconds))
        except TimeIsUp as end:
            # A candidate that has ranked some dev queries is one, and what ranked more of them has done so.
            if not gathers and name not in systems:
                return Outcome(spent(), str(end), end.seconds)
        except Exception as error:
            if not gathers:
                systems.pop(name, None)
            return Outcome(spent(), f"left out: it failed: {failure(error)}")
        finally:
            give_back_freed()
        outcome = Outcome(spent(), nothing)
        made = [vars(system) for system in systems.values() if gathers or system.name == name]
        record = {"seconds": round(outcome.seconds, 2), "nothing": nothing, "systems": made, "given": given}
        self.journal.put(name, record)
        self._choose()
        return outcome

    def _choose(self) -> None:
        """Choose among the candidates, and show those that are new, or have ranked more queries."""
        systems = self.candidates.systems
        if not systems:
            return
        before, self.best = self.best, self.candidates.choose()
        chosen = self.best.chosen
        self.candidates.link(chosen.name)
        of = f"{self.data.pseudo.get(DEV, DEV)} {self.options.decides}"
        so_far = "kept so far" if self.data.unlabelled else "best so far"
        self.progress.best = f"{so_far} {chosen.name}, {of} {100 * chosen.value:.1f}"
        if before is None:
            self.progress.row("", of, "queries", "ms a query", "")
        for system in systems.values():
            is_new = before is None or before.chosen.name != chosen.name
            if self.shown.get(system.name) == system.portions and not (is_new and system.name == chosen.name):
                continue
            self.shown[system.name] = system.portions
            candidate, note = self.candidates.candidate(system), ""
            if system.name == chosen.name:
                left = self.clock.left
                note = so_far + (f"; {duration(left)} left" if left < math.inf else "")
            value, count = f"{100 * candidate.value:.1f}", str(len(candidate.values))
            self.progress.row(system.name, value, count, milliseconds(system.cost), note)

    def _rank_test(self, chosen: str) -> tuple[JudgedQueries, list[str]]:
        """Rank test queries with the chosen candidate, as many as there is time for, then with the others.

        Returns the queries, and the names of the systems that have ranked them.
        """
        candidates, systems, whole = self.candidates, self.candidates.systems, self.whole
        parts = systems[chosen].parts or (chosen,)
        count = fits = len(candidates.gold(TEST).queries)

        def name_of(size: int) -> str:
            return TEST if size == count else f"{TEST}-{size}"

        if whole < math.inf:
            room = self.clock.left - (1 - _AIM) * whole - min(_ENDING / 2, 0.05 * whole)
            fits = max(1, int(max(0.01 * whole, room) / max(1e-9, systems[chosen].cost)))
            files = self.output.glob(f"data/qrels/{TEST}-*.tsv")
            for size in (count, *(int(file.stem.partition("-")[2]) for file in files)):
                if all(self._tested(name_of(size), part) for part in parts):  # by an earlier call
                    fits = max(fits, size)
            fits = min(fits, count)
        gold, ranked = candidates.drawn(TEST, 0, fits, name_of(fits)), set[str]()
        singles = [system for system in systems.values() if not system.parts]
        for system in sorted(singles, key=lambda system: (system.name not in parts, system.cost)):
            name, seconds = system.name, math.inf
            if whole < math.inf and name not in parts:
                seconds = self.clock.left - 0.04 * whole
            if fits * system.cost <= seconds and not self._tested(gold.split, name):
                with suppress(TimeIsUp), self.progress.stage(f"test {name}", seconds):
                    candidates.save_run(candidates.opened(system), gold, system)
                give_back_freed()
            if self._tested(gold.split, name):
                ranked.add(name)
        for system in systems.values():
            if system.parts and ranked.issuperset(system.parts):
                candidates.rank_fusion(system, gold)
                ranked.add(system.name)
        return gold, [name for name in systems if name in ranked]

    def _tested(self, split: str, name: str) -> bool:
        run = self.candidates.run_file(split, self.candidates.systems[name].folder)
        return info_file(run).is_file()  # the last file of a run
