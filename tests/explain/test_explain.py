"""Verdicts against exhaustive scores, and every cause of a miss brought about on purpose."""

from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_data import passages, scratch, write_small

from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.decode.score_all import score_all
from grls.errors import ConfigError, DataError
from grls.explain.explain import Explainer, Explanation
from grls.explain.text import format_explanation, format_summary, summarise, why
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever
from grls.retrieve.hops.stop import DoneByLogOdds
from grls.retrieve.hybrid.priors import RetrieverPrior
from grls.retrieve.hybrid.retriever import HybridRetriever
from grls.retrieve.hybrid.weighted import WeightedSource

QUERIES = [Query(f"q{n}", text) for n, text in enumerate(("is the otter kind ?", "the lynx", "quick"))]
EXTRA = [Passage("twin", passages()[0].text), Passage("long", "the heron is calm . the badger is quick .")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("explain") / "data")


@cache
def assembled(folder: Path, seed: int, limits: Limits | None) -> GenerativeRetriever:
    torch.manual_seed(seed)
    model, tokenizer = scratch(folder).load()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(6.0)
    corpus = Corpus.from_passages([*passages(), *EXTRA])
    return GenerativeRetriever.assemble(model.eval(), tokenizer, corpus, limits)


def build(folder: Path, seed: int = 0, limits: Limits | None = None, **options: Any) -> GenerativeRetriever:
    """The model of a seed, made once, with these search options."""
    made = copy(assembled(folder, seed, limits))
    made.options = SearchOptions(**options)
    return made


def test_a_hop_is_explained_by_what_it_reads(folder: Path) -> None:
    for limits in (None, Limits(evidence=2)):
        retriever = build(folder, limits=limits)
        (number,) = retriever.corpus.numbers(["long"])
        found = Explainer(retriever, 2)._searches(QUERIES[0], [0], [number or 0]).model_input
        rows = retriever.codec.excerpts(QUERIES[0].text, [EXTRA[1]])
        assert found == retriever.codec.model_input(retriever.encode([QUERIES[0]])[0], rows)
    assert len(found) < len(
        retriever.codec.model_input(retriever.encode([QUERIES[0]])[0], retriever.sequences([number or 0]))
    )


def every(retriever: GenerativeRetriever, query: Query, k: int, **options: Any) -> list[Explanation]:
    return Explainer(retriever, k, **options).explain(
        query, retriever.corpus.ids(range(len(retriever.corpus)))
    )


@pytest.mark.parametrize("mode", ["renormalized", "full"])
def test_verdicts_agree_with_exhaustive_scores(folder: Path, mode: Any) -> None:
    seen = set()
    for seed, k in ((0, 1), (1, 1), (0, 2)):
        retriever = build(folder, seed, beams=k, mode=mode)
        for query in QUERIES:
            model_input = retriever.codec.model_input(retriever.encode([query])[0])
            decoder = retriever.decoder(k)
            # DONE is hidden; it is one token of the first step, so hiding it shifts every score alike.
            scores = score_all(decoder.generator, retriever.index, model_input, mode)[:-1]
            returned = [hit.id for hit in retriever.retrieve([query], k)[0]]
            truths = every(retriever, query, k, exhaustive=True)
            for e, truth, exact in zip(every(retriever, query, k), truths, scores, strict=True):
                seen.add(e.verdict)
                assert (e.verdict == "found") == (e.gold in returned)
                assert [r.id for r in e.results] == returned
                if e.verdict == "found" or e.verdict == "duplicate":
                    continue
                rank = 1 + int((scores > exact + 1e-4).sum())
                # A wider beam may find what passages it still misses outrank: only `exhaustive` knows.
                assert e.verdict == "pruned" if rank <= k else e.verdict in ("pruned", "scored worse")
                if e.verdict == "pruned":
                    wider = build(folder, seed, beams=e.judgement.sufficient, mode=mode)
                    assert e.gold in [hit.id for hit in wider.retrieve([query], k)[0]]
                    assert f"A beam of {e.judgement.sufficient} finds it" in why(e)
                assert truth.judgement.true_rank == rank
                assert (truth.verdict == "pruned") == (rank <= k)
    assert {"found", "scored worse"} <= seen
    assert mode == "renormalized" or "pruned" in seen


def test_a_pruned_passage_leaves_where_its_path_says(folder: Path) -> None:
    retriever = build(folder, 1, beams=1)
    lost = [e for q in QUERIES for e in every(retriever, q, 1) if e.left]
    assert lost
    for e in lost:
        assert e.left is not None
        assert e.left.margin is not None
        assert e.left.margin <= 0
        gold = [node for node in e.tree.nodes if node.gold]
        assert [node.step for node in gold] == [row.step for row in e.path]
        assert [node.token for node in gold] == [row.token for row in e.path]
        assert [n.kind == "lost" for n in gold] == [r.fate in ("pruned", None) for r in e.path]
        assert [n.score for n in gold] == pytest.approx([row.score for row in e.path])
        assert f"step {e.left.step}" in why(e)


def test_the_tree_ends_in_the_results(folder: Path) -> None:
    e = every(build(folder, beams=4), QUERIES[0], 4)[0]
    ranks = {node.rank: node for node in e.tree.nodes if node.rank}
    for result in e.results:
        node = next(n for n in e.tree.nodes if result.id in n.passages)
        assert node.score == pytest.approx(result.score)
    assert 1 in ranks
    for node in e.tree.nodes:
        before = e.tree.nodes[node.parent].step if node.parent >= 0 else 0
        assert node.step == before + 1


def test_a_duplicate_is_found_under_another_id(folder: Path) -> None:
    retriever = build(folder, beams=12)
    order = [r.id for r in every(retriever, QUERIES[0], 12)[0].results]
    first = min(order.index("otter-calm"), order.index("twin"))
    cut, other = order[first + 1], order[first]
    e = Explainer(build(folder, beams=12), first + 1).explain(QUERIES[0], [cut])[0]
    assert (e.verdict, e.rank, e.twins) == ("duplicate", None, (other,))
    assert f"equal those of {other}" in why(e)


def test_evidence_is_not_found_again(folder: Path) -> None:
    explainer = Explainer(build(folder, beams=4), 4)
    e, twin = explainer.explain(QUERIES[0], ["otter-calm", "twin"], evidence=["otter-calm"])
    assert (e.verdict, e.score, e.path, e.hop) == ("excluded", None, (), 2)
    assert "among the evidence" in why(e)
    assert twin.verdict == "excluded"
    assert "same tokens (otter-calm)" in why(twin)
    assert "excluded" in format_explanation(e).lower()


def test_done_that_scores_higher_ends_the_chain(folder: Path) -> None:
    retriever = build(folder, beams=6)
    with torch.no_grad():  # DONE's logit follows its row of the head; make it win or lose
        row = retriever.model.get_output_embeddings().weight[retriever.codec.done]
        kept = row.clone()
        outcomes = set()
        for scale in (4.0, -4.0):
            row.copy_(scale * kept)
            explainer, until_done = Explainer(retriever, 3), Explainer(retriever, 3, stop=DoneByLogOdds())
            for e in until_done.explain(QUERIES[0], [p.id for p in passages()], ["lynx-calm"]):
                assert e.done is not None or e.verdict == "excluded"
                if e.done is None:
                    continue
                hidden = explainer.explain(QUERIES[0], [e.gold], ["lynx-calm"])[0]
                assert hidden.done is None
                first = e.done.above and (e.rank is not None or hidden.rank is not None)
                assert (e.verdict == "done first") == first
                assert not first or "DONE scores" in why(e)
                outcomes.add(first)
        row.copy_(kept)
    assert outcomes == {True, False}


@pytest.mark.parametrize("beams", [2, 6])
def test_a_bias_of_done_means_what_it_means_to_retrieval(folder: Path, beams: int) -> None:
    retriever = build(folder, beams=beams)
    ends, verdicts = [], set()
    for bias in (-20.0, -1.5, 0.0, 1.5, 20.0):
        search = HopsRetriever(retriever, HopOptions("dynamic", 2, chains=1, branch=2, done_bias=bias))
        explainer = Explainer(retriever, 2, stop=DoneByLogOdds(bias))
        for query, (chain, *_) in zip(QUERIES, search.retrieve_chains(QUERIES), strict=True):
            first = chain.hits[0].id
            rest = [p.id for p in passages() if p.id != first]
            said = explainer.explain(query, rest, [first])
            results = said[0].results
            assert chain.done == (results[0].id == "DONE")
            assert chain.done or results[0].id == chain.hits[1].id
            for e in said:
                assert e.done is not None
                assert e.done_bias == bias
                assert e.verdict != "done first" or "DONE" in [r.id for r in e.results]
                assert e.verdict != "done first" or e.done.score > (e.score or 0.0)
                assert not chain.done or e.verdict not in ("found", "duplicate")
                verdicts.add(e.verdict)
            assert sorted((r.score for r in results), reverse=True) == [r.score for r in results]
            assert len(results) == 2
            ends.append((bias, chain.done))
    assert not any(done for bias, done in ends if bias == -20.0)
    assert beams == 2 or all(done for bias, done in ends if bias == 20.0)
    assert beams == 2 or {"found", "done first"} <= verdicts


def test_a_bias_shifts_done_and_no_other_score(folder: Path) -> None:
    retriever = build(folder, beams=12)
    ids = ["DONE", "heron-calm"]
    plain = Explainer(retriever, 12, exhaustive=True, stop=DoneByLogOdds())
    before = plain.explain(QUERIES[0], ids, ["lynx-calm"])
    biased = Explainer(retriever, 12, exhaustive=True, stop=DoneByLogOdds(50.0))
    done, other = biased.explain(QUERIES[0], ids, ["lynx-calm"])
    assert before[0].score is not None
    assert (done.rank, done.judgement.true_rank) == (1, 1)
    assert done.score == pytest.approx(before[0].score + 50.0)
    assert done.results[0].score == pytest.approx(done.score)
    assert done.results[0].complete == pytest.approx(done.score)
    assert other.score == pytest.approx(before[1].score)
    assert other.path == before[1].path
    assert other.verdict == "done first"
    assert "DONE's score +50.00" in format_explanation(other)
    undone = Explainer(retriever, 12, exhaustive=True).explain(QUERIES[0], ids[1:], ["lynx-calm"])[0]
    assert (undone.done_bias, undone.verdict) == (0.0, "found")
    said = summarise(biased, [(QUERIES[0], ids[1:], ["lynx-calm"])])
    assert said.verdicts["done first"] == 1
    assert "k 12, DONE's score +50.00; 1 missed" in format_summary(said)


def test_done_itself_can_be_asked_about(folder: Path) -> None:
    explainer = Explainer(build(folder, beams=12), 12, stop=DoneByLogOdds())
    e = explainer.explain(QUERIES[0], ["DONE"], ["lynx-calm"])[0]
    assert (e.gold, e.verdict, e.done) == ("DONE", "found", None)
    assert explainer.explain(QUERIES[0], ["DONE"])[0].verdict == "excluded"


def test_stopping_early_under_full_scores_is_named(folder: Path) -> None:
    causes = set()
    for seed in range(4):
        retriever = build(folder, seed, beams=12, mode="full", early_stop=True)
        for query in QUERIES:
            for e in every(retriever, query, 3):
                worst = min(r.complete for r in e.results)
                if e.verdict in ("early stop", "scored worse"):
                    assert e.complete is not None
                    assert (e.verdict == "early stop") == (e.complete > worst + 1e-4)
                    causes.add(e.verdict)
    assert causes == {"early stop", "scored worse"}


def test_a_cut_passage_says_so(folder: Path) -> None:
    whole = len(build(folder).codec.texts([EXTRA[1].text])[0])
    e = Explainer(build(folder, limits=Limits(passage=5)), 12).explain(QUERIES[0], ["long"])[0]
    assert (e.cut_tokens, e.tokens) == (whole - 5, 6)
    assert f"cut {whole - 5} tokens at its end" in why(e)


def test_unknown_ids_and_counts_are_refused(folder: Path) -> None:
    retriever = build(folder)
    with pytest.raises(
        DataError, match=r"passage id 'none' is not in the retriever's corpus \(12 passages\)"
    ):
        Explainer(retriever).explain(QUERIES[0], ["none"])
    with pytest.raises(DataError, match="passage id 'none'"):
        Explainer(retriever).explain(QUERIES[0], ["twin"], ["none"])
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        Explainer(retriever, 0)


def test_a_summary_counts_what_explain_says(folder: Path) -> None:
    retriever = build(folder, 1, beams=2)
    ids = [p.id for p in passages()]
    said = [e for q in QUERIES for e in Explainer(retriever, 2).explain(q, ids)]
    s = summarise(Explainer(retriever, 2), [(q, ids, ()) for q in QUERIES])
    assert (s.queries, s.beams, s.k) == (3, 2, 2)
    assert {v: n for v, n in s.verdicts.items() if n} == {
        v: sum(e.verdict == v for e in said) for v in {e.verdict for e in said}
    }
    missed = [e for e in said if e.verdict in ("pruned", "scored worse")]
    assert sum(s.left.values()) == sum(e.left is not None for e in missed)
    assert sum(s.sufficient.values()) == s.verdicts["pruned"] == sum(s.pruned_left.values())
    text = format_summary(s)
    assert f"30 gold passages; 2 beams, k 2; {len(missed)} missed" in text


@pytest.mark.parametrize(("mode", "normalized"), [("renormalized", False), ("full", False), ("full", True)])
@pytest.mark.parametrize("beams", [2, 12])
def test_scores_with_priors_are_those_of_the_hybrid(
    folder: Path, mode: Any, normalized: bool, beams: int
) -> None:
    generator = build(folder, beams=beams, mode=mode)
    words = BM25Retriever(generator.corpus)
    priors = [WeightedSource(RetrieverPrior(words), 2.0)]
    hybrid = HybridRetriever(generator, priors, normalized=normalized)
    query, k = QUERIES[0], 2
    hits = {hit.id: hit.score for hit in hybrid.retrieve([query], k)[0]}
    ids = generator.corpus.ids(range(len(generator.corpus)))
    said = Explainer(hybrid, k).explain(query, ids)
    assert {e.gold for e in said if e.rank is not None} == set(hits)
    for e in said:
        assert e.priors
        if e.gold in hits:
            assert e.score == pytest.approx(hits[e.gold], abs=1e-4)
        if e.verdict == "pruned":
            assert e.score > min(hits.values())
        if e.verdict == "scored worse" and beams == 12:
            assert e.score < min(hits.values()) + 1e-4
    plain = Explainer(generator, k).explain(query, ids)
    assert [e.score for e in plain] != [e.score for e in said]
    if mode == "full" and not normalized:  # every passage's priors add up, token by token
        shares = words.text_scores([query.text])[0] / words.temperature
        logs = shares - np.log(np.exp(shares - shares.max()).sum()) - shares.max()
        for one, other in zip(plain, said, strict=True):
            (number,) = generator.corpus.numbers([one.gold])
            same = [n for n, e in enumerate(plain) if e.gold == one.gold or e.gold in one.twins]
            mass = np.logaddexp.reduce(logs[same])
            assert number is not None
            assert other.complete - one.complete == pytest.approx(2.0 * mass, abs=1e-3)
