"""Ranking by rescores: the formula, the retriever that does it, chains, folders and refusals."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails
from llama_small import write_llama
from small_data import queries, small_retriever, tiny_bert, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.decode import ScoredPassage
from grls.errors import ConfigError, DataError
from grls.evaluation.evaluate import evaluate_run
from grls.io.files import write_json
from grls.models.biencoder import BiEncoderModel
from grls.models.load.language import CausalLM
from grls.models.rescore_spec import RescoreInput, read_rescore_input
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.rescore import rescored
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hops.stop import DoneByLogOdds
from grls.retrieve.hybrid.priors import open_sources
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource
from grls.retrieve.spec import read_spec, write_spec


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("rescore") / "data")


@pytest.fixture(scope="module")
def llama(data: Path) -> Path:
    return write_llama(data.parent / "llama", data)


def opened(data: Path, llama: Path, words: int | None = None, **options: Any) -> GenerativeRetriever:
    loaded = CausalLM(str(llama)).load()
    return GenerativeRetriever.assemble(
        loaded.model.eval(), loaded.tokenizer, Corpus.read(data), rescore_input=RescoreInput(4),
        options=SearchOptions(beams=10, **options), span_words=words,
    )  # fmt: skip


def test_candidates_keep_their_probability_together() -> None:
    found = [
        ScoredPassage(7, math.log(0.4)),
        ScoredPassage(2, math.log(0.3)),
        ScoredPassage(5, math.log(0.1)),
        ScoredPassage(1, -9.0),
    ]
    ranked = rescored(found, np.array([0.0, 1.0, 2.0]), 0.5)
    weights = {7: 0.4, 2: 0.3 * math.exp(0.5), 5: 0.1 * math.e}
    share = 0.8 / sum(weights.values())
    expected = {passage: math.log(weight * share) for passage, weight in weights.items()} | {1: -9.0}
    low = rescored([*found[:3], ScoredPassage(1, -0.5)], np.array([0.0, 1.0, 2.0]), 0.5)
    assert low[3] == ScoredPassage(1, low[2].score)  # what was not read comes last
    assert [some.passage for some in ranked] == [2, 7, 5, 1]
    for some in ranked:
        assert some.score == pytest.approx(expected[some.passage])
    assert rescored(found, np.array([3.0, 1.0, 2.0]), 0.0) == [
        ScoredPassage(some.passage, pytest.approx(some.score)) for some in found
    ]
    assert rescored(found, np.array([]), 1.0) == found
    assert rescored([], np.array([]), 1.0) == []


def log_odds(retriever: GenerativeRetriever, source: list[int], number: int) -> float:
    """By transformers' own forward pass, with four tokens of the passage."""
    corpus, codec = retriever.corpus, retriever.codec
    row = codec.done_sequence if number == len(corpus) else codec.passages(corpus.passages([number]))[0]
    body = [token for token in row.tolist() if token != codec.end][:4]
    with torch.no_grad():
        logits = retriever.model(input_ids=torch.tensor([[*source, *body, codec.end]])).logits[0, -1]
    return float(logits[codec.evidence] - logits[codec.question])


@pytest.mark.parametrize("words", [None, 3])
def test_what_is_found_is_ranked_by_both(data: Path, llama: Path, words: int | None) -> None:
    retriever = opened(data, llama, words)
    plain = retriever.retrieve(queries()[:5], 10)
    retriever.options = SearchOptions(beams=10, rescore=4, rescore_weight=2.0)
    moved = 0
    for query, own, found in zip(queries()[:5], plain, retriever.retrieve(queries()[:5], 3), strict=True):
        source = retriever.codec.model_input(retriever.encode([query])[0])
        numbers = [n for n in retriever.corpus.numbers([hit.id for hit in own[:4]]) if n is not None]
        odds = np.array([log_odds(retriever, source, number) for number in numbers])
        both = np.array([hit.score for hit in own[:4]]) + 2.0 * odds
        best = [own[n].id for n in np.argsort(-both)]
        assert [hit.id for hit in found] == best[:3]
        moved += best[0] != own[0].id
    assert moved  # rescores change something here


@pytest.mark.parametrize("words", [None, 3])
def test_a_ranking_is_the_same_however_many_are_asked_for(data: Path, llama: Path, words: int | None) -> None:
    retriever = opened(data, llama, words, rescore=4, rescore_weight=5.0)
    for few, many in zip(
        retriever.retrieve(queries()[:5], 3), retriever.retrieve(queries()[:5], 9), strict=True
    ):
        assert [hit.id for hit in many[:3]] == [hit.id for hit in few]
        scores = [hit.score for hit in many]
        assert scores == sorted(scores, reverse=True)


def test_filters_removals_and_priors_go_with_it(data: Path, llama: Path) -> None:
    retriever = opened(data, llama, rescore=6, rescore_weight=2.0)
    some = [passage.id for passage in retriever.corpus][:3]
    (found,) = retriever.retrieve(queries()[:1], 9, allow=some)
    assert {hit.id for hit in found} == set(some)
    retriever.remove(some[:1])
    assert some[0] not in {hit.id for hit in retriever.retrieve(queries()[:1], 10)[0]}
    (source,) = open_sources(retriever.corpus, ["bm25"], "cpu")
    for normalized in (False, True):
        hybrid = HybridRetriever(retriever, [WeightedSource(source, 0.5)], normalized=normalized)
        retriever.options = SearchOptions(beams=10)
        (plain,) = hybrid.retrieve(queries()[:1], 9)
        retriever.options = SearchOptions(beams=10, rescore=4, rescore_weight=2.0)
        (both,) = hybrid.retrieve(queries()[:1], 9)
        assert {hit.id for hit in both[:4]} == {hit.id for hit in plain[:4]}
        assert [hit.id for hit in both[4:]] == [hit.id for hit in plain[4:]]
        assert [hit.id for hit in both] != [hit.id for hit in plain]


def test_done_is_rescored_in_chains(data: Path, llama: Path) -> None:
    retriever = opened(data, llama)
    source = retriever.codec.model_input(retriever.encode(queries()[:1])[0])
    (odds,) = retriever.rescore([source], [[3, retriever.done]])
    expected = [log_odds(retriever, source, number) for number in (3, retriever.done)]
    np.testing.assert_allclose(odds, expected, rtol=1e-3, atol=1e-3)
    lengths = {}
    for weight in (0.0, 1e3):
        retriever.options = SearchOptions(beams=10, rescore=11, rescore_weight=weight)
        chains = HopsRetriever(retriever, HopOptions("dynamic", 3)).retrieve_chains(queries()[:4])
        assert all(chain.score <= 1e-6 for some in chains for chain in some)  # still log-probabilities
        lengths[weight] = [[hit.id for hit in some[0].hits] for some in chains]
    assert lengths[0.0] != lengths[1e3]


class AtOnce(DoneByLogOdds):
    """DONE may be all that is written."""

    def may_end(self, hop: int) -> bool:
        return True


def test_a_bias_brings_back_a_done_that_rescoring_put_behind(data: Path, llama: Path) -> None:
    """It is known from all that was rescored, however few beams and branches there are."""
    retriever = opened(data, llama, 3, rescore=11, rescore_weight=1.0)
    retriever.options = replace(retriever.options, beams=2)
    source = retriever.codec.model_input(retriever.encode(queries()[:1])[0])
    (found,) = retriever.search([source], 11, [[]])
    place = next(n for n, hit in enumerate(found) if hit.passage == retriever.done)
    assert place >= 2  # behind what branch and beams would take
    hops = HopsRetriever(retriever, HopOptions("dynamic", branch=2))
    hops.search.stop = AtOnce(200.0)
    chains = hops.retrieve_chains(queries()[:1])
    assert [(chain.done, len(chain.hits)) for chain in chains[0][:1]] == [(True, 0)]


def test_the_folder_remembers_how_passages_are_rescored(data: Path, llama: Path, tmp_path: Path) -> None:
    retriever = opened(data, llama)
    retriever.save_pretrained(tmp_path / "kept")
    again = GenerativeRetriever.from_pretrained(tmp_path / "kept", options=SearchOptions(beams=10, rescore=4))
    assert again.rescore_input == RescoreInput(4)
    retriever.options = again.options
    assert again.retrieve(queries()[:3], 3) == retriever.retrieve(queries()[:3], 3)
    file = tmp_path / "kept" / "grls.json"
    write_json(file, json.loads(file.read_text()) | {"rescore": {"tokens": 0}})
    with pytest.raises(DataError, match=r'expected how much is read to rescore as \{"tokens": 128\}'):
        GenerativeRetriever.from_pretrained(tmp_path / "kept")
    assert read_rescore_input(None, file) is None


def test_a_generator_that_has_not_learned_to_is_refused(tmp_path: Path) -> None:
    retriever = small_retriever(write_small(tmp_path), rescore=3)
    with pytest.raises(ConfigError, match=r"has not learned to rescore passages: train it with data.rescore"):
        retriever.retrieve(queries()[:1], 2)
    with pytest.raises(ConfigError, match="rescore must be at least 0"):
        SearchOptions(rescore=-1)
    with pytest.raises(ConfigError, match="rescore_weight must be a finite number"):
        SearchOptions(rescore_weight=math.nan)


def test_commands_refuse_what_cannot_rescore(
    data: Path, llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["retrieve", f"--data={data}", f"--output={tmp_path / 'run'}", "--search.rescore=3"]
    assert "rescores nothing" in fails(capsys, *given, "bm25")
    assert main(["index", f"{llama}", f"--corpus={data}", f"--output={tmp_path / 'plain'}"]) == 0
    assert "has not learned to rescore" in fails(capsys, *given, tmp_path / "plain")
    dense = DenseRetriever.assemble(
        BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu"), Corpus.read(data)
    )
    dense.save_pretrained(tmp_path / "dense")
    assert "rescores nothing" in fails(capsys, *given, tmp_path / "dense")
    tune = ["tune", tmp_path / "plain", f"--data={data}"]
    assert "a generator that has learned to rescore" in fails(capsys, *tune)
    assert "must be above 0" in fails(capsys, *tune, "--grid.rescore_weights=[0.5, -1]")


def test_the_weight_is_tuned_and_written_for_retrieve(
    data: Path, llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    opened(data, llama).save_pretrained(kept)
    command = ["tune", str(kept), f"--data={data}", "--grid.rescore_passages=4", "--search.beams=6"]
    assert main([*command, "--grid.k=2", "--grid.rescore_weights=[0.5, 1, 2]"]) == 0
    told = capsys.readouterr().out
    tried = [float(line.split()[1]) for line in told.splitlines() if line.startswith("  recall@2")]
    assert len(tried) == 4
    gain = re.search(r"^rescoring: recall@2 ([0-9.]+) -> ([0-9.]+) \((.+)\), ", told, re.MULTILINE)
    assert gain is not None
    assert (float(gain[1]), float(gain[2])) == (tried[0], max(tried))
    assert main(["retrieve", str(kept), f"--data={data}", "--split=dev", "--k=2",
                 f"--output={tmp_path / 'run'}"]) == 0  # fmt: skip
    found = evaluate_run(f"{tmp_path / 'run'}.jsonl", str(data), "dev", (2,))
    assert 100 * found["sequence_recall"]["recall@2"] == pytest.approx(max(tried), abs=0.06)
    info = json.loads((tmp_path / "run.info.json").read_text())
    rescored_passages = info["options"].get("rescore", 0) > 0
    assert rescored_passages == (gain[3] != "none")
    assert info["options"]["beams"] == 6
    assert info["score_mode"] == ("renormalized, rescored" if rescored_passages else "renormalized")


def test_priors_come_first_and_then_rescores(
    data: Path, llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What tuning measures with a weight is what the folder retrieves with it, with a bi-encoder."""
    opened(data, llama, 3).save_pretrained(tmp_path / "kept")
    biencoder = BiEncoderModel.load(str(tiny_bert(tmp_path / "bert")), device="cpu")
    DenseRetriever.assemble(biencoder, Corpus.read(data)).save_pretrained(tmp_path / "dense")
    priors = [{"retriever": "../dense"}, {"retriever": "bm25"}]
    hybrid = tmp_path / "hybrid"
    write_spec(hybrid, "hybrid", {"generator": "../kept", "priors": priors})
    given = [str(hybrid), f"--data={data}", "--split=train"]
    grid = ["--grid.k=2", "--grid.prior_weights=[0.5]", "--grid.rescore_passages=3"]
    assert main(["tune", *given, *grid, "--grid.rescore_weights=[4]"]) == 0
    told = capsys.readouterr().out.split("rescore_weight 4\n")[0]
    weighed = float(told.rsplit("recall@2", 1)[1])
    run = tmp_path / "run"
    options = [f"--output={run}", "--k=2", "--search.rescore=3", "--search.rescore_weight=4"]
    assert main(["retrieve", *given, *options]) == 0
    found = evaluate_run(f"{run}.jsonl", str(data), "train", (2,))
    assert 100 * found["sequence_recall"]["recall@2"] == pytest.approx(weighed, abs=0.06)
    info = json.loads((tmp_path / "run.info.json").read_text())
    assert info["score_mode"] == "renormalized with priors, rescored"
    assert info["options"]["prior"] == ["../dense", "bm25"]


def test_what_tuning_measures_of_chains_is_what_retrieve_finds(
    data: Path, llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(data, llama, 3).save_pretrained(tmp_path / "kept")
    given = [str(tmp_path / "kept"), f"--data={data}", "--split=train"]
    grid = ["--grid.rescore_passages=4", "--grid.rescore_weights=[2]", "--grid.choose=[likeliest]"]
    command = ["tune", *given, *grid, "--grid.done_biases=[0]", "--hops.steps=dynamic", "--hops.max=3"]
    assert main(command) == 0
    told = float(capsys.readouterr().out.split("set F1")[1].split(",")[0])
    run = tmp_path / "run"
    assert main(["retrieve", *given, f"--output={run}"]) == 0
    found = evaluate_run(f"{run}.jsonl", str(data), "train")
    assert 100 * found["set"]["f1"] == pytest.approx(told, abs=0.06)
    options = json.loads((tmp_path / "run.info.json").read_text())["options"]
    assert options.get("rescore", 0) == read_spec(tmp_path / "kept")["search"]["rescore"]
    assert options["hops"] == 3
