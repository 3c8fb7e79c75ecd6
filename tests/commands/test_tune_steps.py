"""``grls tune`` of members, of priors on every hop, and of what a cross-encoder reads."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from composite_specs import write_spec
from failing import fails
from fixture_types import Capsys, Patch
from llama_small import write_llama
from small_data import write_jsonl

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.evaluation.evaluate import evaluate_run
from grls.identifiers.spans import Spans
from grls.io.work import Journal
from grls.models.cross_encoder import PairScorer
from grls.models.head import RescoreInput
from grls.models.load.generators import CausalLM
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import read_spec, relative, update_spec
from grls.tune import weights
from grls.tune.step import DevQueries

GAIN = re.compile(r"^(\w+): (.+) ([0-9.]+) -> ([0-9.]+) \((.*)\), ", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(data: Path, dense: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ranked")
    loaded = CausalLM(str(write_llama(root / "llama", data))).load()
    made = GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), kind=Spans(3)
    )
    made.save_pretrained(root / "generator")
    hybrid = root / "hybrid"
    priors = [{"retriever": relative(dense, hybrid)}, {"retriever": "bm25"}]
    write_spec(hybrid, "hybrid", {"generator": "../generator", "priors": priors})
    return hybrid


def test_priors_are_tuned_on_every_hop_and_then_hops_are(folder: Path, data: Path, capsys: Capsys) -> None:
    command = ["tune", str(folder), f"--data={data}", "--split=train", "--device=cpu", "--grid.k=2"]
    grid = ["--grid.prior_weights=[0.5, 4]", "--grid.hops=[1, 2]", "--grid.hop_temperatures=[1]"]
    assert main([*command, *grid, "--hops.steps=ranked"]) == 0
    gains = {step: (measure, *rest) for step, measure, *rest in GAIN.findall(capsys.readouterr().out)}
    assert list(gains) == ["priors", "hops"]
    assert gains["priors"][0] == "recall@1 of a hop"
    assert float(gains["priors"][2]) >= float(gains["priors"][1])
    spec = json.loads((folder / "grls.json").read_text())
    assert spec["hops"]["steps"] == "ranked"
    assert spec["hops"]["max"] in (1, 2)
    assert all("weight" in prior for prior in spec["priors"])


def test_candidates_of_a_hop_know_its_evidence_and_leave_it_out(folder: Path, data: Path) -> None:
    queries, qrels = read_split(data, "train")
    query = next(query for query in queries if len(gold_passages(query, qrels)) > 1)
    dev = DevQueries([query], [gold_passages(query, qrels)])
    hops = dev.by_hop(Corpus.read(data))
    assert [len(passages) for passages in hops.evidence] == list(range(len(dev.gold[0])))
    assert hops.gold[1] == dev.gold[0][1:]
    hybrid: Any = load_retriever(folder, Opening(hop_by_hop=False))
    first, second = hybrid.candidates(hops.queries[:2], 50, hops.evidence[:2])
    (number,) = hybrid.corpus.numbers([hops.evidence[1][0].id])
    assert number in {hit.passage for hit in first}
    assert number not in {hit.passage for hit in second}
    (alone,) = hybrid.candidates(hops.queries[:1], 50)
    assert [hit.passage for hit in alone] == [hit.passage for hit in first]
    assert [hit.score for hit in alone] == pytest.approx([hit.score for hit in first], abs=1e-4)


def test_the_weight_of_rescoring_is_tuned_on_every_hop(
    folder: Path, data: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """The generator reads each hop's evidence, as the search does, and does not find it again."""
    loaded = CausalLM(str(folder.parent / "llama")).load()
    made = GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), kind=Spans(3), rescore_input=RescoreInput(8)
    )
    made.save_pretrained(tmp_path / "r")
    queries, qrels = read_split(data, "train")
    gold = [gold_passages(query, qrels) for query in queries]
    numbers = [made.corpus.numbers(names) for names in gold]
    left = [own[hop:] for own in numbers for hop in range(len(own))]
    asked = []

    def knows(_: object, inputs: list[list[int]], passages: list[list[int]]) -> list[np.ndarray]:
        """The passages before a hop are best, then those that are left."""
        if len(inputs) != len(left):
            return [np.zeros(len(own)) for own in passages]
        asked.append(inputs)
        every = [own for own in numbers for _ in own]
        return [
            np.array([100.0 * (n in right) + 200.0 * (n in own and n not in right) for n in row])
            for row, right, own in zip(passages, left, every, strict=True)
        ]

    monkeypatch.setattr(GenerativeRetriever, "rescore", knows)
    command = ["tune", str(tmp_path / "r"), f"--data={data}", "--split=train", "--device=cpu", "--grid.k=2"]
    grid = ["--grid.rescore_passages=20", "--grid.rescore_weights=[4]", "--grid.hops=[1, 2]"]
    assert main([*command, *grid, "--grid.hop_temperatures=[1]", "--hops.steps=ranked"]) == 0
    gains = {step: (measure, *rest) for step, measure, *rest in GAIN.findall(capsys.readouterr().out)}
    assert (gains["rescoring"][0], gains["rescoring"][2]) == ("recall@1 of a hop", "100.0")
    assert len({tuple(row) for row in asked[0]}) == len(left)  # a hop reads its evidence


FOLDERS: dict[str, dict[str, Any]] = {
    "hops": {"retriever": "../generative", "hops": {"steps": "dynamic", "max": 2}},
    "fusion": {"members": ["../generative", "../dense"], "method": "rrf"},
    "rescored": {"retriever": "../generative", "model": "../encoder", "passages": 4},
    "hybrid": {"generator": "../generative", "priors": [{"retriever": "../dense"}]},
}
GRID = ["--grid.k=2", "--grid.prior_weights=[1]", "--grid.done_biases=[0.5]"]
GRID += ["--grid.cross_encoder_passages=[3]"]


@pytest.fixture
def kinds_here(kinds: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """The working directory, a copy of it, with ``long``: the data set with queries that are too long."""
    monkeypatch.chdir(shutil.copytree(kinds, tmp_path / "kinds_here"))
    shutil.copytree("data", "long")
    lines = [json.loads(line) for line in Path("data/queries.jsonl").read_text().splitlines()]
    write_jsonl(Path("long/queries.jsonl"), [line | {"text": f"{line['text']} " * 99} for line in lines])
    return tmp_path / "kinds_here"


def tuned(data: str, *options: str) -> list[str]:
    return ["tune", "r", f"--data={data}", "--split=train", "--limit=6", "--device=cpu", *GRID, *options]


@pytest.mark.parametrize("kind", ["fusion", "hybrid", "rescored"])
def test_queries_that_may_be_cut_are_cut_in_tuning(kinds_here: Path, kind: str) -> None:
    write_spec("r", kind, FOLDERS[kind] | {"search": {"truncate_queries": True}})
    assert main(tuned("long")) == 0
    assert read_spec("r")["search"]["truncate_queries"] is True
    given = ["--data=long", "--split=train", "--output=o", "--device=cpu"]
    assert main(["retrieve", "r", *given]) == 0


def test_a_killed_run_does_not_go_on_with_another_search(
    kinds_here: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """Rescoring is no step of a fusion: its weight is an option of the search, as any other."""
    write_spec("r", "fusion", FOLDERS["fusion"])
    with monkeypatch.context() as patch:
        patch.setattr("grls.tune.run.update_spec", Mock(side_effect=KeyboardInterrupt))
        assert main(tuned("data")) == 130
    for option in ("--search.beams=3", "--search.rescore_weight=0.5"):
        assert "other settings (search)" in fails(capsys, *tuned("data", option))


@pytest.mark.parametrize("step", ["chains", "hops"])
def test_hops_are_measured_anew_with_other_choices_of_earlier_steps(
    kinds_here: Path, step: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    """A killed run may go on with another grid: what it measured with other weights is not taken."""
    content = FOLDERS["rescored"] | {"weight": 0.5}
    hops = {"steps": "dynamic" if step == "chains" else "ranked", "max": 2}
    more = [] if step == "chains" else ["--grid.hops=[1, 2]"]
    write_spec("r", "rescored", content | {"hops": hops})
    measured: list[str] = []
    original = Journal.measured

    def noted(self: Journal, of: dict[str, Any], measure: Any) -> Any:
        return original(self, of, lambda: (measured.append(of["step"]), measure())[1])

    monkeypatch.setattr(Journal, "measured", noted)
    with monkeypatch.context() as patch:
        patch.setattr("grls.tune.run.update_spec", Mock(side_effect=KeyboardInterrupt))
        assert main(tuned("data", "--grid.cross_encoder_passages=[2]", *more)) == 130
    assert step in measured
    measured.clear()
    assert main(tuned("data", "--grid.cross_encoder_passages=[4]", *more)) == 0
    assert step in measured


RESCORED = re.compile(r"^rescoring: recall@2 ([\d.]+) -> ([\d.]+) \((\d+) passages, (.+)\), ", re.MULTILINE)
TRIED = re.compile(r"^  recall@2 +([\d.]+)  (\d+) passages, (.+)$", re.MULTILINE)
RESCORING = ["--grid.k=2", "--grid.cross_encoder_passages=[3, 6, 10]"]
TUNE = ["tune", "r", "--data=data", "--device=cpu", "--split=train"]


@pytest.fixture
def rescored(kinds: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """The working directory, a copy of it with the folder ``r``."""
    monkeypatch.chdir(shutil.copytree(kinds, tmp_path / "rescored"))
    content = {"retriever": "../dense", "model": "../encoder", "passages": 5, "weight": 0.7}
    write_spec("r", "rescored", content)
    return tmp_path / "rescored"


def recall() -> str:
    """Of what the folder retrieves, without further options."""
    given = ["retrieve", "r", "--data=data", "--split=train", "--k=2", "--output=o", "--device=cpu"]
    assert main(given) == 0
    return f"{100 * evaluate_run('o.jsonl', 'data', 'train', ks=(2,))['sequence_recall']['recall@2']:.1f}"


@pytest.mark.parametrize("tried_weights", [(0.1, 2.0), ()])
def test_the_folder_retrieves_the_best_that_was_tried(
    rescored: Path, capsys: Capsys, monkeypatch: Patch, tried_weights: tuple[float, ...]
) -> None:
    before = recall()
    capsys.readouterr()
    monkeypatch.setattr(weights, "LOGIT_WEIGHTS", tried_weights)
    assert main([*TUNE, *RESCORING]) == 0
    told = capsys.readouterr().out
    (gain,) = RESCORED.findall(told)
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
    rescored: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """Where chains have to end, the greatest weight does: logits alone compare with no DONE."""
    texts = {passage.id: passage.text for passage in Corpus.read("data")}
    queries, qrels = read_split("data", "train")
    gold = {(query.text, texts[name]) for query in queries for name in gold_passages(query, qrels)}

    def knows(_: Any, pairs: Any, *__: Any) -> Any:
        return np.array([100.0 * (pair in gold) for pair in pairs])

    monkeypatch.setattr(PairScorer, "logits", knows)
    given = ["--grid.k=2", "--grid.cross_encoder_passages=[10, 2]"]
    monkeypatch.setattr(weights, "LOGIT_WEIGHTS", (0.0001,))
    assert main([*TUNE, *given]) == 0
    assert "(10 passages, logits alone)" in capsys.readouterr().out
    assert read_spec("r")["passages"] == 10
    assert "weight" not in read_spec("r")
    update_spec("r", {"weight": 0.7, "hops": {"steps": "dynamic", "max": 2}})
    monkeypatch.setattr(weights, "LOGIT_WEIGHTS", (9.0,))
    assert main([*TUNE, *given, "--grid.done_biases=[0]"]) == 0
    told = capsys.readouterr().out
    assert "(10 passages, weight 9)" in told
    assert "chains: set F1" in told
    assert read_spec("r")["weight"] == 9.0


def test_of_equal_settings_the_cheapest_is_taken(rescored: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(PairScorer, "logits", lambda _, pairs, *__: np.zeros(len(pairs)))
    assert main([*TUNE, *RESCORING]) == 0
    assert {name: read_spec("r")[name] for name in ("passages", "weight")} == {"passages": 3, "weight": 0.0}


def test_a_killed_run_reads_no_passage_twice(rescored: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr("grls.tune.weights._TOGETHER", 4)
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
    assert main([*TUNE, *RESCORING]) == 130
    assert read_spec("r") == before
    assert len(Path("r.tune.jsonl").read_text().splitlines()) == 3
    assert main([*TUNE, *RESCORING]) == 0
    resumed = read_spec("r")
    assert len(read) - 1 == math.ceil(len(read_split("data", "train")[0]) / 4)
    update_spec("r", {name: before.get(name) for name in ("passages", "weight")})
    assert main([*TUNE, *RESCORING]) == 0
    assert read_spec("r") == resumed


def test_what_cannot_be_tried_is_refused(rescored: Path, capsys: Capsys) -> None:
    before = read_spec("r")
    for option, says in (
        ("passages=[]", "grid.cross_encoder_passages is empty"),
        ("passages=[0]", "grid.cross_encoder_passages[0] must be at least 1"),
    ):
        assert says in fails(capsys, *TUNE, f"--grid.cross_encoder_{option}")
    assert read_spec("r") == before


def test_where_hops_are_ranked_the_weight_is_that_of_every_hop(
    rescored: Path, monkeypatch: Patch, capsys: Capsys
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
    given = ["--grid.cross_encoder_passages=[10]", "--grid.k=2"]
    assert main([*TUNE, *given, "--grid.hops=[1, 2]", "--grid.hop_temperatures=[1]"]) == 0
    assert re.search(r"^rescoring: recall@1 of a hop [\d.]+ -> 100.0 ", capsys.readouterr().out, re.MULTILINE)
    assert sum(query not in gold for query in asked) >= sum(len(own) > 1 for own in gold.values())
