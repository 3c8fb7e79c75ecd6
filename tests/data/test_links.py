"""Names of passages in texts."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grls.data.corpus import Corpus
from grls.data.links import Links
from grls.data.types import Passage


def links_of(*titles: str, texts: dict[int, str] | None = None) -> Links:
    held = texts or {}
    return Links([Passage(f"p{n}", held.get(n, ""), title) for n, title in enumerate(titles)])


def named(links: Links, text: str) -> list[tuple[str, list[int]]]:
    return [(naming.words, naming.passages.tolist()) for naming in links.in_text(text)]


@pytest.mark.parametrize(
    ("title", "text", "found"),
    [
        ("Mario Soffici", "a film by mario soffici, of 1942", True),
        ("Mario Soffici", "a film by Mario Sofficini", False),
        ("Mario Soffici", "Mario, Soffici", True),
        ("Alien", "the film Alien came out", True),
        ("Alien", "an alien came out", False),
        ("Alien (film)", "the film Alien came out", True),
        ("Alien (film)", "the alien film", True),
        ("The Godfather", "who directed Godfather?", True),
        ("Boston, Lincolnshire", "near Boston in the fens", True),
        ("Maybe It's Love (1935 film)", "of Maybe It's Love (1935 film)", True),
        ("Ivo", "Ivo is here", False),
        ("東京", "彼は東京に住む", True),
        ("東京", "彼は京都に住む", False),
        ("กรุงเทพ", "เขาอยู่กรุงเทพมานาน", True),
        ("Straße", "die Straße dort", True),
        ("", "a text", False),
        ("()", "( ) a text", False),
    ],
)
def test_a_title_is_found(title: str, text: str, found: bool) -> None:
    assert bool(links_of(title, "Another Title").in_text(text)) == found


def test_the_longest_name_counts_and_passages_may_share_one() -> None:
    links = links_of("New York", "New York City", "New York City (song)", "Song")
    assert named(links, "in New York City and New York") == [("new york city", [1, 2]), ("new york", [0])]
    assert named(links, "New York City (song)") == [("new york city song", [2])]


def test_a_passage_names_others_and_what_is_named_often_tells_less() -> None:
    texts = {0: "A film by Ann Lee. Blue Moon.", 1: "born in Rome City", 3: "Rome City, Rome City"}
    links = links_of("Blue Moon", "Ann Lee", "Rome City", "Rome City", texts=texts)
    assert [naming.words for naming in links.of(0)] == ["ann lee"]
    (rome,) = links.of(1)
    assert (rome.passages.tolist(), rome.weight) == ([2, 3], 2**-0.15)
    assert links.of(3) == links.of(2) == []
    assert links.in_text("Ann Lee")[0].weight == 1.0


def test_a_corpus_without_titles_has_no_links() -> None:
    corpus = Corpus.from_passages([Passage("a", "One two three"), Passage("b", "Four")])
    assert not corpus.links
    assert corpus.links.of(1) == corpus.links.in_text("One two three") == []
    longer = corpus.extended(Corpus.from_passages([Passage("c", "of none", "One Two")]))
    assert longer.links.of(0)[0].passages.tolist() == [2]


WORDS = st.lists(st.sampled_from(["anna", "bert", "carl"]), min_size=1, max_size=4).map(" ".join)


@given(st.lists(WORDS, min_size=1, max_size=6), WORDS)
def test_names_are_those_of_a_naive_search(titles: list[str], text: str) -> None:
    words, expected, start = text.split(), list[str](), 0
    while start < len(words):
        ends = [end for end in range(len(words), start, -1) if " ".join(words[start:end]) in titles]
        if ends:
            expected.append(" ".join(words[start : ends[0]]))
        start = ends[0] if ends else start + 1
    links = links_of(*titles)
    bearers = {name: [n for n, title in enumerate(titles) if title == name] for name in expected}
    assert named(links, text) == [(name, bearers[name]) for name in dict.fromkeys(expected)]


def test_a_passage_may_hold_very_many_names() -> None:
    titles = [
        f"{a} {b}" for a, b in product(map("Aa{:03}".format, range(100)), map("Bb{:03}".format, range(50)))
    ]
    links = links_of(*titles, "All", texts={len(titles): ", ".join(titles)})
    found = links.of(len(titles))
    assert np.concatenate([naming.passages for naming in found]).tolist() == list(range(len(titles)))
    assert all(re.fullmatch(r"aa\d+ bb\d+", naming.words) for naming in found)


def test_the_share_of_passages_that_name_others() -> None:
    texts = {0: "Blue Moon is by Mario Soffici.", 1: "Mario Soffici was born in Florence.", 2: "A town."}
    assert links_of("Blue Moon", "Mario Soffici", "Florence", "", texts=texts).share == 0.5
    assert links_of("Blue Moon", texts={0: "Blue Moon is a film."}).share == 0.0
    assert links_of().share == 0.0
