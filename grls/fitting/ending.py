"""The end of a run: systems are compared on dev, one is kept, and page, card and result say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from grls.data.corpus import Corpus
from grls.fitting import comparing, folders
from grls.fitting.choose import Candidate, KeptSystem, choose_system
from grls.fitting.clock import TimeIsUp
from grls.fitting.fusing import (
    make_fusion_folder,
    query_seconds,
    save_fusion,
    system_run,
    tuned_fusion,
)
from grls.fitting.model_card import write_card
from grls.fitting.page import write_page
from grls.fitting.plan import Plan, Stage
from grls.fitting.result import Fitted, write_result
from grls.fitting.splits import DEV, TEST, DividedData, SourceData
from grls.fitting.stages import ranked_what
from grls.fitting.steps import LEFT_OUT, FitSteps
from grls.fitting.systems import ALIKE, FittedSystem, fusions, single_systems
from grls.fitting.work import section, stage_tree
from grls.io.counts import counted
from grls.retrieve.fusion.fuse import Fusion
from grls.retrieve.spec import recorded, write_link

_BASELINES = ("bm25", folders.DENSE)


class FitEnding:
    """The comparison and the choice.

    Args:
        steps: The run.
        source: The data set as it was given.
        divided: Its splits.
        plan: The plan.
        stages: Its stages that are left: ``compare``, ``fusion``, ``report``.
    """

    def __init__(
        self,
        steps: FitSteps,
        source: SourceData,
        divided: DividedData,
        plan: Plan,
        stages: Sequence[Stage],
    ):
        self.steps = steps
        self.work = steps.work
        self.k = steps.work.options.k
        self.source, self.divided, self.plan = source, divided, plan
        self.stages = {stage.name: stage for stage in stages}
        self.precision = str(self.stages["compare"].options.get("precision", "float32"))

    def end(self) -> Fitted:
        """Compare, choose, and write what came of it."""
        corpus = Corpus.read(self.work.data)
        names = self._rank(corpus)
        systems = [*single_systems(names), *self._fuse(names, corpus)]
        kept = self._choose(systems)
        self._link(kept)
        self.steps.step("report", {}, lambda: self._report(systems, kept), lambda _: False)
        fitted = self._write(systems, kept)
        self.steps.journal.end()
        self.work.progress.say(f"\n{fitted.text()}\n{fitted.output}: {fitted.report}")
        return fitted

    def _rank(self, corpus: Corpus) -> list[str]:
        """Rank the splits with every system; returns the systems."""
        compare = self.stages["compare"]
        folders.search_as_hybrid(self.work)
        names = [name for name in compare.options["systems"] if self.work.member(name).is_dir()]
        self.same = [name for name in names if folders.is_single_step(self.work, name)]
        for name in self.same:
            self.work.progress.say(
                f"{name}: one hop is best, so it is {folders.RANKED[name]}, and not compared"
            )
        names = [name for name in names if name not in self.same]
        shared = self.steps.step("share", {"systems": names}, lambda: self._share(names), limited=True)
        self.splits: dict[str, str] = shared["splits"]
        names = shared["systems"]
        self.dropped: dict[str, str] = shared.get("dropped", {})
        for name, why in self.dropped.items():
            self.work.progress.say(f"{name}: not compared: {why}")
        each = compare.seconds / max(1, len(names))
        self.work.progress.expect({f"compare {name}": each for name in names} | {"report": 10.0})
        for name in names:
            self.steps.step(
                f"compare {name}",
                {"splits": list(self.splits.values())},
                lambda name=name: comparing.rank_splits(  # type: ignore[misc]
                    self.work, name, list(self.splits.values()), corpus, self.precision
                ),
                lambda result, name=name: LEFT_OUT in result or self._ranked(name),  # type: ignore[misc]
                limited=name != names[0],
            )
        self.compared = [name for name in names if LEFT_OUT not in self.steps.results[f"compare {name}"]]
        self.golds = {split: comparing.read_gold(self.work, name) for split, name in self.splits.items()}
        return self.compared

    def _ranked(self, name: str) -> bool:
        files = [self.work.run(split, name) for split in self.splits.values()]
        return all(file.with_name(f"{file.name}.jsonl").is_file() for file in files)

    def _share(self, names: Sequence[str]) -> dict[str, Any]:
        """The systems that are compared, and split -> the split that stands for it."""
        compare = self.stages["compare"]
        limits = {TEST: compare.options.get("test_limit")}
        counts = {
            split: min(count, limits.get(split, compare.options.get("dev_limit")) or count)
            for split, count in self.divided.counts().items()
            if split in {self.divided.tune, DEV, TEST}
        }
        later = sum(stage.seconds for name, stage in self.stages.items() if name != "compare")
        seconds = self.steps.clock.allowance(compare.seconds, later)
        share, paces = comparing.Share(list(names), counts), dict[str, comparing.Pace]()
        if seconds is not None:
            begun = self.steps.clock.seconds
            paces = self._paces(names, seconds)
            left = seconds - (self.steps.clock.seconds - begun)
            share = comparing.affordable(paces, counts, left)
        splits = {name: comparing.sampled_split(self.work, name, n) for name, n in share.counts.items()}
        dropped = comparing.dropped(names, paces, share.systems)
        return {"systems": share.systems, "splits": splits, "dropped": dropped}

    def _paces(self, names: Sequence[str], seconds: float) -> dict[str, comparing.Pace]:
        """How fast the systems are; those that there is no time to ask are missing, the first one apart."""
        paces = {names[0]: comparing.Pace(0.0, 0.0)}
        asked = comparing.read_gold(self.work, DEV).queries
        for name in names:
            try:
                paces[name] = comparing.timed(self.work, name, asked, self.precision, seconds)
            except TimeIsUp:
                continue
        return paces

    def _fuse(self, names: Sequence[str], corpus: Corpus) -> list[FittedSystem]:
        """Fuse systems; returns the fusions that no member does without."""
        self.weights: dict[str, Fusion] = {}
        self.not_fused: dict[str, str] = {}
        stage = self.stages.get("fusion")
        if stage is None:
            return []
        usual = section(Fusion, stage_tree(stage), "fusion")
        tune = self.golds[self.divided.tune]
        made, tried = [], fusions(names, self._weaker(names))
        for system in tried:
            runs = [system_run(self.work, tune.split, one) for one in single_systems(system.parts)]
            fusion = tuned_fusion(usual, runs, tune, self.work.options)
            if fusion is not None:
                save_fusion(self.work, system, fusion, list(self.golds.values()), corpus)
                self.weights[system.name] = fusion
                made.append(system)
        if not made:
            why = "none is better than its members" if tried else "there was nothing to fuse"
            self.not_fused[stage.key] = why
            self.work.progress.say(f"fusion: {why}")
        return made

    def _weaker(self, names: Sequence[str]) -> list[str]:
        """Of the systems of one model, those that find less than another one."""
        gold = self.golds[self.divided.tune]
        worth = {}
        for one in single_systems(names):
            run = system_run(self.work, gold.split, one)
            worth[one.name] = sum(gold.recalls(run, self.k)), gold.order(run)
        pairs = [[name for name in pair if name in names] for pair in ALIKE]
        return [min(pair[::-1], key=lambda name: worth[name]) for pair in pairs if len(pair) > 1]

    def _choose(self, systems: Sequence[FittedSystem]) -> FittedSystem:
        gold = self.golds[DEV]
        candidates = []
        for one in systems:
            run = system_run(self.work, gold.split, one)
            measures = gold.measures(run, self.k)
            recalls, order = gold.recalls(run, self.k), gold.order(run)
            others = {name: value for name, value in measures.items() if name != f"R@{self.k}"}
            candidates.append(Candidate(one.name, recalls, order, one.cost, one.members, others))
        self.choice: KeptSystem = choose_system(candidates)
        return next(one for one in systems if one.name == self.choice.name)

    def _link(self, kept: FittedSystem) -> None:
        if len(kept.parts) > 1:
            make_fusion_folder(self.work, kept, self.weights[kept.name])
        write_link(self.work.output, self.work.member(kept.folder))

    def _report(self, systems: Sequence[FittedSystem], kept: FittedSystem) -> dict[str, Any]:
        split = self.splits[self.divided.reported]
        passages = counted(self.plan.facts.passages, "passage")
        title = f"grls fit: {counted(len(systems), 'system')} over {passages}"
        write_page(self.work, systems, split, kept, title, self._of_run(kept))
        return {"page": "report.html"}

    def _write(self, systems: Sequence[FittedSystem], kept: FittedSystem) -> Fitted:
        """Write ``fit.json``."""
        reported = dict.fromkeys((DEV, self.divided.reported))
        metrics = {one.name: self._measures([*reported], one) for one in systems}
        content = {
            **self._of_run(kept),
            "retriever": f"members/{kept.folder}",
            "metrics": metrics,
            "query_seconds": {
                one.name: round(query_seconds(self.work, self.golds[self.divided.reported], one), 6)
                for one in systems
            },
            "data": {
                "name": self.source.name,
                "fingerprint": self.source.fingerprint(),
                "queries": self.divided.counts(),
                "compared": {split: len(self.golds[split].queries) for split in reported},
                "notes": list(self.divided.notes),
                "pseudo": list(self.divided.pseudo),
            },
            "models": {
                "biencoder": None if (one := self.plan.models.biencoder) is None else one.name,
                "generator": None if (one := self.plan.models.generator) is None else one.name,
            },
            "base_models": self._base_models(kept),
            "options": asdict(self.work.options),
            "results": self.steps.results,
        }
        content["language"] = self.plan.facts.language
        write_result(self.work.output, content)
        fitted = Fitted.read(self.work.output)
        write_card(fitted, content, self.work.options.device)
        return fitted

    def _of_run(self, kept: FittedSystem) -> dict[str, Any]:
        """What was kept and why, what was done and how long it took, and what was left out."""
        counts = {split: len(gold.queries) for split, gold in self.golds.items()}
        left_out = self._left_out()
        every = not any(key.startswith("compare ") for key in left_out)
        systems = "every system" if every else counted(len(self.compared), "system")
        return {
            "kept": kept.name,
            "why": self.choice.why,
            "best_on_dev": self.choice.best,
            "weights": {name: recorded(fusion) for name, fusion in self.weights.items()},
            "same": {name: folders.RANKED[name] for name in self.same},
            "plan": {
                "stages": [asdict(stage) for stage in self.plan.stages],
                "skipped": [asdict(one) for one in self.plan.skipped],
                "left_out": left_out,
            },
            "compared": ranked_what(counts, systems),
            "step_seconds": self.steps.journal.step_seconds(),
            "seconds": round(self.steps.clock.seconds, 1),
        }

    def _left_out(self) -> dict[str, str]:
        """Step -> why it was not done. A system whose tuning was not done may be compared untuned."""
        left_out = {key: result[LEFT_OUT] for key, result in self.steps.results.items() if LEFT_OUT in result}
        untuned = {key for name in self.compared if (key := f"tune {name}") in left_out}
        left_out |= {key: f"untuned: {left_out[key]}" for key in untuned}
        left_out |= {f"compare {name}": why for name, why in self.dropped.items()}
        return left_out | self.not_fused

    def _base_models(self, kept: FittedSystem) -> list[str]:
        """The names of the models that the kept system begins with."""
        models = self.plan.models
        encodes = self.work.member(folders.DENSE).is_dir()
        there = {"biencoder": models.biencoder if encodes else None, "generator": models.generator}
        return [model.name for one in kept.models if (model := there[one]) is not None]

    def _measures(self, splits: Sequence[str], system: FittedSystem) -> dict[str, float]:
        found: dict[str, float] = {}
        for split in splits:
            gold = self.golds[split]
            measures = gold.measures(system_run(self.work, gold.split, system), self.k)
            found |= {f"{split} {name}": value for name, value in measures.items()}
        return found
