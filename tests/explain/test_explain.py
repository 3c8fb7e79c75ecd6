"""Verdicts against exhaustive scores, every cause of a miss, what the beam considers, and how it is shown."""

import json
import math
import shutil
from collections import Counter
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from composite_specs import write_spec, written
from failing import fails, raises
from fixture_types import Caplog, Capsys
from score_all import score_all
from small_data import passages, scratch, small_retriever

import grls
from grls.cli import main
from grls.data.codec import Limits
from grls.data.corpus import Corpus
from grls.data.filters import Only
from grls.data.types import Passage, Query
from grls.errors import ConfigError, DataError
from grls.explain.beams import BeamTrace, TracedToken, trace_beam
from grls.explain.explain import Explainer, Explanation, explainer_of
from grls.explain.standing import format_ranks, rank_counts
from grls.explain.text import (
    explanation_parts,
    format_summary,
    parts_text,
    query_line,
    summarise,
    why,
    with_id,
)
from grls.retrieve.base import no_beam
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.generative.options import SearchOptions
from grls.retrieve.generative.retriever import GenerativeRetriever
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import HopsRetriever, hop_by_hop
from grls.retrieve.hops.stop import DoneByLogOdds
from grls.retrieve.hybrid.priors import WeightedSource
from grls.retrieve.hybrid.retriever import HybridRetriever

QUERIES = [Query(f"q{n}", text) for n, text in enumerate(("is the otter kind ?", "the lynx", "quick"))]
EXTRA = [Passage("twin", passages()[0].text), Passage("long", "the heron is calm . the badger is quick .")]


@pytest.fixture(scope="module")
def data(kinds: Path) -> Path:
    """The small data set."""
    return kinds / "data"


@cache
def assembled(data: Path, seed: int, limits: Limits | None) -> GenerativeRetriever:
    torch.manual_seed(seed)
    model, tokenizer = scratch(data).load()
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(6.0)
    corpus = Corpus.from_passages([*passages(), *EXTRA])
    return GenerativeRetriever.assemble(model.eval(), tokenizer, corpus, limits)


def build(data: Path, seed: int = 0, limits: Limits | None = None, **options: Any) -> GenerativeRetriever:
    made = copy(assembled(data, seed, limits))
    made.options = SearchOptions(**options)
    return made


def every(retriever: GenerativeRetriever, query: Query, k: int) -> list[Explanation]:
    return Explainer(retriever, k).explain(query, retriever.corpus.ids(range(len(retriever.corpus))))


def format_explanation(e: Explanation) -> str:
    return parts_text(explanation_parts(e))


@pytest.mark.parametrize("mode", ["renormalized", "full"])
def test_verdicts_agree_with_exhaustive_scores(data: Path, mode: Any) -> None:
    seen = set()
    for seed, k in ((0, 1), (1, 1), (0, 2)):
        retriever = build(data, seed, beams=k, mode=mode)
        for query in QUERIES:
            model_input = retriever.codec.model_input(retriever.encode([query])[0])
            decoder = retriever.decoder(k)
            # DONE is hidden; it is one token of the first step, so hiding it shifts every score alike.
            scores = score_all(decoder.generator, retriever.index, model_input, mode)[:-1]
            returned = [hit.id for hit in retriever.retrieve([query], k)[0]]
            for e, exact in zip(every(retriever, query, k), scores, strict=True):
                seen.add(e.verdict)
                assert (e.verdict == "found") == (e.gold in returned)
                assert [r.id for r in e.results] == returned
                if e.verdict == "found" or e.verdict == "duplicate":
                    assert e.left is None
                    continue
                rank = 1 + int((scores > exact + 1e-4).sum())
                # A wider beam may find what passages it still misses outrank.
                assert e.verdict == "pruned" if rank <= k else e.verdict in ("pruned", "scored worse")
                if e.verdict == "pruned":
                    wider = build(data, seed, beams=e.judgement.sufficient, mode=mode)
                    assert e.gold in [hit.id for hit in wider.retrieve([query], k)[0]]
                    assert f"A beam of {e.judgement.sufficient} finds it" in why(e)
    assert {"found", "scored worse"} <= seen
    assert mode == "renormalized" or "pruned" in seen


def test_a_pruned_passage_leaves_where_its_path_says(data: Path) -> None:
    retriever = build(data, 1, beams=1)
    lost = [e for q in QUERIES for e in every(retriever, q, 1) if e.left]
    assert lost
    for e in lost:
        assert e.left is not None
        assert e.left.margin is not None
        assert e.left.margin <= 0
        score = 0.0
        for row in e.path:
            assert row.score == pytest.approx(score + row.log_probability, abs=1e-4)
            score = row.score
        assert f"step {e.left.step}" in why(e)


def test_a_duplicate_is_found_under_another_id(data: Path) -> None:
    retriever = build(data, beams=12)
    order = [r.id for r in every(retriever, QUERIES[0], 12)[0].results]
    first = min(order.index("otter-calm"), order.index("twin"))
    cut, other = order[first + 1], order[first]
    e = Explainer(build(data, beams=12), first + 1).explain(QUERIES[0], [cut])[0]
    assert (e.verdict, e.rank, e.twins) == ("duplicate", None, (other,))
    assert f"equal those of {other}" in why(e)


def test_evidence_is_not_found_again(data: Path) -> None:
    explainer = Explainer(build(data, beams=4), 4)
    e, twin = explainer.explain(QUERIES[0], ["otter-calm", "twin"], evidence=["otter-calm"])
    assert (e.verdict, e.score, e.path, e.hop) == ("excluded", None, (), 2)
    assert "among the evidence" in why(e)
    assert twin.verdict == "excluded"
    assert "same tokens (otter-calm)" in why(twin)
    assert "excluded" in format_explanation(e).lower()
    repeating = explainer_of(hop_by_hop(build(data), HopOptions("fixed", 2, repeat=True)), 12)
    assert repeating is not None
    assert repeating[0].explain(QUERIES[0], ["otter-calm"], ["otter-calm"])[0].rank


def test_done_that_scores_higher_ends_the_chain(data: Path) -> None:
    retriever = build(data, beams=6)
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
def test_a_bias_of_done_means_what_it_means_to_retrieval(data: Path, beams: int) -> None:
    retriever = build(data, beams=beams)
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
                assert e.stop.bias == bias
                assert e.taken == (beams if bias else 2)
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


def test_done_itself_can_be_asked_about(data: Path) -> None:
    explainer = Explainer(build(data, beams=12), 12, stop=DoneByLogOdds())
    e = explainer.explain(QUERIES[0], ["DONE"], ["lynx-calm"])[0]
    assert (e.gold, e.verdict, e.done) == ("DONE", "found", None)
    assert explainer.explain(QUERIES[0], ["DONE"])[0].verdict == "excluded"


def test_stopping_early_under_full_scores_is_named(data: Path) -> None:
    causes = set()
    for seed in range(4):
        retriever = build(data, seed, beams=12, mode="full", early_stop=True)
        for query in QUERIES:
            for e in every(retriever, query, 3):
                worst = min(r.complete for r in e.results)
                if e.verdict in ("early stop", "scored worse"):
                    assert e.complete is not None
                    assert (e.verdict == "early stop") == (e.complete > worst + 1e-4)
                    causes.add(e.verdict)
    assert causes == {"early stop", "scored worse"}


def test_a_cut_passage_says_so(data: Path) -> None:
    whole = len(build(data).codec.texts([EXTRA[1].text])[0])
    e = Explainer(build(data, limits=Limits(passage=5)), 12).explain(QUERIES[0], ["long"])[0]
    assert (e.cut_tokens, e.tokens) == (whole - 5, 6)
    assert f"cut {whole - 5} tokens at its end" in why(e)


def test_a_summary_counts_what_explain_says(data: Path) -> None:
    retriever = build(data, 1, beams=2)
    ids = [p.id for p in passages()]
    said = [e for q in QUERIES for e in Explainer(retriever, 2).explain(q, ids)]
    s = summarise(Explainer(retriever, 2), [(q, ids, ()) for q in QUERIES])
    assert (s.queries, s.beams, s.k) == (3, 2, 2)
    assert {v: n for v, n in s.verdicts.items() if n} == {
        v: sum(e.verdict == v for e in said) for v in {e.verdict for e in said}
    }
    missed = [e for e in said if e.verdict in ("pruned", "scored worse")]
    assert s.left == Counter(e.left.step for e in missed if e.left)
    assert sum(s.sufficient.values()) == s.verdicts["pruned"]
    text = format_summary(s)
    assert f"30 gold passages; 2 beams, k 2; {len(missed)} missed" in text


@pytest.mark.parametrize(("mode", "normalized"), [("renormalized", False), ("full", False), ("full", True)])
@pytest.mark.parametrize("beams", [2, 12])
def test_scores_with_priors_are_those_of_the_hybrid(
    data: Path, mode: Any, normalized: bool, beams: int
) -> None:
    generator = build(data, beams=beams, mode=mode)
    words = BM25Retriever(generator.corpus)
    priors = [WeightedSource(words, 2.0)]
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


QUERY = "is the otter kind ?"


@pytest.fixture(scope="module")
def generator(data: Path) -> GenerativeRetriever:
    return small_retriever(data, beams=3)


def prefix(trace: BeamTrace, step: int, token: TracedToken) -> list[TracedToken]:
    before = trace.steps[step].beams[token.beam].parent
    if before is None:
        return [token]
    return [*prefix(trace, step - 1, trace.steps[step - 1].tokens[before]), token]


def test_it_finds_what_the_retriever_finds(generator: GenerativeRetriever) -> None:
    trace = trace_beam(generator, QUERY, k=3)
    (hits,) = generator.retrieve([QUERY], 3)
    assert [one.id for one in trace.results] == [hit.id for hit in hits]
    assert [one.score for one in trace.results] == pytest.approx([hit.score for hit in hits], abs=1e-4)
    assert trace.results[0].text == generator.corpus[generator.corpus.numbers([hits[0].id])[0]].text
    assert (trace.beams, trace.k, trace.mode, trace.cut) == (3, 3, "renormalized", False)


def test_the_scores_of_a_path_add_up(generator: GenerativeRetriever) -> None:
    trace = trace_beam(generator, QUERY, k=3, most=64)
    scores = {one.id: one.score for one in trace.results}
    ended = 0
    for number, step in enumerate(trace.steps):
        for token in step.tokens:
            path = prefix(trace, number, token)
            assert len(path) == number + 1
            assert token.score == pytest.approx(sum(one.constrained for one in path))
            for name in token.found:
                ended += name in scores
                assert token.score == pytest.approx(scores.get(name, token.score))
    assert ended == len(scores)


def test_probabilities_are_those_of_the_model(generator: GenerativeRetriever) -> None:
    trace = trace_beam(generator, QUERY, k=3, most=64)
    for step in trace.steps:
        assert step.candidates == sum(beam.allowed for beam in step.beams) == len(step.tokens)
        for place, beam in enumerate(step.beams):
            tokens = [token for token in step.tokens if token.beam == place]
            assert sum(math.exp(token.constrained) for token in tokens) == pytest.approx(1.0)
            assert sum(math.exp(token.full) for token in tokens) == pytest.approx(beam.mass)
            assert 0 < beam.mass <= 1
            assert len(tokens) == beam.allowed


def test_the_first_step_is_computed_by_the_model_itself(generator: GenerativeRetriever) -> None:
    trace = trace_beam(generator, QUERY, k=3, most=64)
    codec, query = generator.codec, generator.encode([Query("query", QUERY)])[0]
    session = generator.decoder(3).generator.open([codec.model_input(query, [])])
    session.first()
    every = np.arange(trace.vocabulary)
    logits = session.logits(np.zeros(len(every), np.int64), every).astype(np.float64)
    expected = logits - np.logaddexp.reduce(logits)
    for token in trace.steps[0].tokens:
        number = codec.tokenizer.convert_tokens_to_ids(token.token)
        assert token.full == pytest.approx(expected[number], abs=1e-4)


def test_passages_that_remain(generator: GenerativeRetriever) -> None:
    trace = trace_beam(generator, QUERY, k=3, most=64)
    assert trace.passages == len(generator.corpus)  # DONE may not be written without evidence
    for number, step in enumerate(trace.steps):
        for place, beam in enumerate(step.beams):
            under = sum(token.passages for token in step.tokens if token.beam == place)
            before = None if beam.parent is None else trace.steps[number - 1].tokens[beam.parent].passages
            assert under == (trace.passages if before is None else before)
        for token in step.tokens:
            assert (token.passages == 1) >= token.unique
            if token.fate == "finished":
                assert len(token.found) == token.passages


def test_few_candidates_are_listed_and_those_within_the_beam_come_first(
    generator: GenerativeRetriever,
) -> None:
    whole, few = trace_beam(generator, QUERY, k=3, most=64), trace_beam(generator, QUERY, k=3, most=3)
    for step, short in zip(whole.steps, few.steps, strict=True):
        within = [token.score for token in step.tokens if token.fate != "pruned"]
        assert [token.score for token in short.tokens][: len(within)] == within[:3]
        assert short.candidates == step.candidates
        assert len(short.tokens) <= 3


def test_done_may_be_written_after_evidence_of_dynamic_hops(generator: GenerativeRetriever) -> None:
    hops = hop_by_hop(generator, HopOptions(steps="dynamic", max=3, done_bias=0.5))
    first, second = trace_beam(hops, QUERY), trace_beam(hops, QUERY, ["otter-calm"])
    assert second.passages == first.passages  # one passage less, and DONE
    assert "otter-calm" not in [one.id for one in second.results]
    assert (first.stop.bias, second.stop.bias) == (0.0, 0.5)
    assert trace_beam(hop_by_hop(generator, HopOptions(steps="fixed", max=2)), QUERY, ["r0"]).k == 4
    found = {name for step in second.steps for token in step.tokens for name in token.found}
    assert "DONE" in found | {one.id for one in trace_beam(hops, QUERY, ["otter-calm"], k=12).results}


def test_a_filter_bounds_what_the_constraint_allows(generator: GenerativeRetriever) -> None:
    allow = Only(frozenset({"otter-calm", "otter-quick"}))
    trace = trace_beam(generator, QUERY, allow=allow, k=3)
    assert trace.passages == 2
    assert {one.id for one in trace.results} == {"otter-calm", "otter-quick"}
    alone = trace_beam(generator, QUERY, allow=Only(frozenset({"r0"})))
    assert (alone.steps, [one.id for one in alone.results]) == ((), ["r0"])


def test_priors_have_their_share(data: Path, generator: GenerativeRetriever) -> None:
    hybrid = HybridRetriever(generator, [WeightedSource(BM25Retriever(generator.corpus), 0.7)])
    trace, plain = trace_beam(hybrid, QUERY, k=3, most=64), trace_beam(generator, QUERY, k=3, most=64)
    first = trace.steps[0].tokens
    assert all(token.prior is not None for token in first)
    for token in first:
        assert token.score == pytest.approx(token.constrained + (token.prior or 0.0))
    assert {round(token.constrained, 4) for token in first} == {
        round(token.constrained, 4) for token in plain.steps[0].tokens
    }
    (hits,) = hybrid.retrieve([QUERY], 3)
    assert [one.id for one in trace.results] == [hit.id for hit in hits]
    assert all(token.prior is None for token in plain.steps[0].tokens)


def test_what_cannot_be_traced(data: Path, generator: GenerativeRetriever) -> None:
    bm25 = BM25Retriever(generator.corpus)
    assert no_beam(generator) is None
    assert "decodes no tokens" in str(no_beam(bm25))
    raises(ConfigError, "decodes no tokens", trace_beam, bm25, QUERY)
    raises(DataError, "'no such'", trace_beam, generator, QUERY, ["no such"])


@pytest.fixture(scope="module")
def retriever(kinds: Path) -> Path:
    return kinds / "generative"


def run(capsys: Capsys, *arguments: object) -> str:
    assert main(["explain", *map(str, arguments), "--device=cpu"]) == 0
    return capsys.readouterr().out


def test_the_command_takes_gold_from_the_data_and_writes_files(
    data: Path, retriever: Path, tmp_path: Path, capsys: Capsys
) -> None:
    out = run(
        capsys, "q-lynx-kind", f"--data={data}", f"--retriever={retriever}", f"--output={tmp_path / 'why'}",
        "--hops.steps=dynamic", "--k=2",
    )  # fmt: skip
    assert "\x1b" not in out
    assert [file.name for file in tmp_path.iterdir()] == ["why.json"]
    said = json.loads((tmp_path / "why.json").read_text())
    assert [(e["gold"], e["evidence"], e["hop"]) for e in said] == [
        ("lynx-calm", [], 1), ("r0", ["lynx-calm"], 2),
    ]  # fmt: skip
    assert said[0]["done"] is None
    assert said[1]["done"] is not None
    assert all(e["why"] in out for e in said)


def test_the_command_takes_free_text(retriever: Path, capsys: Capsys) -> None:
    asked = ("is the lynx kind ?", f"--retriever={retriever}", "--case.gold=lynx-calm,r1")
    assert "hop      2, after lynx-calm\n" in run(capsys, *asked, "--hops.steps=fixed")
    assert run(capsys, *asked).count("hop      1\n") == 2


def test_text_beside_data_is_said(data: Path, retriever: Path, capsys: Capsys, caplog: Caplog) -> None:
    ours = (f"--retriever={retriever}", f"--data={data}")
    out = run(capsys, "is the lynx kind ?", *ours, "--case.gold=r0")
    assert "query    is the lynx kind ?" in out
    assert "no query has the id 'is the lynx kind ?', so it is taken as the text" in caplog.text
    caplog.clear()
    out = run(capsys, "q-otter-calm", *ours, "--case.gold=r0", "--precision=bfloat16")  # a train query
    assert "query    q-otter-calm: is the otter calm ?" in out
    # Some processors emulate bfloat16, which is told.
    assert not [record for record in caplog.records if record.name != "grls.models.precision"]


def test_all_counts_a_split(data: Path, retriever: Path, tmp_path: Path, capsys: Capsys) -> None:
    out = run(
        capsys, "all", f"--data={data}", f"--retriever={retriever}", f"--output={tmp_path / 's'}", "--k=2",
        "--search.beams=2",
    )  # fmt: skip
    assert "2 queries, 4 gold passages; 2 beams, k 2" in out
    assert sum(json.loads((tmp_path / "s.json").read_text())["verdicts"].values()) == 4


def test_priors_and_hops_of_the_folder_are_explained(
    data: Path, retriever: Path, tmp_path: Path, capsys: Capsys
) -> None:
    named = {"generator": str(retriever), "priors": [{"retriever": "bm25", "weight": 3.0}]}
    write_spec(tmp_path / "hybrid", "hybrid", named)
    write_spec(
        tmp_path / "hops", "hops",
        {"retriever": "../hybrid", "hops": {"steps": "dynamic", "max": 3, "done_bias": 2.0, "branch": 2}},
    )  # fmt: skip
    asked = ("q-lynx-kind", f"--data={data}")
    plain = run(capsys, *asked, f"--retriever={retriever}")
    hybrid = run(capsys, *asked, f"--retriever={tmp_path / 'hybrid'}")
    assert "renormalized scores, " in plain
    assert "renormalized scores with priors, " in hybrid
    stepped = run(capsys, *asked, f"--retriever={tmp_path / 'hops'}")
    assert "k 2, renormalized scores with priors, early stop, bias on DONE +2.00" in stepped
    assert "after lynx-calm" in stepped


def test_every_wrong_call_says_what_to_do(
    data: Path, retriever: Path, tmp_path: Path, capsys: Capsys
) -> None:
    elsewhere = shutil.copytree(retriever, tmp_path / "a" / "b" / "c")  # no data set is beside it
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "queries.jsonl").write_bytes((data / "queries.jsonl").read_bytes())
    ours, over, without = f"--retriever={retriever}", f"--data={data}", f"--data={bare}"
    for arguments, *said in (
        (("text", ours), "name gold passages: --case.gold ID"),
        (("text", ours, "--case.gold=none"), "passage id 'none' is not in the retriever's corpus"),
        (("all", f"--retriever={elsewhere}"), "give --data DIR"),
        (("all", ours, over, "--case.gold=r0"), "is of one query"),
        (
            ("q-lynx-kimd", ours, over),
            f"no query of {data} has the id 'q-lynx-kimd'; did you mean 'q-lynx-kind'?",
        ),
        (("99999", ours, over), f"no query of {data} has the id '99999'"),
        (
            ("q-lynx-kind", ours, over, "--split=dev"),
            f"{data}: --split dev does not judge query 'q-lynx-kind'",
            "--split test does: name it, or give --case.gold ID",
        ),
        (
            ("q-lynx-kind", ours, without, "--split=test"),
            "--split test does not judge query 'q-lynx-kind'; no split does: make qrels",
        ),
        (
            ("q-lynx-kind", ours, over, "--hops.done_bias=1", "--hops.steps=fixed"),
            "only --hops.steps dynamic writes",
        ),
    ):
        error = fails(capsys, "explain", *arguments, "--device=cpu")
        assert all(text in error for text in said), error
        assert ("did you mean" in error) == ("q-lynx-kimd" in arguments)
    assert run(capsys, "q-lynx-kind", ours, without).count("passage  ") == 2  # its evidence


def test_an_id_is_not_said_twice() -> None:
    assert with_id("otter", "otter: it is calm") == "otter: it is calm"
    assert with_id("DONE", "DONE") == "DONE"
    assert with_id("otter", "otters: they swim") == "otter: otters: they swim"
    assert query_line(Query("query", "where ?")) == "where ?"
    assert query_line(Query("where ?", "where ?")) == "where ?"
    assert query_line(Query("q1", "where ?")) == "q1: where ?"


TEXT = "is the otter calm ?"


@pytest.fixture(scope="module")
def onward(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ranked hops of BM25 that learned which queries take one more."""
    hops = {"steps": "ranked", "max": 2, "onward": [-1.0, 0.0, 0.5, 0.0, 0.1, 0.0, 1.0], "temperature": 1}
    spec = {"kind": "hops", "retriever": str(kinds / "bm25"), "hops": hops}
    return written(tmp_path_factory.mktemp("explain") / "onward", spec)


def printed(capsys: Capsys, kinds: Path, name: str, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["explain", *arguments, f"--retriever={kinds / name}", "--device=cpu"]) == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", ["bm25", "dense", "fusion", "rescored", "ranked", "onward"])
def test_the_command_prints_what_python_says(kinds: Path, onward: Path, name: str, capsys: Capsys) -> None:
    place = onward.parent if name == "onward" else kinds
    expected = grls.load(place / name, device="cpu").explain(TEXT, ["otter-calm", "r1"])
    assert printed(capsys, place, name, TEXT, "--case.gold=otter-calm,r1") == str(expected)


def test_bm25_needs_no_folder(kinds: Path, capsys: Capsys) -> None:
    data = f"--data={kinds / 'data'}"
    folder = printed(capsys, kinds, "bm25", "all", data)
    assert main(["explain", "all", "--retriever=bm25", data]) == 0
    assert capsys.readouterr().out.strip() == folder
    error = fails(capsys, "explain", TEXT, "--retriever=bm25", "--case.gold=r1")
    assert "bm25 needs --data: the folder of the data set" in error


def test_the_data_set_of_the_fit_that_made_a_retriever_is_found(kinds: Path, capsys: Capsys) -> None:
    named = printed(capsys, kinds, "dense", "q-lynx-kind", f"--data={kinds / 'data'}")
    assert printed(capsys, kinds, "dense", "q-lynx-kind") == named


def test_ranks_are_written_as_json(kinds: Path, tmp_path: Path, capsys: Capsys) -> None:
    data, output = f"--data={kinds / 'data'}", f"--output={tmp_path / 'out'}"
    file = tmp_path / "out.json"
    for name in ("bm25", "dense"):
        out = printed(capsys, kinds, name, "all", data, "--k=3", output)
        assert out.endswith(f"wrote {file}")
        facts = json.loads(file.read_text())
        lines = out.split("\n\n")[0].splitlines()
        assert [one["query_id"] for one in facts["queries"]] == [line.split(":")[0] for line in lines]
        gold = [one for query in facts["queries"] for one in query["gold"]]
        ranks = [one["rank"] for one in gold]
        assert facts["gold_passages"] == len(ranks)
        assert facts["not_found"] == ranks.count(None)
        assert facts["found_to"] == {"1": ranks.count(1), "3": len(ranks) - ranks.count(None)}
        printed(capsys, kinds, name, TEXT, "--case.gold=r1,r0", output)
        for fact in json.loads(file.read_text()):
            assert (fact["query"], fact["depth"]) == (TEXT, 100)
            assert fact["rank"] is None or fact["score"] is not None
            assert [one["rank"] for one in fact["above"]] == list(range(1, len(fact["above"]) + 1))


def test_the_summary_counts_ranks() -> None:
    rows = [line.split() for line in format_ranks(rank_counts([1, 4, None, 5], 5)).splitlines()]
    assert rows[1:] == [
        ["rank", "1", "1", "25.0%"], ["rank", "1", "to", "5", "3", "75.0%"],
        ["not", "found", "1", "25.0%"],
    ]  # fmt: skip


def test_hops_of_a_call_are_explained(kinds: Path, capsys: Capsys) -> None:
    hopping = printed(capsys, kinds, "bm25", TEXT, "--case.gold=r1", "--hops.steps=ranked", "--hops.max=2")
    assert hopping == str(grls.load(kinds / "bm25").hops(max=2).explain(TEXT, "r1"))
