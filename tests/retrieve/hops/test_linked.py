"""Links as a prior of ranked hops."""

import math
from pathlib import Path
from typing import Any

import pytest
from failing import fails
from small_data import small_retriever, write_jsonl, write_small

import grls
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import FullHit, Hit, NameLink, Passage
from grls.retrieve.bm25 import BM25Retriever
from grls.retrieve.hops.combine import Marginal
from grls.retrieve.hops.linked import LinkPrior
from grls.retrieve.hops.options import HopOptions
from grls.retrieve.hops.retriever import RankedHops
from grls.retrieve.hops.stop import Weighed

FILMS = [
    {"id": "film", "title": "Blue Moon Rising", "text": "A film of 1942 by Mario Soffici."},
    {"id": "man", "title": "Mario Soffici", "text": "Born in Florence, a director."},
    {"id": "town", "title": "Florence", "text": "A town on the Arno."},
    {"id": "other", "title": "Red Sun", "text": "A film of 1951. Its director was born in a town."},
    {"id": "more", "title": "Green Sea", "text": "The director of a film of 1960 was born in 1920."},
]
QUESTION = "Where was the director of Blue Moon Rising born?"


def prior(**options: Any) -> LinkPrior:
    passages = [Passage(str(one["id"]), str(one["text"]), str(one["title"])) for one in FILMS]
    return LinkPrior(
        BM25Retriever(Corpus.from_passages(passages)), 2.0, **{"named": 0.5, "linked": 0.8, **options}
    )


def shares(hits: list[Hit]) -> dict[str, float]:
    return {hit.id: round(math.exp(hit.score / 2.0), 9) for hit in hits}


def test_the_equation_by_hand() -> None:
    hits = [Hit("other", 2 * math.log(0.6)), Hit("film", 2 * math.log(0.2))]
    first = prior().weighed("of Blue Moon Rising", [], hits, None)
    # Of 0.8, half goes to the film: 0.4 + 0.1; the rest keeps its ratio.
    assert shares(first) == {"film": 0.5, "other": 0.3}
    assert [hit.id for hit in first] == ["film", "other"]
    second = prior().weighed("of a film", [0], hits[:1], None)
    assert shares(second) == {"man": 0.48, "other": 0.12}  # proposed, though it is no hit
    both = prior().weighed("of a film", [0, 1], hits[:1], None)
    assert both[0].id == "town", "a passage of the chain does not come again"
    assert prior().weighed("of a film", [0], [], None) == [Hit("man", 0.0)]
    assert prior(linked=0.0).weighed("of a film", [0], hits, None) == hits


def test_the_unlikeliest_hit_stays_a_hit() -> None:
    hits = [Hit("other", 0.0), Hit("town", -4000.0), Hit("more", -5000.0)]
    found = prior().weighed("of a film", [0], hits, None)
    assert [hit.id for hit in found] == ["man", "other", "town", "more"]
    assert found[3].score < found[2].score < -3000


def test_frequent_names_have_a_smaller_part() -> None:
    passages = [*FILMS, *({"id": f"p{n}", "title": f"p{n}", "text": "Of Florence."} for n in range(15))]
    corpus = Corpus.from_passages([Passage(one["id"], one["text"], one["title"]) for one in passages])
    hits = [Hit("other", 0.0)]
    found = LinkPrior(BM25Retriever(corpus), 2.0, named=0.5, linked=0.8).weighed(
        "in Florence", [], hits, None
    )
    assert shares(found)["town"] == pytest.approx(0.5 * 16**-0.15)


def test_where_nothing_is_named_nothing_changes() -> None:
    hits = [Hit("film", 1.23456), Hit("man", 0.3), Hit("town", 0.3)]
    assert prior().weighed("a question", [2], hits, None) == hits


def test_bm25_follows_names_unless_told_not_to() -> None:
    bm25 = grls.BM25(FILMS)
    hits = bm25.hops().search(QUESTION, k=5)
    without = bm25.hops(links=False).search(QUESTION, k=5)
    assert [hit.id for hit in hits[:2]] == ["film", "man"]
    scores = [{hit.id: hit.score for hit in ranking} for ranking in (hits, without)]
    assert scores[0]["man"] > scores[1]["man"]
    assert bm25.hops(named=0.0, linked=0.0).search(QUESTION, k=5) == without


def test_without_titles_hops_are_those_without_links() -> None:
    passages = [Passage(str(one["id"]), f"{one['title']}. {one['text']}") for one in FILMS]
    retriever = BM25Retriever(Corpus.from_passages(passages))
    results = [
        RankedHops(retriever, HopOptions("ranked", links=links)).retrieve([QUESTION], 5)
        for links in (True, False)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize(("share", "expected"), [(0.5, ()), (0.9, (NameLink("bob", "a"),))])
def test_links_are_those_of_the_likeliest_chain(share: float, expected: tuple[NameLink, ...]) -> None:
    """Alone the passage has 0.4, after the other one 0.6 times its share."""
    named = FullHit.of(Hit("b", math.log(share)), links=[NameLink("bob", "a")])
    combiner = Marginal(1, 5, 1.0)
    first = combiner.go_on(
        [(*combiner.begin(), [Hit("a", math.log(0.6)), Hit("b", math.log(0.4))], Weighed())]
    )
    combiner.go_on([(first[0], [named, Hit("c", math.log(1 - share))], Weighed())])
    combiner.go_on([(first[1], [Hit("a", 0.0)], Weighed())])
    found = {hit.id: hit.links for hit in combiner.rankings(3)[0]}
    assert found == {"a": (), "b": expected, "c": ()}


def test_a_folder_keeps_the_fields_with_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aliases = {"man": "El Maestro", "town": ["City of Lilies"]}
    films = [{"_id": one["id"], **one, "alias": aliases.get(str(one["id"]))} for one in FILMS]
    question = "El Maestro, in the city of lilies"
    data = write_jsonl(tmp_path / "corpus.jsonl", films)
    bm25 = ["index", "bm25", "--corpus", data, "--output", tmp_path / "bm25"]
    hops = ["index", "hops", tmp_path / "bm25", "--hops.steps=ranked", "--output", tmp_path / "hops"]
    assert main([*map(str, bm25)]) == 0
    line = fails(capsys, *hops, "--hops.names", "alias", "title")
    assert "no passage has the metadata field 'title': leave it out of --hops.names" in line
    assert main([*map(str, hops), "--hops.names", "alias"]) == 0
    opened = grls.load(tmp_path / "hops")
    assert {hit.id for hit in opened.search(question, k=2)} == {"man", "town"}
    assert opened.retriever.record()["names"] == ("alias",)
    assert "names" not in HopOptions("ranked").record()


def test_two_links_to_passages_of_one_title_both_count() -> None:
    passages = [Passage("a", "x", "A"), Passage("b", "y", "Rome"), Passage("c", "z", "Rome")]
    corpus = Corpus.from_passages(passages, metadata=[{"links": ["b", "c"]}, {}, {}])
    found = LinkPrior(BM25Retriever(corpus), 2.0, named=0.5, linked=1.0).weighed("?", [0], [], None)
    assert shares(found) == {"b": 0.5, "c": 0.5}


def test_changes_leave_links_to_what_is_there_alone(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "data")
    films = [{"_id": one["id"], **one, "metadata": {"links": ["man", "town"]}} for one in FILMS]
    write_jsonl(folder / "corpus.jsonl", films)
    retriever = small_retriever(folder)
    retriever.remove(["man"])
    retriever.add([Passage("man", "Born in Rome.", "A Director")])
    retriever.remove(["town"])
    assert retriever.corpus.ids([0, 3]) == ["film", "man"]
    assert [name.passages.tolist() for name in retriever.corpus.links().of(0)] == [[3]]
