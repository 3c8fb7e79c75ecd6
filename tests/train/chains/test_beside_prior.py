"""A generator that learns beside a prior: its loss is that of the search it is decoded with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from failing import fails
from llama_small import write_llama
from small_data import passages
from train_helpers import logged, write_chain_parts

from grls.cli import main
from grls.data.dataset import write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError, MismatchError
from grls.evaluation.evaluate import evaluate_run
from grls.models.load.language import CausalLM
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.generative.span_scores import hidden_spans, prior_over_spans
from grls.retrieve.hybrid.priors import open_sources
from grls.retrieve.hybrid.weighted import prior_of
from grls.retrieve.spec import write_spec
from grls.train.chains.data import ChainData
from grls.train.chains.examples import ChainExample
from grls.train.chains.module import RetrieveChains
from grls.train.chains.prior import LearnBeside
from grls.train.chains.span_targets import WriteSpans
from grls.train.core.examples import PassageInput
from grls.train.core.mixture import Mix


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chain_parts(tmp_path_factory.mktemp("beside"))


def opened(root: Path, prior: LearnBeside | None, **options: Any) -> tuple[ChainData, RetrieveChains]:
    data = ChainData(str(root / "data"), prior=prior, **options)
    module = RetrieveChains(CausalLM(str(root / "llama")))
    module.model.eval()
    data._ready = True
    data.read(module)
    return data, module


def both(root: Path) -> LearnBeside:
    return LearnBeside([str(root / "dense"), "bm25"], weights=[0.8, 0.5], temperatures=[0.3, 1.0])


def test_the_loss_is_what_the_search_scores(root: Path) -> None:
    """Hop by hop, minus the score that the right passage has when it is searched for, DONE among them."""
    (data, module), (plain, _) = opened(root, both(root)), opened(root, None)
    assert data.priors is not None
    options = SearchOptions(beams=20)
    generator = GenerativeRetriever(module.model, data.codec, data.corpus, data.index, options)
    hybrid = data.priors.beside(generator)
    for number in (2, 5):  # one of two hops
        chain: Any = data.train_examples.draw(number, 0)
        expected = []
        for hop in chain.hops:
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
    data, module = opened(root, both(root), spans=WriteSpans(words=3, drawn=400))
    assert data.priors is not None
    assert data.spans is not None
    spans, rows = data.spans, data.index.rows
    parts = (module.model, data.codec, data.corpus, data.index, SearchOptions(beams=100))
    decoder = GenerativeRetriever(*parts, spans=spans).decoder(1)
    chain: Any = data.train_examples.draw(2, 0)
    assert len(chain.hops) == 3  # the last one to DONE
    expected = []
    for hop in chain.hops:
        evidence = [data.corpus.passages(hop.evidence)]
        asked = (
            data.priors.weighed,
            [Query("q", hop.query)],
            evidence,
            len(data.corpus),
            data.priors.done_share,
        )
        prior = prior_over_spans(prior_of(*asked, normalized=True), spans)
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
    data, module = opened(tmp_path, LearnBeside(["bm25"]), spans=spans)
    chain: Any = data.train_examples.draw(0, 0)
    hop = chain.hops[1]._replace(evidence=(0,), gold=(data.corpus.numbers([second])[0],))
    hop = hop._replace(taken=hop.gold[0])
    with torch.no_grad():
        assert float(module.batch_loss(data.collator([ChainExample((hop,))]))) < 30
    if spans is None:
        assert data.priors is not None
        parts = (module.model, data.codec, data.corpus, data.index, SearchOptions(beams=20))
        hybrid = data.priors.beside(GenerativeRetriever(*parts))
        asked = [Query("q", hop.query)], [data.corpus.passages(hop.evidence)]
        (found,) = hybrid.search(*asked, len(data.corpus) + 1, [[]])
        score = {hit.passage: hit.score for hit in found}[hop.gold[0]]
        with torch.no_grad():
            assert float(module.batch_loss(data.collator([ChainExample((hop,))]))) == pytest.approx(
                -score, abs=1e-4
            )


@pytest.mark.parametrize("weight", [0.8, -0.8])
def test_what_leads_to_evidence_alone_has_no_mass(root: Path, weight: float) -> None:
    """Of the tokens at the root, and where all that follows is evidence."""
    data, _ = opened(root, LearnBeside(["bm25"], weights=[weight]))
    otters = tuple(n for n, passage in enumerate(data.corpus) if "otter" in passage.text)
    hop: Any = data.train_examples.draw(2, 0)
    masses = data.collator.prior.open(
        data.index, [hop.hops[0]._replace(evidence=otters, gold=(len(data.corpus),))]
    )
    state, tokens = np.array([data.index.start()]), data.index.tokens(otters[0])
    seen = []
    for token in tokens[:-1]:
        allowed = data.index.allowed(state)
        gains = masses.gains(np.array([0]), allowed.states, allowed.offsets)
        assert np.isfinite(gains).all()
        low, high = data.index.span(allowed.states)
        rows = {int(data.index.rows.row_of[n]) for n in otters}
        alone = [set(range(*ends)) <= rows for ends in zip(low.tolist(), high.tolist(), strict=True)]
        assert [gain == -1000 for gain in gains] == [one and len(gains) > 1 for one in alone]
        seen.append((any(alone), all(alone) and len(gains) > 1))
        state = allowed.states[allowed.tokens == token]
    assert any(some for some, _ in seen)
    assert any(every for _, every in seen)


def test_what_is_memorised_without_a_query_has_no_prior(root: Path) -> None:
    mix = Mix(memorise=PassageInput(), memorise_share=0.5)
    data, module = opened(root, both(root), mix=mix)
    plain, _ = opened(root, None, mix=mix)
    told = [data.train_examples.draw(n, 0) for n in range(6, 12)]
    assert {hop.query for chain in told for hop in chain.hops} == {""}  # type: ignore[union-attr]
    with torch.no_grad():
        expected = float(module.batch_loss(plain.collator(told)))
        assert float(module.batch_loss(data.collator(told))) == pytest.approx(expected, rel=1e-6)
        every = [data.train_examples.draw(n, 0) for n in range(12)]
        found = float(module.batch_loss(data.collator(every)))
        assert found != pytest.approx(float(module.batch_loss(plain.collator(every))), rel=1e-3)


def test_what_is_memorised_is_a_query_to_a_teacher_that_is_asked(root: Path) -> None:
    mix = Mix(memorise=PassageInput(reads="whole"), memorise_share=1.0)
    options = {"teacher": str(root / "dense"), "teacher_share": 0.5, "mix": mix}
    data, _ = opened(root, None, teach_memories=True, **options)
    chain: Any = data.train_examples.draw(3, 0)
    (hop,) = chain.hops
    passage = data.corpus[hop.taken]
    assert hop.query.split() == passage.text.split()
    assert len(data.collator.teaching([hop])[0][0].rows) > 1
    untaught, _ = opened(root, None, **options)
    (hop,) = untaught.train_examples.draw(3, 0).hops  # type: ignore[union-attr]
    assert len(untaught.collator.teaching([hop])[0][0].rows) == 1


def options(root: Path, output: Path, *more: str) -> list[str]:
    return [
        "train", "chains", "--config=configs/chains.yaml",
        f"--output={output}", f"--data.data={root / 'data'}",
        f"--model.generator.name_or_path={root / 'llama'}", "--model.learning_rate=1e-2",
        "--data.batch_size=4", "--trainer.max_epochs=2", "--trainer.accelerator=cpu",
        "--trainer.enable_progress_bar=false", "--trainer.log_every_n_steps=1", "--recall.hops=3", *more,
    ]  # fmt: skip


def test_a_fit_beside_a_prior_and_retrieval_with_it(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Dev recall is that of the search beside the prior; at a great weight, that of the prior alone."""
    prior = ["--data.prior.retrievers=[bm25]", "--data.prior.weights=[50]", "--recall.k=2"]
    assert main(options(root, tmp_path / "run", *prior)) == 0
    found = logged(tmp_path / "run", "dev_recall")
    corpus, data = root / "data", f"--data={root / 'data'}"
    index = ["index", f"{tmp_path / 'run' / 'model'}", f"--corpus={corpus}"]
    assert main([*index, f"--output={tmp_path / 'retriever'}"]) == 0
    beside = {"priors": [{"retriever": "bm25", "weight": 50}], "normalized": True}
    write_spec(tmp_path / "beside", "hybrid", beside | {"generator": "../retriever"})
    given = [data, "--split=dev", "--k=2", "--search.beams=20"]
    retrieve = ["retrieve", str(tmp_path / "beside"), *given]
    assert main([*retrieve, f"--output={tmp_path / 'hybrid'}"]) == 0
    assert '"prior_normalized": true' in (tmp_path / "hybrid.info.json").read_text()
    assert "beside priors" not in caplog.text
    assert main(["retrieve", str(tmp_path / "retriever"), *given, f"--output={tmp_path / 'alone'}"]) == 0
    assert "the generator learned beside priors" in caplog.text
    bm25 = ["retrieve", "bm25", data, "--split=dev", "--k=2", f"--output={tmp_path / 'bm25'}"]
    assert main(bm25) == 0
    tops = [
        {(line.split()[0], line.split()[2]) for line in (tmp_path / f"{name}.trec").read_text().splitlines()}
        for name in ("hybrid", "bm25")
    ]
    assert tops[0] == tops[1]
    assert set(found.values()) == {_recall(root, tmp_path)}
    # Dynamic retrieval as users have it, with the beams of the callback.
    retrieve = [o for o in retrieve if not o.startswith("--search.beams")]
    more = ["--hops.steps=dynamic", "--hops.max=3", "--search.beams=10", f"--output={tmp_path / 'chains'}"]
    assert main([*retrieve, *more]) == 0
    f1 = evaluate_run(str(tmp_path / "chains.jsonl"), str(root / "data"), "dev")["set"]["f1"]
    assert list(logged(tmp_path / "run", "dev_f1").values()) == pytest.approx([f1, f1])
    assert max(len(chain) for chain in _chains(tmp_path / "chains.jsonl")) < 3  # DONE ends them


def _chains(file: Path) -> list[list[Any]]:
    return [json.loads(line)["chain"]["hops"] for line in file.read_text().splitlines()]


def _recall(root: Path, folder: Path) -> float:
    from grls.data.dataset import read_split
    from grls.evaluation.metrics.sequence_recall import recall_at

    queries, qrels = read_split(root / "data", "dev")
    found: dict[str, list[str]] = {}
    for line in (folder / "hybrid.trec").read_text().splitlines():
        query, _, passage, *_ = line.split()
        found.setdefault(query, []).append(passage)
    return float(np.mean([recall_at(found[q.id], frozenset(qrels[q.id]), 2) for q in queries]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--data.prior.retrievers=[]"], "prior needs retrievers"),
        (
            ["--data.prior.retrievers=[bm25]", "--data.prior.weights=[1,2]"],
            "got 1 retrievers, 2 weights",
        ),
        (["--data.prior.retrievers=[nowhere]"], "no retriever here"),
        (["--data.prior.retrievers=[bm25]", "--data.prior.temperatures=[0]"], "temperature of bm25 must be"),
        (["--data.prior.retrievers=[bm25]", "--data.prior.done_share=0"], "done_share must be below 0"),
        (
            ["--data.prior.retrievers=[bm25]", "--model.margin=1", "--mine.passages=2"],
            "searches with the generator alone",
        ),
        (["--data.teach_memories=true"], "teach_memories needs a teacher"),
    ],
)
def test_options_that_cannot_work_are_refused(
    root: Path, tmp_path: Path, given: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in fails(capsys, *options(root, tmp_path / "run", *given))


def test_a_prior_of_another_corpus_is_refused(root: Path, tmp_path: Path) -> None:
    data, _ = opened(root, both(root))
    data.corpus.select([0, 1]).write(tmp_path / "corpus.jsonl")
    from grls.data.corpus import Corpus

    assert data.priors is not None
    with pytest.raises(MismatchError, match="make both from the same corpus"):
        both(root).open(Corpus.read(tmp_path), "cpu")
    write_llama(tmp_path / "llama", root / "data")
    index = ["index", f"{tmp_path / 'llama'}", f"--corpus={root / 'data'}"]
    assert main([*index, f"--output={tmp_path / 'generative'}"]) == 0
    with pytest.raises(ConfigError, match="does not score all passages"):
        open_sources(data.corpus, [str(tmp_path / "generative")])
