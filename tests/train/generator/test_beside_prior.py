"""A generator that learns beside a prior: its loss is that of the search it is decoded with."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from composite_specs import write_spec
from llama_small import write_llama
from small_data import passages
from train_helpers import chain_options, logged, opened_chains

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError, MismatchError
from grls.evaluation.evaluate import evaluate_run
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import hidden_spans, prior_over_spans
from grls.retrieve.hybrid.priors import open_sources, prior_of
from grls.train.generator.prior import open_priors
from grls.train.options import LearnBeside, Mix, PassageInput, WriteSpans


def both(root: Path) -> LearnBeside:
    return LearnBeside([str(root / "dense"), "bm25"], weights=[0.8, 0.5])


def test_the_loss_is_what_the_search_scores(root: Path) -> None:
    """Hop by hop, minus the score that the right passage has when it is searched for, DONE among them."""
    (data, module), (plain, _) = opened_chains(root, both(root)), opened_chains(root, None)
    assert data.priors is not None
    assert [part.weight for part in data.priors.weighed] == [0.8, 0.5]
    options = SearchOptions(beams=20)
    generator = GenerativeRetriever(module.model, data.codec, data.corpus, data.index, options)
    hybrid = data.priors.beside(generator)
    for number in (2, 5):  # one of two hops
        chain: Any = data.train_examples.draw(number, 0)
        expected = []
        for hop in chain:
            evidence = data.corpus.passages(hop.evidence)
            hidden = [list(hop.evidence)]
            (found,) = hybrid.search([Query("q", hop.query)], [evidence], len(data.corpus) + 1, hidden)
            scores = {hit.passage: hit.score for hit in found}
            expected.append(-scores[hop.gold[0]])
        with torch.no_grad():
            loss = float(module.batch_loss(data.collator([chain])))
            dev = float(module.batch_loss(data.dev_collator([chain])))
            alone = float(module.batch_loss(plain.collator([chain])))
        assert loss == pytest.approx(np.mean(expected), abs=1e-4)
        assert dev == pytest.approx(loss)
        assert alone != pytest.approx(loss, rel=1e-2)


def test_the_loss_of_views_is_what_the_search_scores(root: Path) -> None:
    """Minus the log-probability of the spans that are right, each as much as it weighs."""
    data, module = opened_chains(root, both(root), spans=WriteSpans(words=3, drawn=400))
    assert data.priors is not None
    assert data.identifiers is not None
    spans, rows = data.identifiers, data.index.rows
    parts = (module.model, data.codec, data.corpus, data.index, SearchOptions(beams=100))
    decoder = GenerativeRetriever(*parts, identifiers=spans).decoder(1)
    chain: Any = data.train_examples.draw(2, 0)
    assert len(chain) == 3  # the last one to DONE
    expected = []
    for hop in chain:
        evidence = [data.corpus.passages(hop.evidence)]
        asked = (data.priors.weighed, [Query("q", hop.query)], evidence, len(data.corpus))
        beside = prior_of(*asked, normalized=True)
        prior = prior_over_spans(beside, spans)
        (leaves,) = decoder.frontier([hop.source], [hidden_spans(spans, rows, hop.evidence)], prior=prior)
        weights = {passage: 1 / len(hop.gold) for passage in hop.gold}
        numbers, masses = data.collator.teaching.spans.spread(hop.query, weights)
        expected.append(-masses @ leaves.log_probabilities(rows.row_of[numbers].astype(np.int64)))
    with torch.no_grad():
        loss = float(module.batch_loss(data.collator([chain])))
    assert loss == pytest.approx(np.mean(expected), rel=0.02)


@pytest.mark.parametrize("second", ["otter-calm-again", "otter-calm"])
@pytest.mark.parametrize("spans", [None, WriteSpans(words=3, drawn=50)])
def test_a_passage_with_the_text_of_its_evidence_is_learned(
    root: Path, tmp_path: Path, second: str, spans: WriteSpans | None
) -> None:
    """A copy of the evidence, or the evidence once more: what is right has its mass in the prior."""
    copied = [*passages(), Passage("otter-calm-again", "the otter is calm .")]
    twice = Query("q", "is the otter calm ?", ("otter-calm", second))
    qrels = {"q": {"otter-calm": 1, second: 1}}
    write_dataset(tmp_path / "data", copied, [twice], {"train": qrels, "dev": qrels, "test": qrels})
    (tmp_path / "llama").symlink_to(root / "llama")
    data, module = opened_chains(tmp_path, LearnBeside(["bm25"]), spans=spans)
    assert data.priors is not None
    assert [part.weight for part in data.priors.weighed] == [1.0]
    chain: Any = data.train_examples.draw(0, 0)
    hop = chain[1]._replace(evidence=(0,), gold=(data.corpus.numbers([second])[0],))
    hop = hop._replace(taken=hop.gold[0])
    with torch.no_grad():
        assert float(module.batch_loss(data.collator([(hop,)]))) < 30


def test_what_is_memorised_without_a_query_has_no_prior(root: Path) -> None:
    mix = Mix(memorise=PassageInput(), memorise_share=0.5)
    data, module = opened_chains(root, both(root), mix=mix)
    plain, _ = opened_chains(root, None, mix=mix)
    told = [data.train_examples.draw(n, 0) for n in range(6, 12)]
    assert {hop.query for chain in told for hop in chain} == {""}  # type: ignore[union-attr]
    with torch.no_grad():
        expected = float(module.batch_loss(plain.collator(told)))
        assert float(module.batch_loss(data.collator(told))) == pytest.approx(expected, rel=1e-6)
        every = [data.train_examples.draw(n, 0) for n in range(12)]
        found = float(module.batch_loss(data.collator(every)))
        assert found != pytest.approx(float(module.batch_loss(plain.collator(every))), rel=1e-3)


def test_a_fit_beside_a_prior_and_retrieval_with_it(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prior = ["--data.prior.retrievers=[bm25]", "--data.prior.weights=[50]", "--recall.k=2", "--recall.hops=3"]
    assert main(chain_options(root, tmp_path / "run", *prior)) == 0
    corpus, data = root / "data", f"--data={root / 'data'}"
    index = ["index", f"{tmp_path / 'run' / 'model'}", f"--corpus={corpus}"]
    assert main([*index, f"--output={tmp_path / 'retriever'}"]) == 0
    beside = {"priors": [{"retriever": "bm25", "weight": 50}], "normalized": True}
    write_spec(tmp_path / "beside", "hybrid", beside | {"generator": "../retriever"})
    given, hops = [data, "--split=dev", "--search.beams=10"], ["--hops.steps=dynamic", "--hops.max=3"]
    assert main(["retrieve", str(tmp_path / "beside"), *given, *hops, f"--output={tmp_path / 'chains'}"]) == 0
    assert "beside priors" not in caplog.text
    f1 = evaluate_run(str(tmp_path / "chains.jsonl"), str(root / "data"), "dev")["set"]["f1"]
    assert list(logged(tmp_path / "run", "dev_f1").values()) == pytest.approx([f1, f1])
    assert main(["retrieve", str(tmp_path / "retriever"), *given, f"--output={tmp_path / 'alone'}"]) == 0
    assert "the generator learned beside priors" in caplog.text


def test_a_prior_of_another_corpus_is_refused(root: Path, tmp_path: Path) -> None:
    data, _ = opened_chains(root, both(root))
    data.corpus.select([0, 1]).write(tmp_path / "corpus.jsonl")
    with pytest.raises(MismatchError, match="is over another corpus"):
        open_priors(both(root), Corpus.read(tmp_path), "cpu")
    write_llama(tmp_path / "llama", root / "data")
    index = ["index", f"{tmp_path / 'llama'}", f"--corpus={root / 'data'}"]
    assert main([*index, f"--output={tmp_path / 'generative'}"]) == 0
    with pytest.raises(ConfigError, match="does not score all passages"):
        open_sources(data.corpus, [str(tmp_path / "generative")])
