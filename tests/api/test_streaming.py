"""Hops as they are found: they agree with the chains of the batch search, of every kind."""

import asyncio
import copy
import math
from itertools import pairwise
from pathlib import Path

import pytest

import grls
from grls.api.searcher import Searcher
from grls.data.types import Query
from grls.errors import ConfigError, DataError
from grls.retrieve.hits import with_texts
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import RankedHops, hop_by_hop
from grls.retrieve.registry import load_retriever
from grls.runs.trec import chain_ranking

QUERIES = ["is the otter calm ?", "is the lynx quick ?"]


def hops_of(folder: Path, **options: object) -> Searcher:
    return Searcher(hop_by_hop(load_retriever(folder), HopOptions(**options)), folder)  # type: ignore[arg-type]


@pytest.mark.parametrize(("member", "steps", "chains"), [
    ("generative", "dynamic", 3), ("generative", "fixed", 1), ("dense", "dynamic", 1), ("dense", "fixed", 3),
    ("bm25", "fixed", 1),
])  # fmt: skip
def test_the_last_hop_has_the_best_chain(kinds: Path, member: str, steps: str, chains: int) -> None:
    searcher = hops_of(kinds / member, steps=steps, max=3, chains=chains, branch=chains)
    for query in QUERIES:
        found = list(searcher.stream(query))
        ((best, *_),) = searcher.retriever.retrieve_chains([query])  # type: ignore[attr-defined]
        assert [hop.number for hop in found] == list(range(1, len(found) + 1))
        assert [hop.last for hop in found] == [False] * (len(found) - 1) + [True]
        assert [(hit.id, hit.score) for hit in found[-1].chain] == [(h.id, h.score) for h in best.hits]
        assert (found[-1].score, found[-1].done) == (best.score, best.done)
        if chains == 1:  # greedy: every hop adds a passage, and none is taken back
            added = [hop.hit for hop in found if hop.hit is not None]
            assert tuple(added) == found[-1].chain
            assert all(hop.chain == tuple(added[: hop.number]) for hop in found)
        texts = {passage.id: passage.text for passage in searcher.corpus}
        assert all(hit.text == texts[hit.id] for hop in found for hit in hop.chain)


@pytest.mark.parametrize(("member", "steps", "repeat"), [
    ("generative", "dynamic", False), ("generative", "fixed", True), ("dense", "dynamic", True),
    ("bm25", "fixed", True),
])  # fmt: skip
def test_a_search_returns_the_chain(kinds: Path, member: str, steps: str, repeat: bool) -> None:
    """A search pooled the passages of all chains, and nothing told where the best one ends."""
    how: dict[str, object] = {"steps": steps, "max": 3, "chains": 3, "branch": 3, "repeat": repeat}
    searcher = hops_of(kinds / member, **how)
    together = searcher.search(QUERIES, 10)
    for query, hits in zip(QUERIES, together, strict=True):
        *_, last = searcher.stream(query)
        assert [hit.id for hit in hits] == [hit.id for hit in last.chain]
        assert [hit.text for hit in hits] == [hit.text for hit in last.chain]
        assert [hit.hop for hit in hits] == list(range(1, len(hits) + 1))
        assert [hit.hop for hit in last.chain] == [hit.hop for hit in hits]
        assert all(after.score < before.score for before, after in pairwise(hits))
        ((best, *_),) = searcher.retriever.retrieve_chains([query])  # type: ignore[attr-defined]
        first = {hit.id: hit.score for hit in hits[::-1]}
        assert [first[hit.id] for hit in chain_ranking(best)] == pytest.approx(
            [hit.score for hit in chain_ranking(best)], abs=1e-5
        )
        alone = searcher.search(query, 10)
        assert [hit.id for hit in alone] == [hit.id for hit in hits]
        assert asyncio.run(searcher.asearch(query, 10)) == alone
        assert searcher.search(query, 1) == alone[:1]
        assert "hop=1" in repr(hits[0])
        assert [hit.hop for hit in (copy.deepcopy(hits[0]), hits[0]._replace(score=0.0))] == [1, 1]


def test_what_is_no_chain_has_no_hop(kinds: Path) -> None:
    query = QUERIES[0]
    for searcher in (
        grls.load(kinds / "generative"),
        hops_of(kinds / "dense", steps="ranked", max=2),
        hops_of(kinds / "dense", steps="fixed", max=2, pool=True),
        hops_of(kinds / "generative", steps="dynamic", max=3, choose="expected-f1"),
    ):
        hits = searcher.search(query, 4)
        assert hits
        assert {hit.hop for hit in hits} == {None}
        assert hits == with_texts(searcher.retriever.retrieve([query], 4), searcher.corpus)[0]


def test_hops_are_given_as_they_are_found(kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searcher = hops_of(kinds / "dense", steps="fixed", max=3)
    inner, asked = searcher.retriever.retriever, []  # type: ignore[attr-defined]
    search = type(inner).retrieve_hop
    monkeypatch.setattr(
        type(inner), "retrieve_hop", lambda self, *more: asked.append(1) or search(self, *more)
    )
    hops = searcher.stream(QUERIES[0])
    assert len(asked) == 0
    for count in (1, 2, 3):
        assert (next(hops).number, len(asked)) == (count, count)
    assert list(hops) == []


def test_expected_f1_chooses_after_the_last_hop(kinds: Path) -> None:
    searcher = hops_of(kinds / "generative", steps="dynamic", max=3, choose="expected-f1")
    for query in QUERIES:
        ((best,),) = searcher.retriever.retrieve_chains([query])  # type: ignore[attr-defined]
        *_, last = searcher.stream(query)
        assert ([hit.id for hit in last.chain], last.score) == ([hit.id for hit in best.hits], best.score)
        assert {hit.hop for hit in last.chain} == {None}  # a set has no order


def test_ranked_hops_stream_the_likeliest_chain(kinds: Path) -> None:
    searcher = grls.load(kinds / "ranked", device="cpu")
    retriever = searcher.retriever
    assert isinstance(retriever, RankedHops)
    for query in QUERIES:
        found = list(searcher.stream(query))
        (first,) = retriever.retrieve_by_hops([Query("0", query)], 5)[0]
        assert found[0].hit is not None
        assert (found[0].hit.id, found[0].score) == (first[0].id, pytest.approx(first[0].score))
        assert [len(hop.chain) for hop in found] == [1, 2, 3]
        for hop in found:
            assert hop.hit == hop.chain[-1]
            assert [hit.hop for hit in hop.chain] == list(range(1, hop.number + 1))
            assert hop.score == pytest.approx(math.prod(hit.score for hit in hop.chain))
        assert [hop.last for hop in found] == [False, False, True]
        assert all(len({hit.id for hit in hop.chain}) == hop.number for hop in found)


def test_a_single_step_is_one_hop(kinds: Path) -> None:
    for name in ("bm25", "dense", "generative", "hybrid", "fusion", "rescored"):
        searcher = grls.load(kinds / name, device="cpu")
        (hop,) = searcher.stream(QUERIES[0])
        (best,) = searcher.search(QUERIES[0], 1)
        assert (hop.hit, hop.chain, hop.score, hop.done, hop.last) == (best, (best,), best.score, False, True)
        assert hop.chain[0].hop is best.hop is None


def test_nothing_found_is_a_hop_without_a_passage(kinds: Path) -> None:
    (hop,) = grls.load(kinds / "bm25").stream("nothing like this")
    assert (hop.hit, hop.chain, hop.last) == (None, (), True)


def test_bad_input(kinds: Path) -> None:
    searcher = hops_of(kinds / "dense", steps="fixed", max=3)
    with pytest.raises(ConfigError, match=r"Searcher\.stream: query must be a text or a Query, got"):
        searcher.stream(["one", "two"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        searcher.stream("one", where="year>>")
    with pytest.raises(DataError, match="empty"):
        next(searcher.stream(" "))
