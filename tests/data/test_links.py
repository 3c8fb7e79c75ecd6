"""Names of passages in texts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import grls.data.links
from grls.data.corpus import Corpus
from grls.data.links import Links, find_links
from grls.data.types import Passage
from grls.errors import DataError
from grls.retrieve.update import Changes


def links_of(*titles: str, texts: dict[int, str] | None = None) -> Links:
    held = texts or {}
    passages = [Passage(f"p{n}", held.get(n, ""), title) for n, title in enumerate(titles)]
    return Corpus.from_passages(passages).links()


def named(links: Links, text: str) -> list[tuple[str, list[int]]]:
    return [(naming.words, naming.passages.tolist()) for naming in links.in_text(text)]


@pytest.mark.parametrize(
    ("title", "text", "found"),
    [
        ("The Office", "in the office", False),
        ("The Office", "who made the Office?", True),
        ("The Good, the Bad and the Ugly", "the good days", False),
        ("Mario Soffici", "a film by mario soffici, of 1942", True),
        ("Mario Soffici", "a film by Mario Sofficini", False),
        ("Mario Soffici", "Mario, Soffici", True),
        ("Alien", "the film Alien came out", True),
        ("Alien", "an alien came out", False),
        ("Alien (film)", "the film Alien came out", True),
        ("Alien (film)", "the alien film", True),
        ("Alien (!)", "the film Alien", True),
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


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Mario Soffici (1900) was a director.", "mario soffici"),
        ("in 1911 the Museum of the Fens opened", "museum of the fens"),
        ("Константин Циолковский был учёным", "константин циолковский"),
        ("It is a river.", None),
        ("# Green Tea\n\nGreen Tea is", "green tea"),
        ("otters eat fish", None),
        ("東京は大きい", None),
    ],
)
def test_a_passage_without_a_title_is_named_by_its_first_words(text: str, subject: str | None) -> None:
    links = Corpus.from_passages([Passage("a", text), Passage("b", text, "Other Title")]).links()
    assert named(links, text) == ([] if subject is None else [(subject, [0])])


def test_a_first_word_that_others_write_in_small_letters_is_no_name() -> None:
    texts = ["Earth is round", "Rome is old", "The Sun is hot", "the earth turns around the sun"]
    links = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)]).links()
    assert named(links, "Earth, Rome and the Sun") == [("rome", [1])]


def test_a_corpus_without_names_has_no_links() -> None:
    corpus = Corpus.from_passages([Passage("a", "one two three"), Passage("b", "four")])
    assert not corpus.links()
    assert corpus.links().of(1) == corpus.links().in_text("one two three") == []
    longer = corpus.extended(Corpus.from_passages([Passage("c", "of none", "One Two")]))
    assert longer.links().of(0)[0].passages.tolist() == [2]


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


@given(st.lists(WORDS | st.text("aB ß東🎬é-_!", max_size=8), min_size=1, max_size=6), WORDS)
def test_a_question_and_a_passage_of_one_text_hold_the_same_names(titles: list[str], words: str) -> None:
    text = f"{words} {titles[0]} {words} {titles[-1]}"
    links = links_of(*titles, "zz", texts={len(titles): text})
    assert repr(links.in_text(text)) == repr(links.of(len(titles)))


@pytest.mark.parametrize(
    ("title", "text", "found"),
    [
        ("Oklahoma!", "the musical Oklahoma!", True),
        ("Oklahoma!", "the state Oklahoma", False),
        ("Oklahoma!", "the musical xOklahoma!", False),
        ("Rust++", "in Rust++, too", True),
        ("Alien_", "the film Alien", False),
        ("Alien", "the film _Alien_", False),
        ("㎏㎏", "of ㎏㎏ and", True),
    ],
)
def test_one_word_counts_as_it_is_written(title: str, text: str, found: bool) -> None:
    links = links_of(title, "zz", texts={1: text})
    assert bool(links.in_text(text)) == bool(links.of(1)) == found


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the tables of corpora of any size."""
    monkeypatch.setattr(grls.data.links, "KEPT_BYTES", 0)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "grls" / "links"


def linked(**metadata: Any) -> Corpus:
    """Three passages; the metadata are of the first one."""
    passages = [Passage("a", "by Ann Lee, in Rome", "Blue Moon"), Passage("b", "born", "Ann Lee")]
    passages.append(Passage("c", "a city of old, like the Blue Moon", "Roma"))
    return Corpus.from_passages(passages, metadata=[metadata, {}, {}])


def spoken(links: Links, count: int = 3) -> str:
    """All that links say."""
    return repr([*map(links.of, range(count)), links.in_text("by Ann Lee, Roma: Blue Moon")])


def test_a_kept_table_is_opened_again(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = spoken(linked(links=["c"]).links())
    (folder,) = kept.iterdir()
    first = {file.name: file.read_bytes() for file in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(grls.data.links, "find_links", pytest.fail)
        assert spoken(linked(links=["c"]).links()) == expected
    for file in folder.iterdir():
        file.unlink()
    assert spoken(linked(links=["c"]).links()) == expected
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == first


@pytest.mark.parametrize("damage", ["cut", "changed", "gone", "foreign", "manifest"])
def test_a_damaged_table_is_made_again(kept: Path, damage: str) -> None:
    expected = spoken(linked().links())
    (folder,) = kept.iterdir()
    file = folder / "held.npy"
    whole = file.read_bytes()
    if damage == "cut":
        file.write_bytes(whole[:-1])
    elif damage == "changed":
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "gone":
        file.unlink()
    elif damage == "manifest":
        (folder / "links.json").write_text("[")
    else:
        linked(links=["b"]).links()
        (other,) = set(kept.iterdir()) - {folder}
        for one in folder.iterdir():
            one.write_bytes((other / one.name).read_bytes())
    assert spoken(linked().links()) == expected
    assert file.read_bytes() == whole


def test_a_cache_that_cannot_be_written_changes_nothing(kept: Path) -> None:
    kept.parent.mkdir(parents=True)
    kept.write_text("a file")
    assert spoken(linked().links()) == spoken(linked().links())
    assert kept.read_text() == "a file"


def test_a_table_is_of_one_corpus_and_its_fields(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = linked(alias="Rome")
    corpus.links()
    longer = corpus.extended(Corpus.from_passages([Passage("d", "Blue Moon Rising by Roma", "Ann Lee, Jr")]))
    fresh = Corpus.from_passages(list(longer), metadata=longer.metadata())
    assert spoken(longer.links(), 4) == spoken(Links(fresh, find_links(fresh)), 4)
    assert spoken(corpus.select([0, 2]).links(), 2) != spoken(corpus.links(), 2)
    assert len([*kept.iterdir()]) == 3
    assert [name.words for name in corpus.links(["alias"]).of(0)] == ["ann lee"]
    linked(alias="Florence").links()
    assert len([*kept.iterdir()]) == 5
    monkeypatch.setattr(grls.data.links, "_RULE", 2)
    linked(alias="Rome").links()
    assert len([*kept.iterdir()]) == 6
    monkeypatch.setattr(grls.data.links, "_KEPT", 2)
    linked(alias="Naples").links()
    assert len([*kept.iterdir()]) == 2
    other = Corpus.from_passages([Passage("a", "by Roma", "Naples"), Passage("b", "x", "Roma"), corpus[2]],
                                 metadata=[{"alias": "Naples"}, {}, {}])  # fmt: skip
    assert [name.words for name in other.links().of(0)] == ["roma"]


def test_links_are_given_by_ids() -> None:
    corpus = linked(links=["c", "a", "b", "c"])
    names = corpus.links().of(0)
    assert [(name.words, name.passages.tolist()) for name in names] == [
        ("ann lee", [1]), ("roma", [2]), ("ann lee", [1])]  # fmt: skip
    both = Corpus.from_passages(
        [Passage("a", "x"), Passage("b", "y")], metadata=[{"links": ["b"]}, {"links": ["a"]}]
    )
    assert both.links()
    assert [(name.words, name.passages.tolist()) for name in both.links().of(1)] == [("a", [0])]
    many = Corpus.from_passages(
        [Passage(f"{n}", "x", "Rome") for n in range(4)], metadata=[{"links": ["3"]}] * 4
    )
    assert many.links().of(0)[-1].weight == 4**-0.15


def test_a_table_is_found_with_more_links_than_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grls.data.links, "BATCH", 2)
    ring = Corpus.from_passages(
        [Passage(f"p{n}", "x") for n in range(5)], metadata=[{"links": [f"p{(n + 1) % 5}"]} for n in range(5)]
    )
    assert [ring.links().of(n)[0].passages.tolist() for n in range(5)] == [[1], [2], [3], [4], [0]]


@pytest.mark.parametrize(
    ("metadata", "fields", "problem"),
    [
        ({"alias": ["Rome", 3]}, ["alias"], "expected metadata.alias to be a text or a list of texts, got"),
        ({"alias": {}}, ["alias"], "expected metadata.alias to be a text or a list of texts, got {}"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, metadata: Any, fields: list[str], problem: str) -> None:
    good = {"_id": "a", "text": "x", "metadata": {"alias": "Rome"}}
    lines = [json.dumps(one) for one in (good, {"_id": "b", "text": "y", "metadata": metadata})]
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n\n".join(lines))
    with pytest.raises(DataError, match=f"corpus.jsonl, line 3: passage 'b': {problem}"):
        Corpus.read(file).links(fields)


@pytest.mark.parametrize(
    ("value", "lost", "left"),
    [(["a", "x"], "1 link left out, .*'x'", [[0]]), ("a", "1 link left out, .*'a'", []), ([1], "1 link", []),
     (["x", "y", "a"], "2 links left out, .*'x'", [[0]]), (None, "", []), ([], "", [])],
)  # fmt: skip
def test_a_link_to_no_passage_is_left_out_with_its_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, value: Any, lost: str, left: list[list[int]]
) -> None:
    entries = [{"_id": "a", "text": "x"}, {"_id": "b", "text": "y", "metadata": {"links": value}}]
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n\n".join(map(json.dumps, entries)))
    assert [name.passages.tolist() for name in Corpus.read(file).links().of(1)] == left
    said = caplog.text
    assert re.search(lost, said)
    assert ("of passage 'b' (line 3)" in said) == bool(lost)


def test_a_field_that_no_passage_has_is_refused() -> None:
    with pytest.raises(DataError, match=r"corpus: no passage has the metadata field 'aka': leave it out"):
        linked(alias="Rome").links(["alias", "aka"])


def test_fields_hold_further_names() -> None:
    corpus = linked(alias=["The Azure Orb (film)", "Azure", "x"], aka="Indigo Ball")
    question = "of azure orb, of Azure, of azure and indigo ball"
    assert corpus.links().in_text(question) == []
    links = corpus.links(["alias", "aka"])
    assert named(links, question) == [("azure orb", [0]), ("azure", [0]), ("indigo ball", [0])]
    assert named(links, "azure sky") == []


def test_links_to_what_is_removed_are_back_with_it() -> None:
    corpus = linked(links=["b", "c"])
    left, _ = Changes(remove=["b"]).over(corpus)
    assert [one.passages.tolist() for one in left.links().of(0)] == [[1]]
    again, _ = Changes(Corpus.from_passages([Passage("b", "new", "Ann Lee")])).over(left)
    assert [one.passages.tolist() for one in again.links().of(0)] == [[2], [2], [1]]


def test_the_share_of_passages_that_name_others() -> None:
    texts = {0: "Blue Moon is by Mario Soffici.", 1: "Mario Soffici was born in Florence.", 2: "A town."}
    assert links_of("Blue Moon", "Mario Soffici", "Florence", "zz", texts=texts).share == 0.5
    assert links_of("Blue Moon", texts={0: "Blue Moon is a film."}).share == 0.0
    assert links_of().share == 0.0
