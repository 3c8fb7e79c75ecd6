"""The commands that write, each on toy data, and the inputs that they read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from biencoder_helpers import options as biencoder_options
from encoder_models import tiny_colbert, tiny_splade
from fault_folders import write_usual_kinds
from forked import ended
from llama_small import write_llama
from ralm_helpers import TEXT, write_model
from raw_files import WRITERS, write_raw
from small_data import write_jsonl
from train_helpers import arguments, chain_options

MADE = "--output=OUT"
DATA, CPU, THREE, TRAIN = "--data=IN/data", "--device=cpu", ("--split=train", "--k=3"), "--split=train"
NEW = {"_id": "new-1", "title": "", "text": "the otter is new .", "metadata": {"year": 2020}}


class Command(NamedTuple):
    """A command that writes.

    Attributes:
        name: Its name in the table.
        line: Place of the inputs and output -> arguments.
        again: The arguments after a kill, if the command must be told to go on.
        compared: What of the outputs is compared: ``bytes``, or the names of files whose bytes are.
        copied: Input folders that are copied to where the output is, for a command that changes a folder in
            place: the first one is that folder, the rest are its members.
    """

    name: str
    line: Callable[[Path, Path], list[str]]
    again: Callable[[Path, Path], list[str]] | None = None
    compared: Sequence[str] = ()
    copied: Sequence[str] = ()


def commands() -> list[Command]:
    """All commands that write, over the folders of :func:`prepare`."""
    rows = [*_preparing(), *_indexing(), *_retrieving(), *_looking(), *_answering()]
    simple = [Command(name, partial(_line, words)) for name, *words in rows]
    return [*simple, *_changing(), *trainings(), *_quickstart(), _fit_with_trainings()]


def _preparing() -> list[tuple[str, ...]]:
    public = [(f"prepare {name}", "prepare", name, f"--raw=IN/raw/{name}", "--out=OUT") for name in WRITERS]
    theory = ("--theory.subjects=5", "--theory.predicates=6", "--theory.rules=8", "--theory.max_depth=2")
    return [
        ("prepare ruletaker", "prepare", "ruletaker", *theory, "--train=40", "--dev=9", "--test=9",
         "--out=OUT"),
        ("prepare beir", "prepare", "beir", "--raw=IN/data", "--out=OUT"),
        ("prepare texts", "prepare", "texts", "--raw=IN/texts", "--out=OUT", "--least_words=5",
         "--shares=[0.3, 0.3, 0.3]"),
        ("prepare propositions", "prepare", "propositions", DATA, "--model=IN/llama", "--max_new_tokens=20",
         "--batch_size=2", CPU, MADE),
        ("prepare pseudo-queries", "prepare", "pseudo-queries", DATA, "--model=IN/generator/model",
         "--draw.queries=2", "--k=9", CPU, "--output=OUT.jsonl"),
        *public,
    ]  # fmt: skip


def _indexing() -> list[tuple[str, ...]]:
    prior = '--priors=[{"retriever": "IN/dense", "weight": 2}]'
    ids = ("--add=IN/new", "--remove=IN/gone.txt")
    return [
        ("index generative", "index", "IN/generative/model", "--corpus=IN/data", MADE),
        ("index dense", "index", "IN/bert", "--kind=dense", "--corpus=IN/data", CPU, MADE),
        ("index sparse", "index", "IN/splade-model/splade", "--corpus=IN/data", CPU, MADE),
        ("index multi-vector", "index", "IN/late-model/colbert", "--corpus=IN/data", CPU, MADE),
        ("index built rescored", "index", "IN/encoder", "--kind=rescored", "--corpus=IN/data", CPU, MADE),
        ("identify codes", "identify", "codes", "--corpus=IN/data", "--options.encoder=IN/bert",
         "--options.size=4", "--options.levels=2", MADE),
        ("index bm25", "index", "bm25", "--corpus=IN/data", MADE),
        ("index fusion", "index", "fusion", "IN/bm25", "IN/dense", MADE),
        ("index rescored", "index", "rescored", "IN/bm25", "--model=IN/encoder", MADE),
        ("index hybrid", "index", "hybrid", "IN/generative", prior, MADE),
        ("index hops", "index", "hops", "IN/generative", "--hops.steps=fixed", "--hops.max=2", MADE),
        ("index split", "index", "split", "IN/generative", MADE),
        ("index update to another", "index", "update", "IN/generative", *ids, MADE),
    ]  # fmt: skip


def _retrieving() -> list[tuple[str, ...]]:
    a = "IN/runs/a.jsonl"
    return [
        ("retrieve generative", "retrieve", "IN/generative", DATA, *THREE, CPU, MADE),
        ("retrieve bm25", "retrieve", "IN/bm25", DATA, *THREE, MADE),
        ("retrieve hops", "retrieve", "IN/hops", DATA, *THREE, CPU, MADE),
        ("fuse", "fuse", a, "IN/runs/b.jsonl", MADE),
        ("evaluate", "evaluate", a, DATA, TRAIN, "--output=OUT.json"),
        ("experiment", "experiment", a, "IN/runs/b.jsonl", DATA, TRAIN, MADE),
        ("fit", "fit", "IN/data", "--biencoder=none", "--generator=none", "--k=2", CPU, MADE),
    ]  # fmt: skip


def _looking() -> list[tuple[str, ...]]:
    """Commands that look at data, retrievers and answers, and write what they see."""
    report, gold = "--output=OUT.json", "--limit=4"
    return [
        ("evaluate answers", "evaluate", "IN/answers/made.answers.jsonl", DATA, TRAIN, report),
        ("explain one query", "explain", "calm otter", DATA, TRAIN, "--retriever=IN/generative", CPU,
         "--case.gold=otter-calm", MADE),
        ("explain all", "explain", "all", DATA, TRAIN, "--retriever=IN/generative", gold, CPU, MADE),
        ("explain ranks", "explain", "all", DATA, TRAIN, "--retriever=bm25", gold, MADE),
        ("check", "check", "IN/data", report),
        ("check --index", "check", "--index=IN/hybrid", report),
    ]  # fmt: skip


def _answering() -> list[tuple[str, ...]]:
    reads = ("--model=IN/reader", DATA, CPU)
    asks = (*reads, TRAIN, "--limit=4", MADE)
    short = ("--reader.max_new_tokens=5", "--reader.batch_size=2")
    over = (*reads, "--text=IN/texts/a.txt", "--limit=60", "--retriever=bm25")
    return [
        ("answer direct", "answer", "direct", *asks, "--retriever=bm25", *short),
        ("answer follow-up", "answer", "follow-up", *asks, "--retriever=bm25", *short),
        ("answer riches", "answer", "riches", *asks, "--search.max_new_tokens=8", "--search.batch_size=1"),
        ("answer dsp", "answer", "dsp", "multihop", *asks, "--retriever=bm25", "--dsp.calls.threads=1",
         "--dsp.calls.max_new_tokens=5", "--dsp.calls.attempts=1"),
        ("ralm", "ralm", *over, MADE),
        ("ralm examples", "ralm", "examples", *over, "--examples.candidates=3", "--examples.every=4", MADE),
    ]  # fmt: skip


def _line(words: Sequence[str], place: Path, out: Path) -> list[str]:
    """The arguments of a command: ``IN`` is the place of the inputs, ``OUT`` the output."""
    return [word.replace("IN/", f"{place}/").replace("OUT", str(out / "made")) for word in words]


def _changing() -> list[Command]:
    """Commands that change a folder in place."""
    tune = ("tune", "OUT", DATA, TRAIN, "--limit=6", CPU, "--grid.prior_weights=[1.0]", "--grid.hops=[1, 2]")
    tuned = {
        "hybrid": ("generative", "dense"), "hops": ("generative",), "fusion": ("bm25", "dense"),
        "rescored": ("dense", "encoder"),
    }  # fmt: skip
    made = [
        Command(f"tune {kind}", partial(_line, tune), copied=(kind, *members))
        for kind, members in tuned.items()
    ]
    update = ("index", "update", "OUT", "--add=IN/new", "--remove=IN/gone.txt")
    return [*made, Command("index update", partial(_line, update), copied=("generative",))]


def trainings() -> list[Command]:
    """Commands that train; after a kill they go on from a checkpoint where there is one."""
    made = {
        "biencoder": lambda place, out: biencoder_options(place, out / "made"),
        "chains": lambda place, out: chain_options(place, out / "made", *_OFTEN),
        "riches": _riches,
        "reranker": _reranker,
    }
    made |= {name: partial(_stage, name) for name in ("memorise", "retrieve", "doc2query")}
    return [
        Command(f"train {name}", line, partial(_resumed, line), ("model.safetensors",))
        for name, line in made.items()
    ]


def _quickstart() -> list[Command]:
    """A stage of `make quickstart`, which begins anew without its checkpoints, over an earlier model."""
    line = partial(_stage, "memorise")
    return [Command("quickstart, a stage", line, partial(_anew, line), ("model.safetensors",))]


def _fit_with_trainings() -> Command:
    """A fit that trains a bi-encoder and a generator; which candidate is kept depends on times."""
    words = ("fit", "IN/data", "--biencoder=IN/bert", "--generator=IN/llama", "--k=2", CPU, MADE)
    compared = ("model.safetensors", "bm25.trec", "base.trec", "dense.trec", "hybrid.trec")
    return Command("fit with trainings", partial(_line, words), None, compared)


def _anew(line: Callable[[Path, Path], list[str]], place: Path, out: Path) -> list[str]:
    shutil.rmtree(out / "made" / "checkpoints", ignore_errors=True)
    return line(place, out)


_OFTEN = ("--trainer.val_check_interval=2", "--trainer.check_val_every_n_epoch=null")
"""Measure on dev, and write a checkpoint, every other step."""


def _resumed(line: Callable[[Path, Path], list[str]], place: Path, out: Path) -> list[str]:
    return [*line(place, out), "--resume=true"]


def _stage(name: str, place: Path, out: Path) -> list[str]:
    loss = "full" if name == "doc2query" else "allowed"
    return ["train", *arguments(name, place / "data", out / "made", *_OFTEN, f"--model.loss={loss}")]


def _riches(place: Path, out: Path) -> list[str]:
    given = arguments("riches", place / "data", out / "made", *_OFTEN, "--quotes.max_new_tokens=9")
    kept = [option for option in given[1:] if "generator" not in option]
    return ["train", "riches", f"--config={place / 'riches' / 'riches.yaml'}", *kept]


def _reranker(place: Path, out: Path) -> list[str]:
    examples = place / "examples" / "made.examples.jsonl"
    return [
        "train", "reranker", f"--train={examples}", f"--dev={examples}", f"--data={place / 'data'}",
        f"--encoder={place / 'bert'}", "--max_tokens=32", "--fit.epochs=4", "--device=cpu",
        f"--output={out / 'made'}",
    ]  # fmt: skip


def prepare(place: Path, chosen: Iterable[Command]) -> Path:
    """The inputs of some commands."""
    write_usual_kinds(place)
    words = [word for one in chosen for word in one.line(place, place / "out")]
    writers = {
        "raw": lambda place: write_raw(place / "raw"), "texts": _write_texts, "runs": _write_runs,
        "splade-model": lambda place: tiny_splade(place / "splade-model"),
        "late-model": lambda place: tiny_colbert(place / "late-model"),
        "llama": lambda place: write_llama(place / "llama", place / "data", positions=2048),
        "riches": _write_riches, "reader": _write_reader, "generator": _write_generator,
        "examples": _write_examples, "answers": _write_answers,
    }  # fmt: skip
    for name, write in writers.items():
        if any(f"{place / name}" in word for word in words):
            write(place)
    write_jsonl(place / "new" / "corpus.jsonl", [NEW])
    (place / "gone.txt").write_text("otter-calm\n")
    return place


def _write_texts(place: Path) -> None:
    (place / "texts").mkdir()
    for number, name in enumerate("abcdefghijkl"):
        (place / "texts" / f"{name}.txt").write_text(f"text {number} . {TEXT}\n\n" * 3)


def _write_runs(place: Path) -> None:
    for name, retriever, split in (("a", "bm25", "train"), ("b", "dense", "train"), ("dev", "bm25", "dev")):
        run = ["retrieve", f"{place / retriever}", f"--data={place / 'data'}", f"--split={split}", "--k=3"]
        _must([*run, "--device=cpu", f"--output={place / 'runs' / name}"])


def _must(line: list[str]) -> None:
    code, said = ended(line)
    assert not code, said


def _write_reader(place: Path) -> None:
    write_model(place / "reader", positions=8192)


def _write_generator(place: Path) -> None:
    _must(["train", *arguments("doc2query", place / "data", place / "generator", "--model.loss=full")])


def _write_answers(place: Path) -> None:
    _write_once(place, "answer direct", "answers")


def _write_examples(place: Path) -> None:
    _write_once(place, "ralm examples", "examples")


def _write_once(place: Path, command: str, name: str) -> None:
    """What a command with the model that reads writes, as an input of another."""
    for input_, write in (("reader", _write_reader), ("texts", _write_texts)):
        if not (place / input_).is_dir():
            write(place)
    line = next(one.line for one in commands() if one.name == command)
    _must(line(place, place / name))


def _write_riches(place: Path) -> None:
    """A recipe: the line break of an option would reach the model as two letters."""
    given = arguments("riches", place / "data", place)
    pairs = [option.partition("--model.generator.")[2].split("=") for option in given]
    small: dict[str, object] = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    small |= {"texts": ["question: « » answer: proved\n"]}
    generator = {"class_path": "grls.models.load.generators.ScratchT5", "init_args": small}
    (place / "riches").mkdir()
    recipe = json.dumps({"model": {"generator": generator}})
    (place / "riches" / "riches.yaml").write_text(recipe)
