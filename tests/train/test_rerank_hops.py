"""A cross-encoder that learns the hops of a data set, and reads the passages found when it rescores."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from failing import fails
from small_data import ANIMALS, passages, tiny_bert

from grls.answer.ralm.reranker import Reranker
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_split, write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.models.biencoder import BiEncoderModel
from grls.models.cross_encoder import PairScorer
from grls.retrieve.bm25 import BM25Options, BM25Retriever
from grls.retrieve.compose import compose, write_retriever
from grls.retrieve.dense import DenseRetriever
from grls.retrieve.hops.finders import found_after
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import hop_by_hop
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.rescored.options import Rereading, rescored_spec
from grls.retrieve.rescored.retriever import over
from grls.train.core.datamodule import EncoderData
from grls.train.options import RerankerTraining, RerankHopOptions
from grls.train.reranker.module import RerankHops
from grls.train.reranker.run import read_hops

QUESTION = "is the otter kind ?"
"""One question for all: only what was found first says what follows."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chains of a fact and the rule about its trait, and a cross-encoder that learned them."""
    root = tmp_path_factory.mktemp("rerank-hops")
    asked = [
        Query(f"q-{animal}-{trait}", QUESTION, (f"{animal}-{trait}", rule))
        for animal in ANIMALS
        for trait, rule in (("calm", "r0"), ("quick", "r1"))
    ]
    qrels = {query.id: dict.fromkeys(query.evidence, 1) for query in asked}
    write_dataset(root / "data", passages(), asked, {"train": qrels, "dev": qrels})
    torch.manual_seed(0)
    tiny_bert(root / "bert")
    assert main([*command(root, "out"), "--fit.epochs=40"]) == 0
    return root


def command(root: Path, output: str, *more: str) -> list[str]:
    return [
        "train", "reranker", f"--data={root / 'data'}", f"--encoder={root / 'bert'}",
        f"--output={root / output}", "--max_tokens=40", "--hops.hard_negatives=3", "--hops.evidence_words=6",
        "--fit.batch_size=8", "--fit.learning_rate=5e-3", "--device=cpu", *more,
    ]  # fmt: skip


def hops(root: Path, **options: Any) -> RerankHops:
    corpus = Corpus.read(root / "data")
    given = RerankHopOptions(**{"hard_negatives": 3, **options})
    return RerankHops(*read_split(root / "data", "train", corpus), corpus, given)


def test_an_example_is_a_hop_with_its_evidence(root: Path) -> None:
    found = hops(root)
    assert len(found) == 2 * 8
    first, second = found.draw(0, 0), found.draw(1, 0)
    assert (first.prefix, second.prefix) == (QUESTION, f"{QUESTION} the otter is calm .")
    assert second.passages[0] == "if something is calm then it is kind ."
    assert second.scores == (0.0, -20.0, -20.0, -20.0)
    assert not {"the otter is calm .", second.passages[0]} & set(second.passages[1:])  # gold is never wrong
    assert hops(root, evidence_words=2).draw(1, 0).prefix == f"{QUESTION} the otter"


def test_a_training_reads_the_first_dev_queries(root: Path) -> None:
    options = RerankHopOptions(dev_size=3)
    training = RerankerTraining(data=str(root / "data"), output="", hops=options)
    data = EncoderData(training.data, training.fit)
    read_hops(data, training, Corpus.read(root / "data"))
    assert (len(data.train_examples), len(data.dev_examples)) == (2 * 8, 2 * 3)


def test_each_epoch_draws_anew_and_free_orders_change(root: Path) -> None:
    found = hops(root, shuffle=True)
    drawn = [[found.draw(n, epoch) for n in range(len(found))] for epoch in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]
    fixed = hops(root)
    assert {len(one.prefix) for one in drawn[0]} != {len(fixed.draw(n, 0).prefix) for n in range(len(fixed))}
    assert drawn[0][5] == hops(root, shuffle=True).draw(5, 0)


def test_changed_evidence_changes_the_order(root: Path) -> None:
    scorer = PairScorer.load(str(root / "out" / "model"), "cpu")
    assert (scorer.max_tokens, scorer.evidence_words) == (40, 6)
    corpus = Corpus.read(root / "data")
    dense = DenseRetriever.assemble(BiEncoderModel.load(str(root / "bert"), device="cpu"), corpus)
    evidence = [[], *([Passage("x", f"the lynx is {trait} .")] for trait in ("calm", "quick"))]
    asked = [Query("q", QUESTION)] * 3
    for first, weight in ((BM25Retriever(corpus), None), (dense, 50.0)):
        made = over(first, scorer, Rereading(10, weight))
        steps = found_after(made, asked, evidence, 10)
        assert steps[1].hits != steps[2].hits  # its scores know which passage it was
        orders = [[hit.id for hit in step.hits] for step in steps]
        # A fact comes first, and a rule completes the question.
        assert [order[0] in ("r0", "r1") for order in orders] == [False, True, True]
    long = [[Passage("x", "the lynx is calm . " * 30)]] * 3  # evidence may be cut, the question may not
    assert found_after(over(BM25Retriever(corpus), scorer, Rereading(10)), asked, long, 3)


@pytest.mark.parametrize("steps", ["ranked", "fixed", "dynamic"])
def test_a_folder_of_hops_reads_the_passages_found(
    root: Path, tmp_path: Path, steps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = 1.0 if steps == "dynamic" else None
    dense = DenseRetriever.assemble(
        BiEncoderModel.load(str(root / "bert"), device="cpu"), Corpus.read(root / "data")
    )
    dense.save_pretrained(tmp_path / "dense")
    spec = rescored_spec(str(tmp_path / "dense"), str(root / "out" / "model"), Rereading(10, weight))
    write_retriever(compose(spec, Opening("cpu")), tmp_path / "rescored", link=True)
    opened: Any = load_retriever(tmp_path / "rescored", Opening("cpu"))
    assert opened.encoder.evidence_words == 6
    read: list[str] = []
    scored = opened.encoder.logits

    def logits(pairs: list[tuple[str, str]], *more: Any) -> Any:
        read.extend(query for query, _ in pairs)
        return scored(pairs, *more)

    monkeypatch.setattr(opened.encoder, "logits", logits)
    options = {"temperature": 1.0, "chains": 1} if steps == "ranked" else {"done_bias": -1e3}
    found = hop_by_hop(opened, HopOptions(steps=steps, max=2, **options)).retrieve([QUESTION], 2)
    known = {QUESTION, *(f"{QUESTION} {passage.text}" for passage in passages())}
    assert QUESTION in read
    assert {QUESTION} < set(read) <= known
    assert len(found[0]) == 2


def test_other_negatives_or_tokens_under_the_same_path_are_no_resumed_run(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, folder, bert = Corpus.read(root / "data"), tmp_path / "bm25", tmp_path / "bert"
    BM25Retriever(corpus).save_pretrained(folder)
    shutil.copytree(root / "bert", bert)
    given = command(
        root, "mined", "--fit.epochs=1", f"--hops.negatives={folder}", f"--encoder={bert}",
        f"--output={tmp_path / 'run'}",
    )  # fmt: skip
    assert main(given) == 0
    assert main([*given, "--resume=true"]) == 0
    shutil.rmtree(folder)
    BM25Retriever(corpus, BM25Options(b=0.1)).save_pretrained(folder)
    assert f"the retriever {folder} (hops.negatives) has changed" in fails(capsys, *given, "--resume=true")
    shutil.rmtree(folder)
    BM25Retriever(corpus).save_pretrained(folder)
    for file in (bert / "tokenizer.json", bert / "vocab.txt"):
        file.write_text(file.read_text().replace("otter", "badger"))
    assert "the tokenizer of the encoder has changed" in fails(capsys, *given, "--resume=true")


def test_it_resumes_and_what_cannot_be_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = command(root, "short", "--fit.epochs=1")
    assert main(short) == 0
    told = fails(capsys, *short, "--resume=true", "--hops.shuffle=true")
    assert "had --hops.shuffle false, now it is True" in told
    for more, message in (
        (["--dev=x.jsonl"], "give both, or neither"),
        (["--hops.dev_split=gone"], "there are dev, train: give another --hops.dev_split"),
        ([f"--data={root / 'data' / 'corpus.jsonl'}"], "corpus.jsonl: expected a data set folder"),
    ):
        assert message in fails(capsys, *command(root, "refused", *more))
    with pytest.raises(ConfigError, match="trained on the hops of a data set"):
        Reranker.load(str(root / "out" / "model"), device="cpu", trained=True)
