"""Hops in training: what each reads of its evidence, when hops are learned, and what dev asks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from train_helpers import opened_chains

from grls.data.dataset import gold_passages
from grls.evaluation.metrics import recall_at
from grls.retrieve.base import ChainToContinue
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.finders import HopRequest, Writes
from grls.train.generator.callbacks import ConstrainedRecall
from grls.train.options import LearnBeside, RecallOptions


def test_a_hop_reads_excerpts_of_its_evidence(root: Path) -> None:
    (whole, _), (short, _) = opened_chains(root), opened_chains(root, evidence_words=2)
    number = next(n for n in range(len(whole.train_examples)) if len(whole.train_examples.draw(n, 0)) > 2)  # type: ignore[attr-defined]
    long, cut = whole.train_examples.draw(number, 0), short.train_examples.draw(number, 0)
    assert long[0].source == cut[0].source  # type: ignore[attr-defined]
    assert len(cut[1].source) < len(long[1].source)  # type: ignore[attr-defined]
    (passage,) = short.corpus.passages([cut[1].evidence[0]])  # type: ignore[attr-defined]
    rows = short.codec.excerpts(cut[1].query, [passage])  # type: ignore[attr-defined]
    (query,) = short.codec.queries(["q"], [cut[1].query])  # type: ignore[attr-defined]
    assert cut[1].source == short.codec.model_input(query, rows)  # type: ignore[attr-defined]


def test_dev_asks_for_what_is_left_at_every_hop(root: Path) -> None:
    data, _ = opened_chains(root, by_hop=True, dev_split="train")
    queries, qrels = data.dev_queries
    inputs = data.dev_inputs()
    assert len(inputs) == sum(len(gold_passages(query, qrels)) for query in queries)
    place = 0
    for query in queries:
        gold = gold_passages(query, qrels)
        for hop in range(len(gold)):
            assert inputs[place + hop].gold == frozenset(gold[hop:])
            assert data.corpus.ids(inputs[place + hop].evidence) == gold[:hop]
        place += len(gold)
    assert len(opened_chains(root, dev_split="train")[0].dev_inputs()) == len(queries)


@pytest.mark.parametrize("prior", [None, LearnBeside(["bm25"], weights=[1.0])])
def test_dev_recall_of_a_hop_is_that_of_the_search_after_its_evidence(
    root: Path, prior: LearnBeside | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search reads the evidence, its priors too, and does not find it again; so the choice of the epoch."""
    data, module = opened_chains(root, prior, by_hop=True, dev_split="train", evidence_words=2)
    logs: dict[str, float] = {}
    monkeypatch.setattr(module, "log", lambda name, value, **_: logs.update({name: float(value)}))
    strategy = SimpleNamespace(reduce=lambda sums, reduce_op: sums)
    here = {"sanity_checking": False, "global_rank": 0, "world_size": 1}
    trainer: Any = SimpleNamespace(datamodule=data, strategy=strategy, **here)
    ConstrainedRecall(RecallOptions(k=5, beams=20)).on_validation_epoch_end(trainer, module)

    generator = GenerativeRetriever(
        module.model, data.codec, data.corpus, data.index, SearchOptions(beams=20)
    )
    retriever = generator if data.priors is None else data.priors.beside(generator)
    recalls = []
    for query in data.dev_queries[0]:
        gold = gold_passages(query, data.dev_queries[1])
        for hop in range(len(gold)):
            numbers = tuple(n for n in data.corpus.numbers(gold[:hop]) if n is not None)
            finder = Writes(retriever, beside=True)
            chain = ChainToContinue(0, numbers, finder.hidden(numbers, bool(numbers)))
            (found,) = finder.start([query], None)(HopRequest([chain], hop, 5, {}))
            assert not {*gold[:hop]} & {hit.id for hit in found.hits}
            recalls.append(recall_at([hit.id for hit in found.hits], frozenset(gold[hop:]), 5))
    assert logs["dev_recall"] == pytest.approx(np.mean(recalls))
