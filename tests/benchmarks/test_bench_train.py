"""The training benchmark: both sides begin and train alike, its clock and its table say what they should."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_data import write_small
from train_helpers import AsPairs

from benchmarks import train, watching
from benchmarks.fitting import IGNORED, Fast, Pairs, Recipe, fit_ours, fit_plain
from benchmarks.train import Shape, scratch_llama, scratch_t5, seconds_cells, write_start
from benchmarks.watching import Climb, HopRecall, Meter
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.evaluation.metrics import recall_at
from grls.index.build import build_index
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.train.generator.examples import RetrieveExamples

SHAPE = Shape(width=32, layers=1, vocabulary=150)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_small(tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module", params=["seq2seq", "causal"])
def recipe(request: pytest.FixtureRequest, data: str, tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    torch.manual_seed(0)
    causal = request.param == "causal"
    made = scratch_llama(data, SHAPE) if causal else scratch_t5(data, SHAPE)
    folder = write_start(tmp_path_factory.mktemp(request.param) / "model", made)
    return Recipe(data, folder, causal, batch_size=5)


class Ends:
    """Ends training after some steps, and keeps the weights before and after."""

    def __init__(self, steps: int):
        self.left = steps

    def start(self) -> None:
        self.started = True

    def step(self, model: Any) -> bool:
        self.left -= 1
        self.model = model
        return self.left == 0


def test_both_sides_begin_alike_train_and_count_whole_hops(
    recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recipe.generator.load().model.state_dict()
    corpus = Corpus.read(recipe.data)
    codec = Codec(recipe.generator.load().tokenizer, causal=recipe.causal)
    every = RetrieveExamples(*read_split(recipe.data, "train", corpus), corpus, codec, together=False)
    whole = [AsPairs(every, corpus).draw(n, 0) for n in range(len(every))]
    per_hop = sum(len(e.source) + len(e.target) for e in whole) / len(whole)
    models = []
    for fit in (fit_plain, lambda *a: fit_ours(*a, fast=Fast())):
        watch, meter = Ends(6), Meter()
        fit(recipe, watch, meter)  # type: ignore[operator]
        assert watch.started
        assert watch.left == 0
        # An epoch has 30 hops; the loader may be one batch ahead, and a batch of queries varies in hops.
        assert 24 <= meter.hops <= 48
        assert meter.tokens / meter.hops == pytest.approx(per_hop, rel=0.15)
        models.append(watch.model)
    for model in models:
        moved = [
            float((model.state_dict()[name].cpu() - weights).abs().max()) for name, weights in before.items()
        ]
        assert 1e-3 < max(moved) < 0.1  # six steps of 1e-3 from the same weights


def test_pairs_are_what_transformers_wants(data: str) -> None:
    corpus = Corpus.read(data)
    codec = Codec(scratch_t5(data, SHAPE).tokenizer)
    examples = RetrieveExamples(*read_split(data, "train", corpus), corpus, codec, together=False)
    source, target = AsPairs(examples, corpus).draw(1, 0)[:2]
    targets = build_index(corpus, codec).tokens
    meter = Meter()
    plain = Pairs(examples, targets, False, meter)[1]
    assert plain == {"input_ids": source, "attention_mask": [1] * len(source), "labels": target}
    one = Pairs(examples, targets, True, meter)[1]
    assert one["input_ids"] == source + target
    assert one["labels"] == [IGNORED] * len(source) + target
    assert meter == Meter(2, 2 * (len(source) + len(target)))


def test_the_clock_stands_still_while_recall_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(watching.time, "perf_counter", lambda: now[0])
    values = {"full": iter([0.1, 0.2, 0.9]), "renormalized": iter([0.3, 0.1, 0.2])}

    def recall(model: Any, mode: str) -> float:
        now[0] += 100
        return next(values[mode])

    climb = Climb(recall, ("full", "renormalized"), every=2, goal=0.8, cap=1000)  # type: ignore[arg-type]
    climb.start()
    ended = []
    while not ended or not ended[-1]:
        now[0] += 1
        ended.append(climb.step(None))
    assert climb.curve == [(2, 0.3), (4, 0.2), (6, 0.9)]
    assert len(ended) == 6
    assert [climb.reached(r) for r in (0.3, 0.5, 0.95)] == [2, 6, None]


def test_a_run_ends_at_its_cap_and_is_said_to_have_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(watching.time, "perf_counter", lambda: now[0])

    def climbed(found: float, cap: float) -> Climb:
        climb = Climb(lambda *_: found, ("full",), every=100, goal=0.5, cap=cap)  # type: ignore[arg-type]
        climb.start()
        for _ in range(int(cap)):
            now[0] += 1
            if climb.step(None):
                break
        return climb

    missed, quick = climbed(0.25, 30), climbed(0.5, 10)
    assert missed.curve == [(30, 0.25)]
    assert seconds_cells([missed, quick], 0.5) == ["not reached in 30 s (best 0.25)", "10.0", "> 3.0"]
    assert seconds_cells([quick, missed], 0.5) == ["10.0", "not reached in 30 s (best 0.25)", "-"]
    assert seconds_cells([missed, quick], 0.2) == ["30.0", "10.0", "3.0"]


def test_recall_of_dev_hops_is_that_of_the_search(recipe: Recipe) -> None:
    loaded = recipe.generator.load()
    recall = HopRecall(recipe.data, Codec(loaded.tokenizer, causal=recipe.causal), k=2, queries=2)
    assert [hop.query for hop in recall.hops] == ["is the lynx calm ?", "is the lynx quick ?"]  # none of DONE
    loaded.model.train()
    found = recall(loaded.model, "renormalized")
    assert loaded.model.training
    options = SearchOptions(beams=10)
    retriever = GenerativeRetriever(loaded.model, recall.codec, recall.corpus, recall.index, options)
    queries, qrels = read_split(recipe.data, "dev", recall.corpus)
    hits = [[hit.id for hit in some] for some in retriever.retrieve(queries, 2)]
    assert found == np.mean([recall_at(ids, qrels[q.id], 2) for ids, q in zip(hits, queries, strict=True)])
    every = HopRecall(recipe.data, recall.codec, k=len(recall.corpus), queries=1)
    assert every(loaded.model, "renormalized") == 1
    assert len(every.hops) == 1


def test_it_prints_a_table_a_kind(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    train.main(
        data=data, width=32, layers=1, vocabulary=150, batch_size=4, warmup=1, steps=2, repeats=1, k=2,
        recalls=(0.0, 2.0), every=2, cap=0.2, dev_size=2,
    )  # fmt: skip
    text = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert [row[1] for row in rows if row[2:3] == ["grls"]] == ["Seq2SeqTrainer", "Trainer"]
    speeds = [row for row in rows if row[0] in ("hops a second", "tokens a second")]
    assert len(speeds) == 4
    for _, *cells, _ in speeds[1::2]:  # tokens: more digits
        rival, ours, ratio = (float(cell.replace(",", "")) for cell in cells)
        assert ours / rival == pytest.approx(ratio, rel=0.02, abs=0.06)
    assert sum("not reached in" in row[1] and row[3] == "-" for row in rows if len(row) == 5) == 2
    assert "of the test gold passages" not in text


def test_without_data_it_makes_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train.generate(tmp_path, queries=5, dev=2)
    corpus = Corpus.read(folder)
    assert [len(read_split(folder, split, corpus)[0]) for split in ("train", "dev")] == [5, 2]
    assert capsys.readouterr().out == ""
