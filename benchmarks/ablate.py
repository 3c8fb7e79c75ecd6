"""RICHES and its rivals over one data set, option by option: the form of the ablations of arXiv 2407.00361.

    python -m benchmarks.ablate --data data/nq --model SmolLM2-135M-Instruct --output runs/nq/ablations

The questions are: the beam width; keywords before each quote or not; free text greedily and quotes with the
beam (adaptive), or both with the same search; the kind of retrieval key; and RICHES beside closed book,
retrieve-then-read and iterative decomposition. Every run is a `grls` command, printed before it runs. Its
settings are written beside it at the end (NAME.settings.json), so a killed ablation goes on, and a run with
other settings, data or files is made again. The model is loaded once. OUTPUT/ablations.md holds a table a
question, OUTPUT/ablations.json the figures.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli

from grls.cli import main as grls
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.errors import ConfigError, GrlsError
from grls.evaluation.answers import Scores, score_file, table
from grls.io.files import atomic_file, read_json, sha256, write_json
from grls.models.entailment import load_entailment
from grls.models.load.language import shared_models
from grls.runs.portions import ANSWERS, fingerprint_queries

Options = Mapping[str, str]

REFERENCE: dict[str, str] = {"keys": "sentence", "beams": "10", "beam": "adaptive", "keywords": "true"}
"""The reference settings; each question changes one of them. ``--keys`` may name other keys."""

_READER = {name: f"reader.{name}" for name in ("chat", "batch_size")}
OPTIONS: Mapping[str, Options] = {
    "riches": {
        "keys": "keys.kind", "propositions": "keys.propositions", "keywords": "prompt.keywords",
        "prompt": "prompt.kind", "chat": "prompt.chat",
        **{n: f"search.{n}" for n in ("beams", "beam", "mode", "max_new_tokens", "batch_size")},
    },
    "direct": _READER,
    "follow-up": _READER,
}  # fmt: skip
"""Command -> name of an option here -> its name in the command, if they differ."""

BEAMS = ("1", "5", "10")
KEYS = ("sentence", "paragraph", "titled", "title")
READ = ("1", "3")
"""Passages that retrieve-then-read shows."""


@dataclass(frozen=True)
class Run:
    """A run of ``grls answer COMMAND``, with its own options and the name of its files."""

    name: str
    command: str
    options: Options


@dataclass(frozen=True)
class Question:
    """A table: its title, and its runs with their labels."""

    title: str
    column: str
    runs: tuple[tuple[str, Run], ...]


def questions(
    propositions: str | None = None,
    dense: str | None = None,
    keys: str = REFERENCE["keys"],
    kinds: Sequence[str] = KEYS,
) -> list[Question]:
    """The questions, in the order of the tables; for the arguments see :func:`main`."""
    beams = tuple((b, _riches(keys=keys, beams=b)) for b in BEAMS)
    spelled = (("with", "true"), ("without", "false"))
    keywords = tuple((label, _riches(keys=keys, keywords=on)) for label, on in spelled)
    decoding = tuple((b, _riches(keys=keys, beam=b)) for b in ("adaptive", "full", "greedy"))
    compared = [(kind, _riches(keys=kind)) for kind in dict.fromkeys((keys, *kinds))]
    if propositions is not None:
        compared.append(("proposition", _riches(keys="proposition", propositions=propositions)))
    return [
        Question("Beam size", "beam", beams),
        Question("Keywords before each quote", "keywords", keywords),
        Question("Decoding of free text and quotes", "decoding", decoding),
        Question("Retrieval keys", "keys", tuple(compared)),
        Question("Beside the baselines", "system", (("RICHES", _riches(keys=keys)), *_baselines(dense))),
    ]


def _riches(**changed: str) -> Run:
    """The reference with some settings changed; equal settings give equal runs."""
    options = {**REFERENCE, **changed}
    shown = {"keywords": {"true": "keywords", "false": "nokeywords"}[options["keywords"]]}
    parts = [shown.get(name, value) for name, value in options.items() if name in REFERENCE]
    return Run(f"riches-{'-'.join(parts)}", "riches", options)


def _baselines(dense: str | None) -> list[tuple[str, Run]]:
    labelled = [("no retrieval", Run("closed-book", "direct", {}))]
    sources = {"BM25": ("bm25", {"retriever": "bm25"})}
    if dense is not None:
        sources["dense"] = ("dense", {"retriever": dense})
    for label, (name, source) in sources.items():
        for k in READ:
            run = Run(f"{name}-read-{k}", "direct", {"k": k, **source})
            labelled.append((f"{label}, then read {k}", run))
    for label, (name, source) in sources.items():
        run = Run(f"{name}-iterative", "follow-up", source)
        labelled.append((f"iterative, {label}", run))
    return labelled


class Ablation:
    """Makes missing runs, and scores them; ``shared`` are the options of all runs."""

    def __init__(
        self,
        data: str,
        model: str,
        output: str,
        split: str,
        limit: int | None,
        shared: Options,
        dry_run: bool,
    ):
        self.folder = Path(output)
        self.data = data
        self.split = split
        self.dry_run = dry_run
        self.corpus = Corpus.read(data)
        queries, self.qrels = read_split(data, split, self.corpus)
        self.queries = queries[:limit]
        limited = {} if limit is None else {"limit": str(limit)}
        self.shared = {"data": data, "split": split, "model": model, **limited, **shared}

    def make(self, run: Run) -> None:
        """Run a command, unless its files exist with the same settings."""
        stem = self.folder / run.name
        settings = self.settings(run)
        differs = _differs(stem, settings)
        if not differs:
            print(f"# done: {run.name}", flush=True)
            return
        if differs != "new":
            print(f"# {run.name} is made again: {differs}", flush=True)
            if not self.dry_run:  # else it would go on with the kept answers
                stem.with_name(f"{stem.name}.written.jsonl").unlink(missing_ok=True)
        options = {**self.shared, **run.options, "name": run.name, "output": str(stem)}
        names = OPTIONS[run.command]
        arguments = (f"--{names.get(name, name)}={value}" for name, value in options.items())
        command = ["answer", run.command, *arguments]
        print(f"grls {shlex.join(command)}", flush=True)
        if self.dry_run:
            return
        _settings_file(stem).unlink(missing_ok=True)
        if grls(command) != 0:
            raise ConfigError(f"the command above failed; finished runs stay in {self.folder}.")
        write_json(_settings_file(stem), {**settings, "answers": sha256(f"{stem}{ANSWERS}")})

    def settings(self, run: Run) -> dict[str, Any]:
        """Everything that a run's result depends on."""
        file = run.options.get("propositions")
        return {
            "command": run.command,
            "options": {**self.shared, **run.options},
            "corpus": self.corpus.fingerprint,
            "queries": fingerprint_queries(self.queries),
            "propositions": None if file is None else sha256(file),
            "folders": {name: _state(self.shared[name]) for name in ("model",)}
            | {name: _state(run.options[name]) for name in ("retriever",) if name in run.options},
        }

    def score(self, run: Run, judge: Any) -> Scores:
        """The figures of a run."""
        file = f"{self.folder / run.name}{ANSWERS}"
        return score_file(file, self.queries, self.qrels, self.corpus, judge=judge)


def _settings_file(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.settings.json")


def _state(name: str) -> list[list[Any]]:
    """Names, sizes and times of a folder's files: they change if a model is trained again under its name."""
    files = sorted(file for file in Path(name).rglob("*") if file.is_file())
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _differs(stem: Path, settings: Mapping[str, Any]) -> str:
    """Why a run must be made: ``new``, or the difference; empty if it is done."""
    answers = Path(f"{stem}{ANSWERS}")
    if not _settings_file(stem).is_file() or not answers.is_file():
        return "new"
    before = dict(read_json(_settings_file(stem)))
    if before.pop("answers", None) != sha256(answers):
        return "its answers have changed"
    for name, value in settings.items():
        if before.get(name) != value:
            return f"{name} was {json.dumps(before.get(name))}"
    return ""


def markdown(
    questions: list[Question], scores: Mapping[str, Scores], shared: Options, nli: str | None, keys: str
) -> list[str]:
    """A table a question."""
    common = ", ".join(f"{name} {value}" for name, value in shared.items())
    reference = ", ".join(f"{name} {value}" for name, value in {**REFERENCE, "keys": keys}.items())
    lines = [
        "# Ablations of RICHES",
        f"{common}. Unless a row says otherwise: {reference}. Values in percent except quotes and seconds; "
        f"every query counts, answered or not. AutoAIS: {nli or 'no model common'}.",
    ]
    for question in questions:
        rows = [{**scores[run.name], "name": label} for label, run in question.runs]
        lines += [f"## {question.title}", "\n".join(table(rows, question.column))]
    return lines


def main(
    data: str,
    model: str,
    output: str,
    split: str = "test",
    limit: int | None = None,
    propositions: str | None = None,
    dense: str | None = None,
    nli: str | None = None,
    chat: bool = False,
    prompt: str = "single",
    keys: str = "sentence",
    kinds: tuple[str, ...] = KEYS,
    mode: str = "full",
    max_new_tokens: int = 96,
    batch_size: int = 8,
    device: str = "auto",
    only: tuple[str, ...] = (),
    dry_run: bool = False,
) -> None:
    """Make all runs that are missing, and print the tables.

    Args:
        data: Data set folder.
        model: Folder or hub name of a language model.
        output: Folder for the runs and the tables.
        split: Split of the queries.
        limit: Number of first queries to take; null: all.
        propositions: JSONL of propositions, as one more kind of key.
        dense: Folder of a dense (or any other) retriever, as a baseline beside BM25.
        nli: Model of entailment, for AutoAIS.
        chat: Write prompts with the model's chat template.
        prompt: RICHES' examples: single or multi; none for a fine-tuned model.
        keys: Kind of key in the tables that do not compare kinds of key.
        kinds: The kinds of key to compare.
        mode: RICHES' score mode within quotes; renormalized for a model trained with the loss `allowed`.
        max_new_tokens: Length limit of RICHES' outputs.
        batch_size: Questions answered together.
        device: cpu, cuda, cuda:1, …; auto takes a GPU if there is one.
        only: Titles of the tables to make, as '["Beam size"]'; empty: all.
        dry_run: Print the commands only.
    """
    every = questions(propositions, dense, keys, kinds)
    unknown = set(only) - {question.title for question in every}
    if unknown:
        raise SystemExit(f"error: no table {min(unknown)!r}; there are {[q.title for q in every]}.")
    chosen = [question for question in every if not only or question.title in only]
    shared = {"chat": str(chat).lower(), "batch_size": str(batch_size), "device": device}
    of_riches = {"prompt": prompt, "mode": mode, "max_new_tokens": str(max_new_tokens)}
    chosen = [_with(question, of_riches) for question in chosen]
    try:
        ablation = Ablation(data, model, output, split, limit, shared, dry_run)
        runs = {run.name: run for question in chosen for _, run in question.runs}
        with shared_models():
            for run in runs.values():
                ablation.make(run)
        if dry_run:
            return
        judge = None if nli is None else load_entailment(nli, device)
        scores = {name: ablation.score(run, judge) for name, run in runs.items()}
        text = "\n\n".join(markdown(chosen, scores, ablation.shared, nli, keys)) + "\n"
        with atomic_file(Path(output) / "ablations.md") as file:
            file.write(text)
        write_json(Path(output) / "ablations.json", {"nli": nli, "shared": ablation.shared, "runs": scores})
    except GrlsError as error:
        raise SystemExit(f"error: {error}") from None
    print(text)


def _with(question: Question, added: Options) -> Question:
    """A question with these options added to its runs of RICHES."""
    runs = tuple(
        (label, Run(run.name, run.command, {**added, **run.options}) if run.command == "riches" else run)
        for label, run in question.runs
    )
    return Question(question.title, question.column, runs)


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
