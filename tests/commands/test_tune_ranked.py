"""`grls tune` of a hybrid that ranks by hops: priors on every hop, then the number of hops."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from llama_small import write_llama

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import gold_passages, read_split
from grls.models.head import RescoreInput
from grls.models.load.language import CausalLM
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import relative, write_spec
from grls.tune.step import DevQueries

GAIN = re.compile(r"^(\w+): (.+) ([0-9.]+) -> ([0-9.]+) \((.*)\), ", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(data: Path, dense: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ranked")
    loaded = CausalLM(str(write_llama(root / "llama", data))).load()
    made = GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), span_words=3
    )
    made.save_pretrained(root / "generator")
    hybrid = root / "hybrid"
    priors = [{"retriever": relative(dense, hybrid)}, {"retriever": "bm25"}]
    write_spec(hybrid, "hybrid", {"generator": "../generator", "priors": priors})
    return hybrid


def test_priors_are_tuned_on_every_hop_and_then_hops_are(
    folder: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    dev = DevQueries(str(data), "train", [query], [gold_passages(query, qrels)], None)
    hops = dev.by_hop(Corpus.read(data))
    assert [len(passages) for passages in hops.evidence] == list(range(len(dev.gold[0])))
    assert hops.gold[1] == dev.gold[0][1:]
    hybrid = HybridRetriever.of(load_retriever(folder, Opening(hop_by_hop=False)))
    first, second = hybrid.candidates(hops.queries[:2], 50, hops.evidence[:2])
    (number,) = hybrid.corpus.numbers([hops.evidence[1][0].id])
    assert number in {hit.passage for hit in first}
    assert number not in {hit.passage for hit in second}
    (alone,) = hybrid.candidates(hops.queries[:1], 50)
    assert [hit.passage for hit in alone] == [hit.passage for hit in first]
    assert [hit.score for hit in alone] == pytest.approx([hit.score for hit in first], abs=1e-4)


def test_the_weight_of_rescoring_is_tuned_on_every_hop(
    folder: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The generator reads each hop's evidence, as the search does, and does not find it again."""
    loaded = CausalLM(str(folder.parent / "llama")).load()
    made = GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), span_words=3, rescore_input=RescoreInput(8)
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
