"""The four papers' tables: every config parses, plans and names commands that exist; a made-up one runs."""

import importlib
import inspect
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
from small_data import write_small
from verbs import parsed

from benchmarks.papers import __main__ as papers
from benchmarks.papers import subset
from benchmarks.papers.__main__ import NAMES, Runner, Study, main
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError

ROOT = Path(__file__).parents[2]
PLACE = Runner({"DATA": "data", "RAW": "data/raw", "RUNS": "runs/papers"})


def test_every_command_of_every_config_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of commands that differ in numbers and names alone, one is parsed."""
    monkeypatch.chdir(ROOT)
    commands: dict[tuple[str, ...], list[str]] = {}
    for study in (Study.read(name, small) for name in NAMES for small in (False, True)):
        assert study.commands or study.uses
        for words in (shlex.split(PLACE.placed(line)) for line in study.lines()):
            assert not re.search(r"[{}]|DATA|RAW|RUNS", "".join(words)), words
            kind = (re.sub(r"(data|runs)/\S*|[\d.]+(e-\d+)?|SmolLM2\S*|gpt2\S*", "", word) for word in words)
            commands.setdefault(tuple(kind), words)
    for words in commands.values():
        if words[0] == "-m":
            options = {word.removeprefix("--") for word in words if word.startswith("--")}
            assert options <= {*inspect.signature(importlib.import_module(words[1]).main).parameters}, words
        else:
            parsed(words)
            if words[:2] == ["answer", "dsp"]:
                assert ("--retriever" in words) == (words[2] != "vanilla"), words


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_no_two_commands_write_the_same(name: str, small: bool) -> None:
    """A run beside its model's folder made the training run again at each call."""
    lines = list(dict.fromkeys(Study.read(name, small).lines()))
    outputs = [words[words.index("--output") + 1] for words in map(shlex.split, lines) if "--output" in words]
    assert len(set(outputs)) == len(outputs)


def test_every_window_is_that_of_the_paper() -> None:
    """Also that of the examples which train the reranker: the default window is cut coarser."""
    lines = [line for name in ("ralm-1", "ralm-figures") for line in Study.read(name).lines()]
    windows = [line for line in lines if line.startswith("ralm ")]
    assert windows
    assert [x for x in windows if "configs/paper/ralm.yaml" not in x and "--reader.cut 1" not in x] == []


def test_what_a_command_reads_is_written_before() -> None:
    """In every config, and where one value of one variable is kept, which trains nothing for the others."""
    for name, small in itertools.product(NAMES, (False, True)):
        each = {v: values for used in Study.read(name, small).used() for v, values in used.each.items()}
        ones = ({v: [str(values[-1])]} for v, values in each.items()) if small else ()
        for only in ({}, *ones):
            written: list[str] = []
            for line in Study.read(name, small, only).lines():
                output = (re.findall(r"--output (\S+)", line) or [""])[0]
                for file in {*re.findall(r"RUNS/[^\s=]+", line)} - {output}:
                    assert any(re.match(rf"{re.escape(w)}(?![\w-])", file) for w in written), (only, line)
                written += [output] if output else []
    trained = [line for line in Study.read("grls-5", True, {"run": ["s-grls"]}).lines() if "train" in line]
    assert len(trained) == 1
    lines = Study.read("grls-figures", True, {"set": ["strategyqa"], "system": ["s-be"]}).lines()
    assert lines[-1].split()[:4] == [
        "experiment",
        *(f"RUNS/strategyqa/{run}-run.jsonl" for run in ("s-be", "s-be-2", "bm25")),
    ]


def test_every_table_has_its_form() -> None:
    for name in NAMES:
        for study in (Study.read(name), Study.read(name, small=True)):
            if not study.table:
                continue
            printed = PLACE.table(study)
            columns = len(study.table["columns"]) + 1
            rows = [line for line in printed.splitlines() if line.startswith("| ")]
            assert {row.count("|") - 1 for row in rows} == {columns}, name
            assert len(rows) >= 2 + len(study.table["rows"]), name
    assert "| m-GRLS, memorised (quoted)" in PLACE.table(Study.read("grls-2"))
    assert "two GRLS" not in PLACE.table(Study.read("grls-2"))


def test_the_estimate_counts_operations(capsys: pytest.CaptureFixture[str]) -> None:
    assert papers.Work("", "train", 1e9, 1.2e11).hours() == pytest.approx(1e3)
    assert papers.Work("", "read", 1e9, 3.6e11, 2).hours() == pytest.approx(2e3)
    assert papers.Work("", "write", 1e9, 5.76e10).hours() == pytest.approx(1e3)
    assert main(["grls-10", "riches-7", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "grls train memorise --config configs/memorise.yaml --config configs/paper/memorise.yaml" in said
    assert re.search(r"Estimate at the paper's size: [1-9]\d* GPU hours", said)
    assert main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(NAMES)


CONFIG = """\
title: A table
source: a paper
each: {set: [mine, yours]}
words: {k: 3, deep: {mine: "--k {k}"}, out: "RUNS/{set}"}
commands:
  - retrieve bm25 --data DATA/{set} {deep} --output {out}
  - evaluate {out}.jsonl --data DATA/{set} --ks [1] --output {out}.json
table:
  rows: {BM25: recall, judged: {cell: "RUNS/{c0}.json queries/judged", scale: 1}}
  columns: {Mine: [mine], Yours: [yours]}
  cell: RUNS/{c0}.json sequence_recall/{row}@1
quoted: {Theirs: [12.5, null]}
work: [{what: all, kind: read, parameters: 1, tokens: 1}]
note: A note.
small: {each: {set: [mine]}, words: {k: 2}}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A config of ours in the place of the papers', and its options."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "made-1.yaml").write_text(CONFIG)
    (tmp_path / "configs" / "made-2.yaml").write_text("title: t\nsource: s\nuses: [made-1]\ntabel: {}\n")
    (tmp_path / "configs" / "made-3.yaml").write_text("title: t\nsource: s\nuses: [made-0]\n")
    monkeypatch.setattr(papers, "FOLDER", tmp_path / "configs")
    monkeypatch.setattr(papers, "NAMES", ["made-1", "made-2", "made-3"])
    for name in ("mine", "yours"):
        write_small(tmp_path / "the data" / name)
    return [f"--data={tmp_path / 'the data'}", f"--runs={tmp_path / 'the runs'}"]


def test_a_table_is_made_once_and_printed_in_form(
    place: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["made-1", *place, "--small"]) == 0
    said = capsys.readouterr().out
    recall = json.loads((tmp_path / "the runs" / "mine.json").read_text())["sequence_recall"]["recall@1"]
    assert f"| BM25            | {100 * recall:.1f} | –     |" in said
    assert "| judged          | 2.0  | –     |" in said
    assert "| Theirs (quoted) | 12.5 | –     |" in said
    assert (tmp_path / "the runs" / "made-1.md").read_text() in said
    options = json.loads((tmp_path / "the runs" / "mine.info.json").read_text())["options"]
    assert options["k"] == 2

    assert main(["made-1", *place, "--only", "set=mine"]) == 0  # --k 3: other hits, other scores
    assert "# done" not in capsys.readouterr().out
    assert main(["made-1", *place]) == 0
    said = capsys.readouterr().out
    assert said.count("# done: grls") == 2
    assert "| – " not in said.partition("| BM25")[2].partition("(quoted)")[0]
    (tmp_path / "the runs" / "yours.json").unlink()
    assert main(["made-1", *place]) == 0
    assert capsys.readouterr().out.count("# done: grls") == 3


def test_what_is_wrong_is_said(place: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["riches"], "tables: expected one of made, made-1, made-2, made-3, got 'riches'"),
        (["mad-2"], "tables: expected one of made-2, made-3, made-1, made, got 'mad-2'"),
        (["made-1", "--only", "sett=mine"], "--only: expected one of set, got 'sett'"),
        (["made-1", "--only", "set=mine,your"], "--only set: expected one of yours, mine, got 'your'"),
        (["made-1", "--word", "dep="], "--word: expected one of deep, k, out, got 'dep'"),
        (["made-2"], "unexpected keyword argument 'tabel'"),
        (["made-3"], "made-3.yaml: uses: expected one of made-3, made-2, made-1, got 'made-0'"),
        (["made-1", "--only", "set"], "--only expects NAME=VALUE, got set"),
        (["made-1", "--word", "out=RUNS/{nowhere}"], "names 'nowhere', no word and no variable"),
        (["made-1", "--word", "deep=--k 0"], "the command above failed"),
    ):
        assert main([*arguments, *place]) == 1
        assert message in capsys.readouterr().err


def test_training_queries_for_a_rate_of_unseen_gold(tmp_path: Path) -> None:
    """Test query n has the gold passages n and n + 1; training query n has the passage n alone."""
    test = {f"t{n}": {str(n), str(n + 1)} for n in range(0, 20, 2)}
    train = {f"q{n}": {str(n)} for n in range(20)} | {f"o{n}": {"none"} for n in range(6)}
    high, reached = subset.choose(train, test, 10, 0.8)
    assert reached == 0.8
    assert {query for query in high if query.startswith("o")} == {f"o{n}" for n in range(6)}
    assert subset.choose(train, test, 10, 0.0)[1] == 0.0
    assert subset.choose(train, test, 20, 1.0)[1] == 0.3  # 14 readers see 7 queries at the least
    assert subset.choose(train, test, 10, 0.8, seed=1)[0] != high
    with pytest.raises(ConfigError, match="cannot choose 27 of 26"):
        subset.choose(train, test, 27, 0.5)
    with pytest.raises(ConfigError, match="rate must be between 0 and 1, got 30"):
        subset.choose(train, test, 10, 30)

    passages = [Passage(name, f"text {name}") for name in [*map(str, range(21)), "none"]]
    gold = {"train": train, "test": test}
    queries = [Query(name, f"is it {name} ?") for split in gold.values() for name in split]
    qrels = {s: {q: dict.fromkeys(ids, 1) for q, ids in split.items()} for s, split in gold.items()}
    write_dataset(tmp_path / "data", passages, queries, qrels)
    subset.main(str(tmp_path / "data"), str(tmp_path / "high"), 10, 0.8)
    assert list(read_qrels(tmp_path / "high" / "qrels" / "train.tsv")) == high
    assert json.loads((tmp_path / "high" / "subset.json").read_text())["unseen_rate"] == 0.8
    (tmp_path / "data/qrels/train.tsv").unlink()
    with pytest.raises(SystemExit, match=r"has no qrels/train\.tsv"):
        subset.main(str(tmp_path / "data"), str(tmp_path / "none"), 10, 0.8)
    assert Corpus.read(tmp_path / "high").fingerprint == Corpus.read(tmp_path / "data").fingerprint
