"""Parts of passages: spans, sentences, and the excerpts that a hop reads."""

from pathlib import Path

import pytest
from small_data import TRICKY, passages, small_tokenizer

from grls.data import identifiers
from grls.data.codec import Codec
from grls.data.corpus import Corpus
from grls.data.evidence import excerpt
from grls.data.identifiers import Identifiers
from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.identifiers.spans import Spans

TWO = [Passage("p", "– a river in Spain .", "The Ebro"), Passage("q", "... !"), Passage("r", "")]


def test_a_view_begins_at_every_word_and_ends_after_some() -> None:
    spans = Identifiers(Spans(3), Corpus.from_passages(TWO))
    assert spans.listed(range(len(spans))) == [
        "The Ebro –", "Ebro – a", "a river in", "river in Spain", "in Spain .", "Spain .",
        "... !",  # no word in it: one span, from its beginning
        "",
    ]  # fmt: skip
    assert spans.owners.tolist() == [0] * 6 + [1, 2, 3]  # DONE is its own
    spans = Identifiers(Spans(3), Corpus.from_passages(TWO))
    assert spans.of([0]).tolist() == [0, 1, 2, 3, 4, 5]
    assert spans.of([3, 1]).tolist() == [8, 6]
    assert spans.of([]).tolist() == []


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batches_are_all_views_in_order(data: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Identifiers(Spans(4), Corpus.from_passages([*passages(), *TRICKY]))
    monkeypatch.setattr(identifiers, "BATCH", size)
    codec = Codec(small_tokenizer(data))
    batches = list(spans.batches(codec))
    assert all(len(batch) >= size for batch in batches[:-1])
    rows = [row.tolist() for batch in batches for row in batch]
    assert rows == [row.tolist() for row in spans.rows(codec, range(len(spans)))]
    assert len(rows) == len(spans)


@pytest.mark.parametrize("parts", [
    ["青海湖是咸水湖。", "面积很大！", "真的吗？", "是的。"],
    ["他问：“谁？”", "我答。"],
    ["「行くよ。」", "と言った。", "雨だ。"],
    ["本当?", "うん!", "はい。"],
    ["圆周率是３．１４，对。", "好｡", "他走了"],
    ["這是第一句！？", "真的……是嗎。"],
    ["对。”，他说。"],
    ["አዎ።", "ነገ ይመጣል።"],
    ["ទឹក។", "ភ្លៀង។"],
    ["ကောင်းတယ်။", "ဟုတ်တယ်။"],
    ["ཡིན།", "མིན།"],
    ["ก๚", "ข๛"],
    ["เขาไปตลาด แล้วกลับบ้าน"],
    ["เขาไปไหม?", "ไป!"],
])  # fmt: skip
def test_sentences_without_spaces_between_them(parts: list[str]) -> None:
    assert sentences("".join(parts)) == parts


@pytest.mark.parametrize("parts", [
    ["गंगा भारत की नदी है।", "यह लंबी है॥", "हाँ।"],
    ["هل ذهبت؟", "نعم.", "ذهبت أمس!", "حقا"],
    ["یہ کتاب ہے۔", "وہ قلم ہے۔"],
    ["Hola.", "¿Qué tal?", "¡Bien!", "Sí."],
    ["Oui ?", "« Non. »", "Il part.", "«Vraiment.»", "Oui."],
    ["Er sagt: „Ja.“", "„Gut“, z. B. morgen.", "Sie geht."],
    ["Он ушёл…", "А. С. Пушкин писал.", "И т. д. всё."],
    ["Τι κάνεις;", "Καλά; ναι.", "Ωραία"],
    ["კარგი.", "ისევ კარგი."],
    ["서울은 수도다.", "크다!", "정말?", "네."],
    ["Այո։", "Ոչ։"],
    ["བོད་ཡིག་ནི་སྐད་ཡིག་ཡིན།", "རྒྱ་ཡིག་ཀྱང་ཡིན། །", "ཡིན་ནམ༎", "མིན།།"],
    ["༄༅། །བོད་ཡིག་ཡིན།", "རྒྱ་ཡིག་ཡིན།"],
    ["אור׃", "יום׃"],
    ["Τι κάνεις\u037e", "καλά.", "Ωραία"],
    ["ප්‍රථම෴", "දෙවන"],
    ['He said "Go."', "Then he left; slowly.", "Mr. Bob, e.g. Bo, had 3.5 cats.", "(Two died.)", "Why?!"],
    ["He fell. and so on…", "“Yes.”", "The U. S. Army vs. The Navy"],
])  # fmt: skip
def test_sentences_with_spaces_between_them(parts: list[str]) -> None:
    assert sentences(" ".join(parts)) == parts


def test_nothing_has_no_sentence() -> None:
    assert sentences("") == sentences(" \n") == []
    assert sentences("。") == ["。"]


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


def test_the_limit_is_in_words_and_0_is_none() -> None:
    assert excerpt("who?", PASSAGE, 3).text == "The Amber Mill"
    text = "映画は一九六一年の作品である監督はオルラであった。"
    assert len(excerpt("?", Passage("p", text), 8).text) == 16
    assert excerpt("who?", PASSAGE, 0) is PASSAGE


@pytest.mark.parametrize("text", ["", "one", "。。。", "映画は一九六一年の作品。監督はオルラ。音楽がよい。"])
def test_any_text_has_an_excerpt(text: str) -> None:
    found = excerpt("監督は誰?", Passage("p", text), 4)
    assert found.text in text
