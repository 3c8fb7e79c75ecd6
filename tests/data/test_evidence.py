"""What of a passage a hop reads: its title, the first sentence, and those nearest to the question."""

import pytest

from grls.data.evidence import excerpt
from grls.data.types import Passage

PASSAGE = Passage(
    "p",
    "The Amber Mill is a film of 1961. It was shot in two weeks. The weather was poor. "
    "Its director was Orla Vance, who had been a painter. Critics liked the music.",
    "The Amber Mill",
)


def test_the_first_sentence_and_those_that_share_words_with_the_question_are_kept() -> None:
    found = excerpt("Who was the director of The Amber Mill?", PASSAGE, 18)
    assert found.title == "The Amber Mill"
    assert found.text == (
        "The Amber Mill is a film of 1961. Its director was Orla Vance, who had been a painter."
    )


def test_sentences_stand_in_their_order_and_only_those_with_words_of_the_question() -> None:
    found = excerpt("music and weather", PASSAGE, 100)
    assert found == PASSAGE, "a passage that is short enough is whole"
    found = excerpt("music and weather", PASSAGE, 20)
    assert found.text == "The Amber Mill is a film of 1961. The weather was poor. Critics liked the music."


def test_a_first_sentence_that_is_too_long_is_cut() -> None:
    assert excerpt("who?", PASSAGE, 3).text == "The Amber Mill"


def test_two_characters_of_an_unspaced_script_are_one_word() -> None:
    text = "映画は一九六一年の作品である監督はオルラであった。"
    assert len(excerpt("?", Passage("p", text), 8).text) == 16


def test_no_limit_leaves_the_passage_as_it_is() -> None:
    assert excerpt("who?", PASSAGE, 0) is PASSAGE


@pytest.mark.parametrize("text", ["", "one", "。。。", "映画は一九六一年の作品。監督はオルラ。音楽がよい。"])
def test_any_text_has_an_excerpt(text: str) -> None:
    found = excerpt("監督は誰?", Passage("p", text), 4)
    assert found.text in text
