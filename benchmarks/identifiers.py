"""Identifiers and losses of a generator, where gold was seen, was not seen, and came later.

    python -m benchmarks.identifiers --identifiers '[whole, spans]' --losses '[cross-entropy, margin]'
    python -m benchmarks.identifiers --sets '[nq, twowiki]' --methods '[DSI, SEAL]' --seeds '[0, 1, 2]'
    python -m benchmarks.identifiers --table_only true

Of data/SET every second passage that is gold for test questions alone is taken out, and added to the index
after the training (``growth``). Of the other test questions, all gold passages of ``seen`` ones are gold for
training questions. A cell is the folder runs/identifiers/SET/IDENTIFIERS/LOSS/seed-N; what a killed call has
made is not made again. The grid and the options are in ``identifiers.yaml``. Its steps are `grls` commands,
printed with the processor seconds that they took.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import yaml
from jsonargparse import auto_cli

from benchmarks.common import going_on, machine
from grls.cli import main as grls
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries, read_split, write_dataset
from grls.data.types import Query
from grls.errors import GrlsError
from grls.evaluation.measures import query_values
from grls.io.files import read_json, write_json
from grls.runs.run import Run
from grls.runs.trec import ids_of
from grls.train.doc2query.written import save

GRID: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
ROOT = Path("runs/identifiers")
QUESTIONS = ("seen", "unseen", "growth")
MEASURES = ("R@1", "R@5", "R@20", "nDCG@10")
_K = 20


def part(source: Path, out: Path) -> None:
    """Divide a data set: ``known`` to train on, ``added`` passages that come later, ``all`` with types.

    The test questions of ``all`` have the type ``seen``, ``unseen`` or ``growth``.
    """
    if (out / "all").is_dir():
        return
    corpus = Corpus.read(source)
    splits = {split: read_split(source, split, corpus) for split in ("train", "dev", "test")}
    gold = {
        split: {p for q in queries for p in _gold(qrels, q.id)} for split, (queries, qrels) in splits.items()
    }
    later = set(sorted(gold["test"] - gold["train"] - gold["dev"])[::2])
    known = [n for n, passage in enumerate(corpus) if passage.id not in later]
    added = [n for n, passage in enumerate(corpus) if passage.id in later]
    learned = [query for split in ("train", "dev") for query in splits[split][0]]
    qrels = {split: splits[split][1] for split in ("train", "dev")}
    write_dataset(out / "known", corpus.select(known), learned, qrels)
    write_dataset(out / "added", corpus.select(added), [], {})
    asked = []
    for query in splits["test"][0]:
        names = set(_gold(splits["test"][1], query.id))
        kind = "growth" if names & later else "seen" if names <= gold["train"] else "unseen"
        asked.append(query._replace(metadata=json.dumps({**json.loads(query.metadata), "type": kind})))
    write_dataset(out / "all", corpus.select(known + added), asked, {"test": splits["test"][1]})


def _gold(qrels: Mapping[str, Mapping[str, int]], query: str) -> list[str]:
    return [passage for passage, grade in qrels[query].items() if grade > 0]


class Call(NamedTuple):
    """``dry_run``, ``model``, ``limit``: see :func:`main`."""

    dry_run: bool = False
    model: str | None = None
    limit: int | None = None


class Cell:
    """A set, identifiers, a loss and a seed; ``mode``: the score mode of training and search.

    ``call``: what all cells of a call share.
    """

    def __init__(self, name: str, identifiers: str, loss: str, seed: int, mode: str, call: Call):
        self.name, self.identifiers, self.loss, self.seed, self.mode = name, identifiers, loss, seed, mode
        self.call, self.data = call, ROOT / name / "data"
        self.folder = ROOT / name / (identifiers + "-full" * (mode == "full")) / loss / f"seed-{seed}"

    @property
    def result(self) -> dict[str, Any] | None:
        """What was measured; None: the cell is not done."""
        file = self.folder / "cell.json"
        return read_json(file) if file.is_file() else None

    def run(self) -> None:
        """Train, index, add the later passages, retrieve, score."""
        if self.result is not None:
            return
        if not self.call.dry_run:
            part(Path("data") / self.name, self.data)
        model = self.train()
        grown, run = self.folder / "grown", self.folder / "test"
        later = self.data / ("added" if self.asks is None else "added-asked")
        added = ("--add", str(later), "--output", str(grown))
        self._grls("index", "update", str(self.index(model)), *added, makes=grown / "grls.json")
        search = (
            "--search.mode",
            self.mode,
            "--search.beams",
            str(_K),
            "--search.truncate_queries",
            "true",
        )
        asked = ("--data", str(self.data / "all"), "--split", "test", "--k", str(_K), "--output", str(run))
        few = () if self.call.limit is None else ("--limit", str(self.call.limit))
        self._grls("retrieve", str(grown), *asked, *few, *search, makes=Path(f"{run}.info.json"))
        if not self.call.dry_run:
            self._score(run, grown)
            for made in ("train/checkpoints", "retriever", "grown"):  # gigabytes, and made anew where needed
                shutil.rmtree(self.folder / made, ignore_errors=True)

    def train(self) -> Path:
        """The model; of a loss over candidates it goes on from that of cross-entropy."""
        options = shlex.split(GRID["train"])
        if self.identifiers != "whole":
            options += ["--data.identifiers", str(self.identify(self.identifiers))]
        if self.call.model is not None:
            options += ["--model.generator.name_or_path", self.call.model]
        if self.loss != "cross-entropy":
            further = shlex.split(GRID["losses"][self.loss])
            options += [*shlex.split(GRID["after"]), *further]
            first = Cell(self.name, self.identifiers, "cross-entropy", self.seed, self.mode, self.call)
            model, run = first.train(), first.folder / "candidates"
            options += ["--model.generator.name_or_path", str(model)]
            if "--config" in further:  # over candidates
                asked = ("--data", str(self.data / "known"), "--split", "train", "--output", str(run))
                search = ("--search.mode", self.mode, *shlex.split(GRID["candidates"]))
                made = Path(f"{run}.info.json")
                if not made.is_file():
                    retriever = first.index(model)
                    self._grls("retrieve", str(retriever), *asked, *search, makes=made)
                    shutil.rmtree(retriever, ignore_errors=True)
                options += ["--data.candidates.run", f"{run}.jsonl"]
        options += ["--data.data", str(self.data / "known"), "--seed_everything", str(self.seed)]
        options += ["--model.loss", "full" if self.mode == "full" else "allowed"]
        made = self.folder / "train" / "model" / "config.json"
        output = ("--output", str(self.folder / "train"))
        self._grls("train", "chains", *options, *output, *going_on(made), makes=made)
        return made.parent

    @property
    def asks(self) -> Path | None:
        """The file of pseudo-queries; None: its identifiers are without them."""
        asked = "queries" in (GRID["identifiers"][self.identifiers] or "")
        return ROOT / self.name / "ids" / "asked.jsonl" if asked else None

    def ask(self, file: Path) -> None:
        """Write a pseudo-query of each passage, by a query generator of the training questions.

        A passage without a usable one has its title. Later passages bring theirs.
        """
        options, model = shlex.split(GRID["asking"]), file.parent / "asking" / "model"
        if self.call.model is not None:
            options += ["--model.generator.name_or_path", self.call.model]
        known = ("--data.data", str(self.data / "known"), "--output", str(model.parent))
        self._grls("train", "doc2query", *options, *known, makes=model / "config.json")
        made = ("--data", str(self.data / "all"), "--model", str(model), "--output", str(file))
        words = shlex.split(GRID["queries"])
        self._grls("prepare", "pseudo-queries", *made, *words, makes=Path(f"{file}.manifest.json"))
        if self.call.dry_run or (self.data / "added-asked").is_dir():
            return
        written = read_queries(file)
        texts = {query.evidence[0]: query.text for query in written}
        titles = [
            Query(f"title-{passage.id}", passage.title, (passage.id,))
            for passage in Corpus.read(self.data / "all")
            if passage.id not in texts
        ]
        print(f"  {len(titles)} passages without a usable query")
        save(file, [*written, *titles])
        texts |= {query.evidence[0]: query.text for query in titles}
        added = [
            {**record, "metadata": {"queries": [texts[record["_id"]]]}}
            for record in Corpus.read(self.data / "added").records()
        ]
        write_dataset(self.data / "added-asked", added, [], {})

    def identify(self, kind: str) -> Path:
        """The folder of identifiers of the passages that are known in training."""
        folder = ROOT / self.name / "ids" / kind
        if kind == "queries" and self.asks is not None:
            self.ask(self.asks)
        for member in GRID["identifiers"]:
            if f"ID/{member}" in GRID["identifiers"][kind]:
                self.identify(member)
        words = shlex.split(GRID["identifiers"][kind].replace("ID", str(folder.parent)))
        known = ("--corpus", str(self.data / "known"), "--output", str(folder))
        self._grls("identify", *words, *known, makes=folder / "identifiers.json")
        return folder

    def index(self, model: Path) -> Path:
        """The retriever folder of a model over the passages that are known in training."""
        known = ("--corpus", str(self.data / "known"), "--output", str(self.folder / "retriever"))
        self._grls("index", str(model), *known, makes=self.folder / "retriever" / "grls.json")
        return self.folder / "retriever"

    def _grls(self, *command: str, makes: Path) -> None:
        """Run a command unless its result exists, and note its processor seconds."""
        if makes.is_file():
            return
        print(f"grls {shlex.join(command)}", flush=True)
        if self.call.dry_run:
            return
        begun, wall = time.process_time(), time.perf_counter()
        if grls(list(command)) != 0:
            raise GrlsError(f"the cell {self.folder} stops at: grls {shlex.join(command)}")
        spent, wall = time.process_time() - begun, time.perf_counter() - wall
        print(f"  {spent:.0f} s of processor, {wall:.0f} s", flush=True)
        file = self.folder / "seconds.json"
        write_json(
            file, (read_json(file) if file.is_file() else {}) | {f"{command[0]} {makes.parent.name}": spent}
        )

    def _score(self, run: Path, grown: Path) -> None:
        asked, qrels = read_split(self.data / "all", "test")
        found = Run.load(f"{run}.jsonl")
        asked = asked[: self.call.limit]
        ids = {query.id: ids_of(found.rankings[query.id]) for query in asked}
        values = query_values(MEASURES, ids, {query.id: qrels[query.id] for query in asked})
        kinds = [json.loads(query.metadata)["type"] for query in asked]
        questions = {}
        for kind in QUESTIONS:
            own = [n for n, one in enumerate(kinds) if one == kind]
            means = {name: fmean(row[n] for n in own) for name, row in values.items() if own}
            questions[kind] = {"queries": len(own), **means}
        index = sum(file.stat().st_size for file in (grown / "index").rglob("*") if file.is_file())
        passages = len(Corpus.read(self.data / "all"))
        spent = read_json(self.folder / "seconds.json")[f"retrieve {self.folder.name}"]
        measured = {"milliseconds": 1000 * spent / len(asked), "bytes": index / passages}
        write_json(self.folder / "cell.json", {"questions": questions, **measured, "machine": machine()})


def table(cells: Sequence[Cell]) -> str:
    """The cells that are done, in Markdown: means over seeds, in percent."""
    done: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for cell in cells:
        if cell.result is not None:
            done.setdefault((cell.name, cell.identifiers, cell.loss, cell.mode), []).append(cell.result)
    head = [
        "set",
        "identifiers",
        "loss",
        "scores",
        "seeds",
        *(f"{kind} {m}" for kind in QUESTIONS for m in MEASURES),
    ]
    lines = [[*head, "processor ms a question", "bytes a passage"], ["---"] * 5 + ["---:"] * (len(head) - 3)]
    for key, results in done.items():
        row = [*key, str(len(results))]
        for kind in QUESTIONS:
            for measure in MEASURES:
                cases = [result["questions"][kind] for result in results]
                values = [100 * case[measure] for case in cases if case["queries"]]
                spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
                row.append(f"{fmean(values):.1f}{spread}" if values else "-")
        row += [f"{fmean(result[name] for result in results):.0f}" for name in ("milliseconds", "bytes")]
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(
    sets: Sequence[str] = ("nq",),
    identifiers: Sequence[str] = ("whole", "spans", "title", "keywords", "codes"),
    losses: Sequence[str] = ("cross-entropy",),
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    model: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    table_only: bool = False,
) -> None:
    """Run cells of the grid, and print the table.

    Args:
        sets: Data sets, folders of data/.
        identifiers: Kinds of identifiers, or names of ``identifiers.yaml``.
        losses: ``cross-entropy``; further training with ``margin``, ``listwise``, ``dpo`` or ``kto``; or
            ``longer``, as many steps more of cross-entropy; or ``long``, 400 steps more.
        methods: Published methods, in place of the grid of identifiers and losses.
        seeds: Seeds.
        model: The language model to begin with, in place of that of ``identifiers.yaml``.
        limit: Number of test questions; null: all.
        dry_run: Print the commands of cells that are not done.
        table_only: Print the table of what is done.
    """
    chosen = [(kind, loss, "renormalized") for loss in losses for kind in identifiers]
    if methods:
        chosen = [
            tuple(GRID["methods"][name][key] for key in ("identifiers", "loss", "mode")) for name in methods
        ]
    call = Call(dry_run, model, limit)
    cells = [
        Cell(name, kind, loss, seed, mode, call)
        for seed in seeds
        for name in sets
        for kind, loss, mode in chosen
    ]
    print(machine())
    for cell in cells if not table_only else ():
        cell.run()
    print(table(cells))


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
