"""Learning to write spans: which of them a query asks for, the loss against the plain way, and fits."""

import math
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails
from models_small import log_probability
from process_group import together
from train_helpers import always, callback, chain_module, chain_options, logged

from grls.cli import main
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.dataset import read_split
from grls.data.identifiers import FOLDER, Identifiers, read_kind
from grls.data.types import Passage
from grls.identifiers.spans import Spans
from grls.index.build import build_index
from grls.models.load.generators import CausalLM
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.train.generator.collate import HopCollator
from grls.train.generator.examples import RetrieveExamples
from grls.train.generator.targets import SpanTargets, Teaching


def test_spans_that_share_words_with_the_evidence_weigh_more() -> None:
    passages = [
        Passage("mill", "The mill was built by Orla. Later a Tallow baker bought it.", "Mill"),
        Passage("a", "Orla painted on and on again near Tallow"),
        Passage("b", "rain"),
    ]
    spans = Identifiers(Spans(1), Corpus.from_passages(passages))

    def weights(query: str, before: Sequence[int], **options: Any) -> dict[str, float]:
        targets = SpanTargets(spans, **options)
        numbers, masses = targets.spread(query, {1: 1.0}, before)
        return dict(zip(spans.listed(numbers), masses.tolist(), strict=True))

    alone = weights("who?", [])
    assert len(set(alone.values())) == 1
    found = weights("who?", [0])
    assert found["Orla"] == pytest.approx(found["Tallow"])
    assert found["Tallow"] > found["painted"]
    short = weights("who?", [0], evidence_words=6)  # the first sentence alone
    assert short["Orla"] > short["Tallow"] == pytest.approx(short["painted"])


RIVERS = [
    Passage("a", "a river of Spain, the longest", "The Ebro"),
    Passage("b", "the Rhine flows"),
    Passage("c", "a town"),
]


def test_views_that_share_words_with_the_query_weigh_more() -> None:
    spans = Identifiers(Spans(3), Corpus.from_passages(RIVERS))
    targets = SpanTargets(spans)
    numbers, weights = targets.spread("Is SPAIN's river the Ebro?", {0: 0.5, 3: 0.25, 1: 0.25})
    assert numbers.tolist() == [*range(8), len(spans), 8, 9, 10]
    every, one = math.log(4 / 3), math.log(4 / 2)  # "the" stands in two of three passages; "Ebro" in one
    # the Ebro a river of Spain the longest; "spains" is not "spain"
    worth = {"the": every, "ebro": one, "river": one}
    words = [*(["the", "ebro", "a", "river", "of", "spain", "the", "longest"]), "", "", ""]
    scores = []
    for n in range(8):
        known = [worth.get(word, 0.0) for word in words[n : min(n + 3, 8)]]
        scores.append(known[0] + 0.6 * sum(known[1:]))
    expected = np.exp(np.array(scores))
    # a word of one passage is worth log(4 / 2), that of two log(4 / 3)
    np.testing.assert_allclose(weights[:8], 0.5 * expected / expected.sum())
    assert weights[8] == 0.25  # DONE is one span
    assert weights[9:].sum() == pytest.approx(0.25)


@pytest.mark.parametrize("taught", [False, True])
def test_the_loss_along_many_drawn_views_is_that_of_all(root: Path, taught: bool) -> None:
    """sum over spans v of q(v) (-log P(v)), token by token; the drawn ones are an estimate of it."""
    module = chain_module(CausalLM(str(root / "llama")), freeze_embeddings=False)
    module.model.eval()
    corpus, codec = Corpus.read(root / "data"), Codec(module.tokenizer, causal=True)
    spans = Identifiers(Spans(3), corpus)
    index = build_index(spans, codec)
    targets = SpanTargets(spans)
    queries, qrels = read_split(root / "data", "train", corpus)
    examples = RetrieveExamples(queries, qrels, corpus, codec, multistep=True, done=True, shuffle=False)
    example = examples.draw(2, 0)
    assert len(example) == 3  # two passages and DONE
    opinion = {4: 0.5, 9: 0.5}
    teacher = always(opinion) if taught else None
    teaching = Teaching(
        index, len(corpus), teacher, 0.4 if taught else 0.0, 400 if taught else 0, targets, drawn=400
    )
    batch = HopCollator(0, index, teaching)([example])
    with torch.no_grad():
        loss = float(module.batch_loss(batch))
    expected = 0.0
    for hop in example:
        weights = {hop.gold[0]: 1.0}
        if taught and hop.gold != (len(corpus),):
            weights = {hop.gold[0]: 0.6}
            left = {p: w for p, w in opinion.items() if p not in hop.evidence}
            for passage, weight in left.items():
                weights[passage] = weights.get(passage, 0.0) + 0.4 * weight / sum(left.values())
        numbers, masses = targets.spread(hop.query, weights)
        expected -= sum(
            mass * log_probability(module.model, index, hop.source, span)
            for span, mass in zip(numbers.tolist(), masses.tolist(), strict=True)
        )
    assert loss == pytest.approx(expected / 3, rel=0.02)


def test_a_fit_learns_to_write_views_and_the_index_knows_of_what_length(root: Path, tmp_path: Path) -> None:
    more = [
        "--data.spans.words=3", "--data.spans.drawn=8", "--data.multistep=false", "--data.done=false",
        "--trainer.max_epochs=12", "--trainer.check_val_every_n_epoch=6", "--recall.beams=40",
        "--checkpoint.monitor=train_loss",
    ]  # fmt: skip
    assert main(chain_options(root, tmp_path / "run", *more)) == 0
    losses = list(logged(tmp_path / "run", "train_loss").values())
    assert losses[-1] < losses[0]
    assert "dev_recall" in (tmp_path / "run" / "logs" / "version_0" / "metrics.csv").read_text()
    model = tmp_path / "run" / "model"
    assert read_kind(model / FOLDER) == Spans(3)
    assert main(["index", f"{model}", f"--corpus={root / 'data'}", f"--output={tmp_path / 'r'}"]) == 0
    opened = GenerativeRetriever.from_pretrained(tmp_path / "r", "cpu", options=SearchOptions(beams=40))
    queries, qrels = read_split(root / "data", "train")
    hits = opened.retrieve(queries, 1)
    right = [found[0].id in qrels[query.id] for query, found in zip(queries, hits, strict=True)]
    assert sum(right) >= 8  # of 12


def test_a_fit_hop_by_hop_resumes(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run resumed in the middle of its second epoch draws the same spans."""
    more = [
        "--data.spans.drawn=2", "--data.multistep=true", "--data.by_hop=true", "--data.spans.words=3",
        "--trainer.more={limit_val_batches: 0}", "--last.every_n_train_steps=1",
    ]  # fmt: skip
    assert main(chain_options(root, tmp_path / "whole", *more)) == 0
    whole = logged(tmp_path / "whole", "train_loss")
    killed = chain_options(root, tmp_path / "killed", *more, callback("train_helpers.KillAfter", batches=5))
    assert together(1, lambda: main(killed)) == [-signal.SIGKILL]
    again = chain_options(root, tmp_path / "killed", *more, "--resume=true")
    told = fails(capsys, *again, "--data.spans.words=2")
    assert "had --data.spans.words 3, now it is 2" in told
    assert main(again) == 0
    assert logged(tmp_path / "killed", "train_loss", 1) == {n: whole[n] for n in (4, 5)}
