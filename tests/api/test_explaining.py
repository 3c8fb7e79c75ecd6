"""Explanations of searches of every kind: one face, and facts that agree with the search."""

import math
import re
import shutil
from pathlib import Path

import pytest
from failing import raises

import grls
from grls.api.searcher import Searcher
from grls.cli import main
from grls.data.dataset import read_queries
from grls.data.types import Query
from grls.errors import DataError
from grls.explain.explain import Explainer, Explanation
from grls.explain.standing import GoldStanding
from grls.explain.text import explanation_parts, parts_text
from grls.retrieve.spec import write_link

RANKING = ("bm25", "dense", "fusion", "rescored", "ranked")
TEXT = "is the otter calm ?"


def load(place: Path) -> Searcher:
    return grls.load(place, device="cpu")


@pytest.mark.parametrize("name", RANKING)
def test_a_standing_agrees_with_the_search(kinds: Path, name: str) -> None:
    searcher = load(kinds / name)
    hits = searcher.search(TEXT, 10)
    ids = [hit.id for hit in hits]
    for place, hit in enumerate(hits):
        (passage,) = searcher.explain(TEXT, hit.id)
        assert (passage.gold, passage.rank, passage.score) == (hit.id, place + 1, hit.score)
        assert passage.above == tuple(ids[: min(place, 5)])
        assert isinstance(passage.details, GoldStanding)
        ahead = [one.ahead for one in passage.details.above]
        assert ahead == [one.score - hit.score for one in hits[: min(place, 5)]]
        assert f"RANK {place + 1} with score" in str(passage)
        assert hit.text in str(passage)


def test_ranked_hops_of_a_generator_have_the_rank_and_score_of_the_search(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hops are explained, and their ranks and scores were called those of the search."""
    searcher = load(kinds / "generative").hops(max=2, output=tmp_path / "hops")
    hits = searcher.search(TEXT, 4)
    explained = searcher.explain(TEXT, [hit.id for hit in hits])
    assert [(one.rank, one.score) for one in explained] == [(n, hit.score) for n, hit in enumerate(hits, 1)]
    assert explained[1].above == (hits[0].id,)
    assert isinstance(explained[1].details, Explanation)
    assert explained[1].hop == 2
    place = f"RANK 2 with score {hits[1].score:.4g}"
    assert place in str(explained[1])
    gold = ",".join(hit.id for hit in hits)
    assert main(["explain", TEXT, f"--retriever={tmp_path / 'hops'}", f"--case.gold={gold}"]) == 0
    assert place in capsys.readouterr().out


def test_bm25_shows_the_words_in_common(kinds: Path) -> None:
    searcher = load(kinds / "bm25")
    for passage in searcher.explain(TEXT, ["otter-calm", "lynx-calm", "r0"]):
        words = passage.details.words  # type: ignore[union-attr]
        assert words is not None
        assert sum(words.values()) == pytest.approx(passage.score or 0.0, abs=1e-5)
    (passage,) = searcher.explain("the unheard otter", "otter-calm")
    assert "words    otter" in str(passage)
    assert "lacking  unheard" in str(passage)


def test_what_stands_above_is_said_once_a_query(kinds: Path) -> None:
    bm25 = load(kinds / "bm25")
    ranked = [hit.id for hit in bm25.search(TEXT, 4)]
    report = str(bm25.explain(TEXT, [ranked[1], ranked[3], ranked[2]]))
    lines = [line.split()[:2] for line in report.splitlines()]
    assert [line for line in lines if line[:1] == ["rank"]] == [["rank", "id"]]
    assert [line[1] for line in lines if line[:1] in (["1"], ["2"], ["3"])] == ranked[:3]


def test_what_was_not_ranked_says_so(kinds: Path) -> None:
    (passage,) = load(kinds / "dense").explain(TEXT, "r1", depth=1)
    hits = {hit.id: hit.score for hit in load(kinds / "dense").search(TEXT, 10)}
    assert (passage.rank, passage.score) == (None, pytest.approx(hits["r1"]))
    assert "NOT FOUND: it is not among the 1 ranked" in str(passage)
    assert "larger depth (depth=10)" in str(passage)
    (passage,) = load(kinds / "bm25").explain("nothing at all", "r1")
    assert (passage.rank, passage.score, passage.above) == (None, 0.0, ())
    assert "none in common" in str(passage)
    (passage,) = load(kinds / "fusion").explain(TEXT, "r1", depth=1)
    assert (passage.rank, passage.score) == (None, None)


@pytest.mark.parametrize("name", ["generative", "hybrid"])
def test_a_search_that_decodes_is_explained_step_by_step(kinds: Path, name: str) -> None:
    searcher = load(kinds / name)
    explained = searcher.explain(Query("q", TEXT), ["otter-calm", "r0"])
    expected = Explainer(searcher.retriever).explain(Query("q", TEXT), ["otter-calm", "r0"])  # type: ignore[arg-type]
    assert [passage.details for passage in explained] == expected
    (returned,) = {explanation_parts(one)[-1].rows for one in expected}  # said once, with the last passage
    parts = [part for one in expected for part in explanation_parts(one) if part.rows != returned]
    assert str(explained) == repr(explained) == parts_text([*parts, explanation_parts(expected[-1])[-1]])
    assert [passage.gold for passage in explained] == ["otter-calm", "r0"]
    assert explained[0].above == tuple(r.id for r in expected[0].results[: (expected[0].rank or 11) - 1])


def test_hops_are_explained_one_by_one(kinds: Path) -> None:
    explained = load(kinds / "hops").explain(Query("q", "is the otter quick ?", ("otter-calm", "r0")))
    assert [(one.gold, one.hop) for one in explained] == [("otter-calm", 1), ("r0", 2)]
    assert all(isinstance(one.details, Explanation) for one in explained)
    biased = explained[1].details
    assert biased.stop.bias == 0.5  # type: ignore[union-attr]  # that of the folder


def test_a_query_is_known_by_its_id_where_its_data_is(kinds: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(kinds / "data", run / "data")
    shutil.copytree(kinds / "bm25", run / "members" / "bm25")
    write_link(run, run / "members" / "bm25")
    query = next(one for one in read_queries(kinds / "data") if len(one.evidence) == 2)
    for place in (run, run / "members" / "bm25"):
        explained = load(place).explain(query.id)
        assert explained.query.text == query.text
        assert tuple(one.gold for one in explained) == query.evidence
    (one,) = load(run).explain(query.id, "r1")
    assert (one.gold, one.details.query.text) == ("r1", query.text)
    raises(DataError, f"did you mean '{query.id}'", load(run).explain, f"{query.id}x")


FILMS = [
    {"id": "film", "title": "Blue Moon Rising", "text": "A film of 1942 by Anna Kalb, in Florence Town."},
    {"id": "woman", "title": "Anna Kalb", "text": "Born in Florence Town and in Siena (old), a director."},
    {"id": "town", "title": "Florence Town", "text": "A place on the Arno."},
    {"id": "other", "title": "Florence Town", "text": "A place in Alabama."},
    {"id": "siena", "title": "Siena", "text": "Its hills are red."},
    {"id": "bare", "title": "", "text": "where a director was born."},
    {"id": "alone", "title": "Green Sea", "text": "A film without director."},
]
WHERE = "Where was the director of Blue Moon Rising born?"


@pytest.mark.parametrize(
    ("gold", "hops", "depth", "said"),
    [
        ("film", 2, 100, 'NAMED by "Blue Moon Rising" in the question: in the first hop its share of the '),
        ("town", 2, 100, 'NAMED by "Florence Town" in film: after film (probability '),
        ("siena", 3, 100, 'NAMED by "Siena" in woman: after film > woman (probability '),
        ("siena", 1, 100, 'NOT FOLLOWED: named by "Siena" in woman, and no chain goes on from there (more'),
        ("bare", 2, 2, "NO LINK: it has no title, and begins with no name."),
        ("alone", 2, 2, 'NO LINK: neither the question nor a passage that was ranked names it ("Green Sea")'),
    ],
)
def test_a_missing_link_is_the_step_of_loss(gold: str, hops: int, depth: int, said: str) -> None:
    searcher = grls.BM25(FILMS).hops(max=hops)
    (explained,) = searcher.explain(WHERE, gold=gold, depth=depth)
    assert said in str(explained)
    assert "⟦" not in str(explained)
    (found,) = grls.BM25(FILMS).hops(max=3).explain(WHERE, gold=gold)
    assert found.rank
    assert not re.search("NO LINK|NOT FOLLOWED", str(found))
    (without,) = grls.BM25(FILMS).hops(max=hops, links=False).explain(WHERE, gold=gold)
    assert not re.search("NAMED|LINK|FOLLOWED", str(without))


def test_no_depth_finds_a_passage_without_words_in_common() -> None:
    (explained,) = grls.BM25(FILMS).explain("director", gold="siena", depth=1)
    assert "NOT FOUND: it is not among the 1 ranked. Its score is 0.\n" in str(explained)


def test_what_outweighs_a_named_passage_has_the_larger_share() -> None:
    """After the film, its director has more of the hop than the two passages that share one name."""
    searcher = grls.BM25(FILMS).hops(max=2)
    (explained,) = searcher.explain(WHERE, gold="town")
    naming = explained.details.naming
    retriever = searcher.retriever.retriever
    prior = searcher.retriever.hop_search.prior
    (first,) = retriever.retrieve([WHERE], 20)
    (again,) = retriever.retrieve([f"{WHERE} Blue Moon Rising {FILMS[0]['text']}"], 21)
    hits = {
        hops: {hit.id: math.exp(hit.score / prior.temperature) for hit in weighed}
        for hops, weighed in {
            0: prior.weighed(WHERE, [], first, None),
            1: prior.weighed(WHERE, [0], [hit for hit in again if hit.id != "film"], None),
        }.items()
    }
    assert naming.probability == pytest.approx(hits[0]["film"] / sum(hits[0].values()))
    shares = {name: value / sum(hits[1].values()) for name, value in hits[1].items()}
    assert naming.share == pytest.approx(shares["town"])
    larger = {name: share for name, share in shares.items() if share > shares["town"]}
    assert dict(naming.ahead) == pytest.approx(larger)
    assert next(iter(naming.ahead))[0] == "woman"
    assert f"its share of the hop is {naming.share:.1%}, OUTWEIGHED by woman " in str(explained)
    assert naming.names == ("Florence Town",)


def test_a_name_that_goes_to_another_passage_gives_no_share() -> None:
    """A passage that shares its name with a hit is named, and not proposed."""
    text = "Moon Rising tells of a director and of his old house in Siena."
    crowd = [{"id": f"p{n}", "title": "", "text": text} for n in range(30)]
    near = {"id": "near", "title": "Siena", "text": "Moon Rising."}
    far = {"id": "far", "title": "Siena", "text": "Its hills are red. " * 50}
    searcher = grls.BM25([far, near, *crowd]).hops(max=1)
    (explained,) = searcher.explain("Siena Moon Rising?", gold="far")
    naming = explained.details.naming
    assert (naming.links, naming.chain, naming.share) == ((("Siena", None),), (), 0.0)
    assert naming.ahead[0][0] == "near"
