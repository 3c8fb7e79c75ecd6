"""Learning to rescore: what is read, the loss against the plain way, and a fit that learns to."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_data import scratch
from train_helpers import chain_module, chain_options, logged

from grls.cli import main
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.identifiers import Identifiers
from grls.data.types import Query
from grls.identifiers.spans import Spans
from grls.index.build import build_index
from grls.io.files import read_json
from grls.models.head import RESCORE, RescoreInput, readout
from grls.models.load.generators import CausalLM
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hybrid.priors import open_sources
from grls.train.generator.collate import HopCollator, as_tensors
from grls.train.generator.examples import MemoriseExamples, RetrieveExamples
from grls.train.generator.loss import listwise_loss
from grls.train.generator.rescoring import Proposals, Read
from grls.train.generator.targets import SpanTargets, Teaching
from grls.train.options import Rescore


def proposing(root: Path, codec: Codec, **options: Any) -> Proposals:
    given = Rescore(["bm25", str(root / "dense")], **options)
    return Proposals(given, Corpus.read(root / "data"), codec, "cpu")


def chains(root: Path, codec: Codec, **options: bool) -> RetrieveExamples:
    corpus = Corpus.read(root / "data")
    return RetrieveExamples(*read_split(root / "data", "train", corpus), corpus, codec, **options)


@pytest.fixture(scope="module")
def codec(root: Path) -> Codec:
    return Codec(CausalLM(str(root / "llama")).load().tokenizer, causal=True)


def test_right_passages_and_proposed_ones_are_read(
    root: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grls.train.generator.rescoring._DEPTH", 3)
    examples = [chains(root, codec, shuffle=True).draw(n, 0) for n in range(6)]
    proposals = proposing(root, codec, passages=4, hops=9)
    corpus = Corpus.read(root / "data")
    every = codec.passages(corpus.passages(range(len(corpus))))
    sequences = {tuple(row.tolist()): n for n, row in enumerate(every)}
    sequences[tuple(codec.done_sequence.tolist())] = len(corpus)
    read = proposals(examples)
    hops = [hop for example in examples for hop in example]
    assert sorted({some.hop for some in read}) == list(range(len(hops)))  # nine hops: all of them
    for n, hop in enumerate(hops):
        own = [some for some in read if some.hop == n]
        right = {sequences[some.tokens] for some in own if some.right}
        wrong = [sequences[some.tokens] for some in own if not some.right]
        assert right == set(hop.gold)
        assert not set(wrong) & ({*hop.known, *hop.gold} - {len(corpus)})
        assert (len(corpus) in wrong) == (hop.gold != (len(corpus),))
        assert len(set(wrong)) == len(wrong) <= 5
    assert proposals(examples) == read  # a function of the seed
    other = [chains(root, codec, shuffle=True).draw(n, 1) for n in range(6)]
    assert proposals(other) != read


def test_they_are_drawn_from_the_best_of_each_retriever(
    root: Path, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grls.train.generator.rescoring._DEPTH", 2)
    corpus = Corpus.read(root / "data")
    (example,) = [chains(root, codec, shuffle=True).draw(2, 0)]
    hop = example[0]
    proposals = proposing(root, codec, passages=40, hops=3)
    proposed = [some.tokens for some in proposals([example]) if some.hop == 0 and not some.right]
    rows = [tuple(row.tolist()) for row in codec.passages(corpus.passages(range(len(corpus))))]
    best, fine = set(), set()
    for source in open_sources(corpus, ["bm25", str(root / "dense")], "cpu"):
        scores = np.array(source.scores([Query("q", hop.query)], [[]])(np.array([0]))[0, : len(corpus)])
        scores[[n for n in hop.known if n < len(corpus)]] = -np.inf
        best.add(rows[int(scores.argmax())])
        fine |= {rows[n] for n in np.flatnonzero(scores >= np.sort(scores)[-2])}  # equal ones are as good
    assert best <= set(proposed) <= fine | {tuple(codec.done_sequence.tolist())}
    assert len(proposed) <= 2 * 2 + 1  # with DONE


def test_done_is_read_only_where_a_chain_ends_with_it(root: Path, codec: Codec) -> None:
    done = tuple(codec.done_sequence.tolist())
    proposals = proposing(root, codec, hops=5)
    for ends in (True, False):
        read = proposals([chains(root, codec, done=ends).draw(n, 0) for n in range(4)])
        assert any(some.tokens == done for some in read) == ends
    alike = chains(root, codec, multistep=False, done=True).draw(2, 0)  # there is no hop to end with
    assert not any(some.tokens == done for some in proposals([alike]))


def test_one_hop_stands_for_those_of_one_input_and_some_for_all(root: Path, codec: Codec) -> None:
    alike = [chains(root, codec, multistep=False, done=False).draw(n, 0) for n in range(4)]
    assert [len(example) for example in alike] == [1, 1, 2, 2]
    assert len({some.hop for some in proposing(root, codec, hops=5)(alike)}) == 4
    several = [chains(root, codec).draw(n, 0) for n in range(4)]
    assert len({some.hop for some in proposing(root, codec, hops=2)(several)}) == 8
    corpus = Corpus.read(root / "data")
    silent = MemoriseExamples(corpus, codec)  # nothing is asked
    assert proposing(root, codec)([silent.draw(0, 0)]) == []


def test_the_loss_is_listwise_and_the_mean_over_hops() -> None:
    read = [Read(3, (1,), True), Read(3, (2,), True), Read(3, (3,), False),
            Read(7, (4,), False), Read(7, (5,), True)]  # fmt: skip
    rescored_passages = as_tensors(read, [0, 1, 2, 3, 4], (8, 9))
    assert rescored_passages.hops.tolist() == [0, 0, 0, 1, 1]
    odds = torch.tensor([0.5, -1.0, 2.0, 0.25, 0.75])
    first = math.log(sum(map(math.exp, (0.5, -1.0, 2.0))))
    second = math.log(sum(map(math.exp, (0.25, 0.75))))
    expected = ((first - 0.5 + first + 1.0) / 2 + second - 0.75) / 2
    found = listwise_loss(odds, rescored_passages.hops, rescored_passages.right)
    assert float(found) == pytest.approx(expected)
    nothing = as_tensors([], [], (8, 9))
    assert float(listwise_loss(torch.zeros(0), nothing.hops, nothing.right)) == 0.0


@pytest.mark.parametrize("kind", ["causal", "spans", "sequence"])
def test_a_batch_has_the_odds_of_each_passage_read_alone(root: Path, kind: str) -> None:
    generator = scratch(root / "data") if kind == "sequence" else CausalLM(str(root / "llama"))
    module = chain_module(generator, freeze_embeddings=False, rescore_weight=0.7)
    module.model.eval()
    codec = Codec(module.tokenizer, causal=kind != "sequence")
    corpus = Corpus.read(root / "data")
    examples = [chains(root, codec).draw(n, 0) for n in (0, 3, 5)]
    proposals = proposing(root, codec, passages=3, hops=2)
    start = module.model.config.decoder_start_token_id if kind == "sequence" else None
    # The loss without it is tested where it is learned; here it is what both batches have in common.
    index = build_index(Identifiers(Spans(2), corpus) if kind == "spans" else corpus, codec)
    teaching = Teaching(build_index(corpus, codec), len(corpus)) if kind != "spans" else None
    if teaching is None:
        teaching = Teaching(index, len(corpus), spans=SpanTargets(Identifiers(Spans(2), corpus)), drawn=2)
    parts: list[Any] = [0, teaching.index, teaching, start]
    with torch.no_grad():
        without = float(module.batch_loss(HopCollator(*parts)(examples)))
        found = float(module.batch_loss(HopCollator(*parts, proposals=proposals)(examples)))
    read = proposals(examples)
    hops = [hop for example in examples for hop in example]
    accept, reject = readout(codec)
    odds = []
    for some in read:
        source = hops[some.hop].source
        with torch.no_grad():
            if start is None:
                logits = module.model(input_ids=torch.tensor([[*source, *some.tokens]])).logits[0, -1]
            else:
                logits = module.model(
                    input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start, *some.tokens]])
                ).logits[0, -1]
        odds.append(float(logits[accept] - logits[reject]))
    judged = as_tensors(read, range(len(read)), (accept, reject))
    alone = float(listwise_loss(torch.tensor(odds), judged.hops, judged.right))
    assert found - without == pytest.approx(0.7 * alone, rel=1e-3)
    assert alone > 0.1


@pytest.mark.parametrize("kind", ["causal", "sequence"])
def test_a_fit_learns_to_rescore(root: Path, tmp_path: Path, kind: str) -> None:
    """Passages that belong to the training queries come before those that do not."""
    more = [f"--data.rescore.retrievers=[bm25, {root / 'dense'}]", "--data.rescore.passages=4",
            "--data.rescore.tokens=20", "--recall.rescore=5", "--data.multistep=false",
            "--data.done=false"]  # fmt: skip
    epochs = 80 if kind == "sequence" else 30
    more += [f"--trainer.max_epochs={epochs}", f"--trainer.check_val_every_n_epoch={epochs}"]
    assert main(chain_options(root, tmp_path / "run", *more, t5=kind == "sequence")) == 0
    losses = list(logged(tmp_path / "run", "train_loss").values())
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 1
    assert read_json(tmp_path / "run" / "model" / RESCORE) == {"tokens": 20}
    folder = tmp_path / "retriever"
    command = ["index", f"{tmp_path / 'run' / 'model'}", f"--corpus={root / 'data'}"]
    assert main([*command, f"--output={folder}"]) == 0
    retriever = GenerativeRetriever.from_pretrained(folder, options=SearchOptions(beams=10))
    assert retriever.rescore_input == RescoreInput(20)
    queries, _ = read_split(root / "data", "train", retriever.corpus)
    inputs = [retriever.codec.model_input(tokens) for tokens in retriever.encode(queries)]
    odds = retriever.rescore(inputs, [range(len(retriever.corpus))] * len(inputs))
    places = []
    for query, own in zip(queries, odds, strict=True):
        gold = [n for n in retriever.corpus.numbers(query.evidence) if n is not None]
        places += [int((own > own[n]).sum()) for n in gold]
    assert np.mean(places) < 1.5  # 4.5 by chance


def test_frozen_layers_stay_as_they_are(root: Path, tmp_path: Path) -> None:
    assert main(chain_options(root, tmp_path / "run", "--model.freeze_layers=1")) == 0
    before = CausalLM(str(root / "llama")).load().model.get_decoder().layers
    after = CausalLM(str(tmp_path / "run" / "model")).load().model.get_decoder().layers
    for layer, same in ((0, True), (1, False)):
        kept = [
            torch.equal(own, other)
            for own, other in zip(before[layer].parameters(), after[layer].parameters(), strict=True)
        ]
        assert all(kept) == same
