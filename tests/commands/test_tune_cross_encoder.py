"""``grls tune`` of a folder whose passages a cross-encoder reads: passages, weight, and what they promise."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing import fails

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.evaluation.evaluate import evaluate_run
from grls.models.cross_encoder import PairScorer
from grls.retrieve.spec import read_spec, update_spec, write_spec

GAIN = re.compile(r"^rescoring: recall@2 ([\d.]+) -> ([\d.]+) \((\d+) passages, (.+)\), ", re.MULTILINE)
TRIED = re.compile(r"^  recall@2 +([\d.]+)  (\d+) passages, (.+)$", re.MULTILINE)
GRID = ["--grid.k=2", "--grid.cross_encoder_passages=[3, 6, 10]", "--grid.cross_encoder_weights=[0.1, 2]"]
TUNE = ["tune", "r", "--data=data", "--device=cpu", "--split=train"]


@pytest.fixture
def place(kinds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, a copy of it with the folder ``r``."""
    monkeypatch.chdir(shutil.copytree(kinds, tmp_path / "place"))
    content = {"retriever": "../dense", "model": "../encoder", "passages": 5, "weight": 0.7}
    write_spec("r", "rescored", content)
    return tmp_path / "place"


def recall() -> str:
    """Of what the folder retrieves, without further options."""
    given = ["retrieve", "r", "--data=data", "--split=train", "--k=2", "--output=o", "--device=cpu"]
    assert main(given) == 0
    return f"{100 * evaluate_run('o.jsonl', 'data', 'train', ks=(2,))['sequence_recall']['recall@2']:.1f}"


@pytest.mark.parametrize("weights", ["[0.1, 2]", "[]"])
def test_the_folder_retrieves_the_best_that_was_tried(
    place: Path, capsys: pytest.CaptureFixture[str], weights: str
) -> None:
    before = recall()
    capsys.readouterr()
    assert main([*TUNE, *GRID, f"--grid.cross_encoder_weights={weights}"]) == 0
    told = capsys.readouterr().out
    (gain,) = GAIN.findall(told)
    tried = TRIED.findall(told)
    assert [passages for _, passages, _ in tried] == ["3", "6", "10"]
    assert gain[0] == before
    assert gain[1:] in tried
    assert float(gain[1]) == max(float(found) for found, *_ in tried)
    spec = read_spec("r")
    weight = spec.get("weight")
    assert gain[2:] == (f"{spec['passages']}", "logits alone" if weight is None else f"weight {weight:g}")
    assert recall() == gain[1]
    assert not Path("r.tune.jsonl").exists()


def test_logits_that_are_right_count_alone_and_few_passages_are_enough(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where chains have to end, the greatest weight does: logits alone compare with no DONE."""
    texts = {passage.id: passage.text for passage in Corpus.read("data")}
    queries, qrels = read_split("data", "train")
    gold = {(query.text, texts[name]) for query in queries for name in gold_passages(query, qrels)}

    def knows(_: Any, pairs: Any, *__: Any) -> Any:
        return np.array([100.0 * (pair in gold) for pair in pairs])

    monkeypatch.setattr(PairScorer, "logits", knows)
    given = ["--grid.k=2", "--grid.cross_encoder_passages=[10, 2]", "--grid.cross_encoder_weights=[0.0001]"]
    assert main([*TUNE, *given]) == 0
    assert "(10 passages, logits alone)" in capsys.readouterr().out
    assert read_spec("r")["passages"] == 10
    assert "weight" not in read_spec("r")
    update_spec("r", {"weight": 0.7, "hops": {"steps": "dynamic", "max": 2}})
    assert main([*TUNE, *given, "--grid.cross_encoder_weights=[9]", "--grid.done_biases=[0]"]) == 0
    told = capsys.readouterr().out
    assert "(10 passages, weight 9)" in told
    assert "chains: set F1" in told
    assert read_spec("r")["weight"] == 9.0


def test_of_equal_settings_the_cheapest_is_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairScorer, "logits", lambda _, pairs, *__: np.zeros(len(pairs)))
    assert main([*TUNE, *GRID]) == 0
    assert {name: read_spec("r")[name] for name in ("passages", "weight")} == {"passages": 3, "weight": 0.0}


def test_a_killed_run_reads_no_passage_twice(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grls.tune.priors._TOGETHER", 4)
    read: list[int] = []
    logits = PairScorer.logits

    def counting(self: PairScorer, pairs: Any, *more: Any) -> Any:
        if len(read) == 2:
            read.append(0)
            raise KeyboardInterrupt
        read.append(len(pairs))
        return logits(self, pairs, *more)

    before = read_spec("r")
    monkeypatch.setattr(PairScorer, "logits", counting)
    assert main([*TUNE, *GRID]) == 130
    assert read_spec("r") == before
    assert len(Path("r.tune.jsonl").read_text().splitlines()) == 3
    assert main([*TUNE, *GRID]) == 0
    resumed = read_spec("r")
    assert len(read) - 1 == math.ceil(len(read_split("data", "train")[0]) / 4)
    update_spec("r", {name: before.get(name) for name in ("passages", "weight")})
    assert main([*TUNE, *GRID]) == 0
    assert read_spec("r") == resumed


def test_what_cannot_be_tried_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_spec("r")
    for option, says in (
        ("passages=[]", "grid.cross_encoder_passages is empty"),
        ("passages=[0]", "grid.cross_encoder_passages must be above 0"),
        ("weights=[-1]", "grid.cross_encoder_weights must be above 0"),
        ("weights=[.nan]", "grid.cross_encoder_weights must be above 0"),
    ):
        assert says in fails(capsys, *TUNE, f"--grid.cross_encoder_{option}")
    assert read_spec("r") == before


def test_where_hops_are_ranked_the_weight_is_that_of_every_hop(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cross-encoder reads the evidence of a hop, and what it finds of it does not count."""
    queries, qrels = read_split("data", "train")
    gold = {query.text: gold_passages(query, qrels) for query in queries}
    texts = {passage.id: passage.text for passage in Corpus.read("data")}
    asked: set[str] = set()

    def knows(_: Any, pairs: Any, *__: Any) -> Any:
        """The evidence is best, then the gold passage that comes next."""
        asked.update(query for query, _ in pairs)
        logits = []
        for query, text in pairs:
            names = next(own for start, own in gold.items() if query.startswith(start))
            hop = sum(texts[name] in query for name in names)
            logits.append(200.0 * (text in query) + 100.0 * (hop < len(names) and text == texts[names[hop]]))
        return np.array(logits)

    monkeypatch.setattr(PairScorer, "logits", knows)
    update_spec("r", {"hops": {"steps": "ranked", "max": 2}})
    given = ["--grid.cross_encoder_passages=[10]", "--grid.cross_encoder_weights=[9]", "--grid.k=2"]
    assert main([*TUNE, *given, "--grid.hops=[1, 2]", "--grid.hop_temperatures=[1]"]) == 0
    assert re.search(r"^rescoring: recall@1 of a hop [\d.]+ -> 100.0 ", capsys.readouterr().out, re.MULTILINE)
    assert sum(query not in gold for query in asked) >= sum(len(own) > 1 for own in gold.values())
