"""``grls tune-dynamic``: what it writes is the best of what it tried, and retrieves what it promised."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import fails
from small_data import small_retriever, tiny_bert, write_jsonl, write_small

from grls.cli import main
from grls.evaluation.evaluate import evaluate_run
from grls.models.biencoder import BiEncoder
from grls.retrieve.generative.retriever import GenerativeRetriever

SHOWN = re.compile(r"set F1 +([\d.]+), DONE missing +([\d.]+) %, done_bias (\S+), ([\w-]+)")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("tuning") / "data")


@pytest.fixture(scope="module")
def generative(data: Path) -> Path:
    folder = data.parent / "generative"
    small_retriever(data).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dense(data: Path) -> Path:
    torch.manual_seed(0)
    BiEncoder.load(str(tiny_bert(data.parent / "bert")), device="cpu").save(data.parent / "model")
    folder = data.parent / "dense"
    given = [f"--model={data.parent / 'model'}", f"--corpus={data}", f"--output={folder}", "--device=cpu"]
    assert main(["index", *given]) == 0
    return folder


def tune(data: Path, retriever: Path, output: Path, *options: str) -> list[str]:
    given = [f"--data={data}", f"--retriever={retriever}", f"--output={output}", "--device=cpu"]
    return ["tune-dynamic", *given, "--split=train", "--hops=4", *options]


@pytest.mark.parametrize("kind", ["generative", "dense", "beside"])
def test_the_config_retrieves_the_best_that_was_tried(
    kind: str,
    data: Path,
    generative: Path,
    dense: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = tmp_path / "dynamic.yaml"
    options = ["--done_biases=[-9, 0, 9]"]
    if kind != "dense":
        options += ["--chains=6", "--beams=6"]
    if kind == "beside":
        options += [f"--prior={dense}", "--prior_normalized=true"]
    assert main(tune(data, dense if kind == "dense" else generative, config, *options)) == 0
    *tried, best = [SHOWN.search(line) for line in capsys.readouterr().out.splitlines()]
    assert best is not None
    found = [match.groups() for match in tried if match]
    assert len(found) == (3 if kind == "dense" else 6)
    assert best[1] == max((f1 for f1, *_ in found), key=float)
    assert best.groups() in found
    assert len({f1 for f1, *_ in found}) > 1
    assert best[0] in config.read_text()
    given = [f"--config={config}", f"--data={data}", f"--output={tmp_path / 'o'}", "--device=cpu"]
    assert main(["retrieve", *given, "--split=train"]) == 0
    measures = evaluate_run(f"{tmp_path / 'o'}.jsonl", data, "train")
    assert f"{100 * measures['set']['f1']:.1f}" == best[1]
    assert f"{100 * measures['done_missing']['done_missing']:.1f}" == best[2]


def test_one_setting_alone_and_some_queries(
    data: Path, generative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--done_biases=[-1]", "--choose=[likeliest]", "--limit=2"]
    assert main(tune(data, generative, tmp_path / "x.yaml", *given)) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    text = (tmp_path / "x.yaml").read_text()
    assert "done_bias: -1.0\n" in text
    assert 'choose: "likeliest"\n' in text
    assert "prior" not in text


@pytest.mark.parametrize("options", [["--prior=bm25"], ["--empty_weight=0.2"], []])
def test_scores_in_nats_have_biases_of_their_own(
    options: list[str], data: Path, generative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tune(data, generative, tmp_path / "x.yaml", "--limit=2", "--beams=3", *options)) == 0
    tried = [SHOWN.search(line) for line in capsys.readouterr().out.splitlines()[:-1]]
    assert {float(match[3]) for match in tried if match} == set(GenerativeRetriever.done_biases)


def test_what_was_found_with_one_bias_is_not_searched_for_with_the_next(
    data: Path, generative: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    search = GenerativeRetriever.search

    def counting(self: GenerativeRetriever, inputs: Any, *args: Any, **named: Any) -> Any:
        asked.append(len(inputs))
        return search(self, inputs, *args, **named)

    monkeypatch.setattr(GenerativeRetriever, "search", counting)
    once = ["--done_biases=[0.5]", "--limit=3"]
    assert main(tune(data, generative, tmp_path / "x.yaml", *once)) == 0
    alone = sum(asked)
    asked.clear()
    assert main(tune(data, generative, tmp_path / "x.yaml", "--done_biases=[0.5, 0.5]", "--limit=3")) == 0
    assert sum(asked) == alone


def test_how_it_was_searched_is_written_and_of_equal_biases_the_smallest_is(
    data: Path, generative: Path, tmp_path: Path
) -> None:
    given = ["--sets=true", "--mode=full", "--chains=3", "--done_biases=[-2, 1, -1]", "--limit=1", "--hops=1"]
    assert main(tune(data, generative, tmp_path / "x.yaml", *given)) == 0
    text = (tmp_path / "x.yaml").read_text()
    for line in ("sets: true", 'mode: "full"', "chains: 3", "hops: 1"):
        assert f"{line}\n" in text
    assert "done_bias: 1.0\n" in text


def test_queries_that_may_be_cut_may_be_cut_again(data: Path, generative: Path, tmp_path: Path) -> None:
    long = write_small(tmp_path / "data")
    lines = [json.loads(line) for line in (long / "queries.jsonl").read_text().splitlines()]
    lines = [{**line, "text": " ".join([line["text"]] * 200)} for line in lines]
    write_jsonl(long / "queries.jsonl", lines)
    config = tmp_path / "x.yaml"
    given = ["--truncate_queries=true", "--limit=2", "--done_biases=[0]"]
    assert main(tune(long, generative, config, *given)) == 0
    given = [f"--config={config}", f"--data={long}", f"--output={tmp_path / 'o'}", "--split=train"]
    assert main(["retrieve", *given]) == 0


def test_what_cannot_be_tuned_is_refused(
    data: Path, generative: Path, dense: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "x.yaml"
    assert "finite numbers" in fails(capsys, *tune(data, generative, output, "--done_biases=[]"))
    assert "finite numbers" in fails(capsys, *tune(data, generative, output, "--done_biases=[.inf]"))
    assert "--choose is empty" in fails(capsys, *tune(data, generative, output, "--choose=[]"))
    assert "needs log-probabilities" in fails(capsys, *tune(data, dense, output, "--choose=[expected-f1]"))
    assert "limit must be at least 1" in fails(capsys, *tune(data, dense, output, "--limit=0"))
    assert not output.exists()
