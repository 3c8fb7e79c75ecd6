"""``grls tune-hybrid`` and ``grls retrieve`` with priors: what is found, written and refused."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from failing import fails
from small_data import small_retriever, tiny_bert, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.evaluation.evaluate import evaluate_run
from grls.models.biencoder import BiEncoder
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.dense.retriever import DenseRetriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import EmptyPromptPrior, RetrieverPrior
from grls.retrieve.hybrid.retriever import HybridRetriever, WeightedSource
from grls.runs.manifest import read_info
from grls.runs.trec import read_run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("hybrid-command") / "data")


@pytest.fixture(scope="module")
def dense(data: Path) -> Path:
    torch.manual_seed(0)
    biencoder = BiEncoder.load(str(tiny_bert(data.parent / "bert")), device="cpu")
    DenseRetriever.assemble(biencoder, Corpus.read(data)).save_pretrained(data.parent / "dense")
    return data.parent / "dense"


@pytest.fixture(scope="module")
def generative(data: Path) -> Path:
    small_retriever(data).save_pretrained(data.parent / "generative")
    return data.parent / "generative"


def test_priors_come_from_options(data: Path, dense: Path, generative: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = [f"--data={data}", f"--retriever={generative}", f"--output={out}", "--device=cpu", "--k=4"]
    priors = [f'--prior=["{dense}", "bm25"]', "--prior_weight=[0.5, 2]", "--prior_temperature=[10.0, 1]"]
    assert main(["retrieve", *given, *priors, "--empty_weight=0.25"]) == 0
    generator = GenerativeRetriever.from_pretrained(generative, "cpu", options=SearchOptions(beams=10))
    opened = DenseRetriever.from_pretrained(dense, "cpu")
    expected = HybridRetriever(
        generator,
        [
            WeightedSource(RetrieverPrior(opened), 0.5, 10.0),
            WeightedSource(RetrieverPrior(BM25Retriever(generator.corpus)), 2.0, 1.0),
            WeightedSource(EmptyPromptPrior(generator), -0.25),
        ],
    )
    queries = read_split(data, "test")[0]
    found = read_run(f"{out}.trec")
    for query, hits in zip(queries, expected.retrieve(queries, 4), strict=True):
        assert [hit.id for hit in found[query.id]] == [hit.id for hit in hits]
    info = read_info(out)
    assert info is not None
    assert (info.system, info.score_mode) == ("hybrid", "renormalized with priors")
    assert info.options["prior"] == [str(dense), "bm25"]
    assert info.options["prior_weight"] == [0.5, 2]
    assert info.options["empty_weight"] == 0.25


@pytest.mark.parametrize("steps", ["fixed", "dynamic"])
def test_priors_go_hop_by_hop(steps: str, data: Path, generative: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = [f"--data={data}", f"--retriever={generative}", f"--output={out}", "--device=cpu", "--hops=2"]
    assert main(["retrieve", *given, "--prior=bm25", f"--steps={steps}", "--done_share=-0.1"]) == 0
    assert {len(hits) for hits in read_run(f"{out}.trec").values()} <= {1, 2}
    info = read_info(out)
    assert info is not None
    assert info.options["done_share"] == -0.1


def test_what_is_tuned_is_taken_as_a_config(
    data: Path, dense: Path, generative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In both ways of tuning: from few searches, and beside priors with a search for every setting."""
    tuned, out = tmp_path / "hybrid.yaml", tmp_path / "run"
    given = [f"--data={data}", f"--retriever={generative}", f"--output={tuned}", "--device=cpu"]
    given += ["--split=train", "--mode=full", "--beams=4"]
    priors = [f'--prior=["bm25", "{dense}"]', "--weights=[1, 16]", "--temperatures=[1, 20]", "--tune_k=2"]
    for normalized, searches in (("false", range(3, 12)), ("true", range(1 + 4 + 4 + 1, 1 + 4 + 4 + 2))):
        how = f"--prior_normalized={normalized}"
        assert main(["tune-hybrid", *given, *priors, "--empty_weights=[0.3]", how]) == 0
        shown = capsys.readouterr().out.splitlines()
        assert len(shown) - 1 in searches
        first, *settings = tuned.read_text().splitlines()
        recall = re.fullmatch(f"# recall@2 ([0-9.]+) on train of {data}", first)
        assert recall is not None
        assert {"beams: 4", 'mode: "full"', f"prior_normalized: {normalized}"} <= set(settings)
        options = [f"--config={tuned}", f"--data={data}", f"--output={out}", "--device=cpu", "--split=train"]
        assert main(["retrieve", *options]) == 0
        capsys.readouterr()
        measured = evaluate_run(f"{out}.jsonl", data, "train", ks=[2])
        assert f"{100 * measured['sequence_recall']['recall@2']:.1f}" == recall[1]
        info = read_info(out)
        assert info is not None
        assert info.options["prior"] == ["bm25", str(dense)]
        assert len(info.options["prior_weight"]) == len(info.options["prior_temperature"]) == 2


def test_what_cannot_work_is_refused(
    data: Path, dense: Path, generative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(data, tmp_path / "data")
    (data / "qrels" / "none.tsv").write_text("query-id\tcorpus-id\tscore\n")
    given = [f"--data={data}", f"--output={tmp_path / 'x'}", "--device=cpu"]
    generator = f"--retriever={generative}"
    for command, options, message in (
        ("retrieve", [generator, "--prior=bm25", "--prior_weight=[1, 2]"], "2 values for 1 priors"),
        ("retrieve", [generator, "--prior_weight=1"], "1 values for 0 priors"),
        ("retrieve", [f"--retriever={dense}", "--prior=bm25"], "look ahead for a generator"),
        ("retrieve", ["--bm25=true", "--empty_weight=0.1"], "look ahead for a generator"),
        ("retrieve", [generator, f"--prior={generative}"], "does not score all passages"),
        ("retrieve", [generator, "--prior=bm25", "--done_share=0"], "must be a finite number below 0"),
        ("retrieve", [generator, "--prior_normalized=true"], "name them by --prior"),
        ("retrieve", [generator, "--sets=true"], "choose --hops.steps dynamic or fixed"),
        (
            "retrieve",
            [f"--retriever={dense}", "--sets=true", "--steps=fixed"],
            "hops.sets needs a generator",
        ),
        ("retrieve", [generator, "--empty_weight=.nan"], "must be a finite number"),
        ("tune-hybrid", [generator, "--empty_weights=[]"], "nothing to tune"),
        ("tune-hybrid", [generator, "--prior=bm25", "--weights=[0]"], "--weights must be above 0"),
        ("tune-hybrid", [f"--retriever={dense}", "--prior=bm25"], "look ahead for a generator"),
        ("tune-hybrid", [generator, "--prior=bm25", "--limit=0"], "limit must be at least 1"),
        ("tune-hybrid", [generator, "--prior=bm25", "--split=none"], "none.tsv: the split holds no query"),
        (
            "tune-hybrid",
            [generator, "--prior=[bm25, bm25, bm25]", f"--weights={[*range(1, 40)]}"],
            "settings of the priors are 320,000",
        ),
    ):
        assert message in fails(capsys, command, *given, *options)
        assert not (tmp_path / "x").exists()


def test_a_generator_that_did_not_learn_beside_priors_is_told(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    generator = small_retriever(data)
    generator.stages = ("retrieve",)
    generator.save_pretrained(tmp_path / "retriever")
    given = [f"--data={data}", f"--retriever={tmp_path / 'retriever'}", f"--output={tmp_path / 'o'}"]
    assert main(["retrieve", *given, "--prior=bm25", "--device=cpu"]) == 0
    assert "beside priors" not in caplog.text
    assert main(["retrieve", *given, "--prior=bm25", "--prior_normalized=true", "--device=cpu"]) == 0
    assert "does not say that it was trained beside priors" in caplog.text
    caplog.clear()
    how = ["--prior=bm25", "--prior_normalized=true", "--weights=[1]", "--empty_weights=[]"]
    assert main(["tune-hybrid", *given, *how, "--device=cpu"]) == 0
    assert "does not say that it was trained beside priors" in caplog.text
