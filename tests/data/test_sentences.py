import pytest

from grls.data.sentences import sentences


@pytest.mark.parametrize(
    "parts",
    [
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
    ],
)
def test_sentences_without_spaces_between_them(parts: list[str]) -> None:
    assert sentences("".join(parts)) == parts


@pytest.mark.parametrize(
    "parts",
    [
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
    ],
)
def test_sentences_with_spaces_between_them(parts: list[str]) -> None:
    assert sentences(" ".join(parts)) == parts


def test_nothing_has_no_sentence() -> None:
    assert sentences("") == sentences(" \n") == []
    assert sentences("。") == ["。"]
