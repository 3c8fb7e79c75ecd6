import unicodedata
from pathlib import Path

import bm25s
import pytest
import regex
from failing import raises
from hypothesis import given
from hypothesis import strategies as st

from grls.data.corpus import Corpus
from grls.data.evidence import part_around
from grls.data.identifiers import Identifiers
from grls.data.language import guess
from grls.data.types import Passage, Query
from grls.data.words import Analyzer, _pieces, count, fold, nothing_found, pieces, plain_words
from grls.errors import ConfigError
from grls.identifiers.spans import Spans
from grls.io.files import temporary
from grls.retrieve.bm25 import BM25Retriever

ENGLISH = "The Quick_brown fox's 2 dens, e.g. at No. 17, hold\tAN owl - isn't it so? Yes!"


def passages(*texts: str) -> list[Passage]:
    return [Passage(str(n), text) for n, text in enumerate(texts)]


def found(texts: list[str], queries: list[str], analyzer: Analyzer | None = None) -> list[list[str]]:
    corpus = Corpus.from_passages(passages(*texts))
    asked = [Query(str(n), text) for n, text in enumerate(queries)]
    hits = BM25Retriever(corpus, analyzer=analyzer).retrieve(asked, 3)
    return [[hit.id for hit in some] for some in hits]


def test_ascii_words_are_those_of_bm25s() -> None:
    given = [ENGLISH, "a I", "x_y __ 10 2nd", ENGLISH.upper(), "\x00tab\x0bnew\x1fword"]
    words = bm25s.tokenize(given, stopwords="english", return_ids=False, show_progress=False)
    for text, expected in zip(given, words, strict=True):
        assert [word for word in Analyzer().words(text) if len(word) > 1] == list(expected)
        assert Analyzer().words(text, True) == Analyzer().words(text)


@pytest.mark.parametrize(("query", "passage"), [
    ("🍣", "we ate 🍣 and rice by the sea"),
    ("👍", "well done 👍🏽"),
    ("👩‍🚀", "the crew 👩‍🚀"),
    ("🇩🇪", "they play for 🇩🇪"),
    ("€", "it costs 5 €"),
    ("∞", "up to ∞"),
    ("C++", "the C++ handbook of the firm"),
    ("c#", "we write C#."),
    ("C++", "since C++17"),
    ("λ", "the λ of a wave"),
    ("R", "statistics with R, and plots"),
    ("C", "vitamin 'C' for all"),
    (".NET", "a .NET service"),
    ("7", "henry 7"),
    ("é", "the letter é"),
    ("ꦲ", "ꦲꦏ꧀ꦱꦫꦗꦮ"),
])  # fmt: skip
@pytest.mark.parametrize("stem", [False, True])
def test_a_letter_a_sign_and_an_emoji_are_found(query: str, passage: str, stem: bool) -> None:
    others = ["the den of the otter's cub", "l'eau isn't wine", "they play for 🇩🇰", "one two three"]
    assert found([*others, passage], [query], Analyzer("en", stem)) == [["4"]]


def test_a_word_with_its_signs_is_found_before_the_word_alone() -> None:
    assert found(["plain C here", "some C# here", "some C++ here"], ["C++", "C#"])[0][0] == "2"
    assert found(["plain C here", "some C# here", "some C++ here"], ["C#"]) == [["1", "0", "2"]]


def test_scores_are_those_of_bm25s_over_the_same_words() -> None:
    texts = ["青海湖是中国最大的咸水湖。", "熊猫主要吃竹子。", "An owl in 北京 hunts mice", "Чёрный кот"]
    analyzer = Analyzer("none")
    index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    index.index([analyzer.words(f" {text}", True) for text in texts], show_progress=False)
    corpus = Corpus.from_passages([Passage(str(n), text) for n, text in enumerate(texts)])
    retriever = BM25Retriever(corpus, analyzer=analyzer)
    for query in ("中国的湖", "竹子", "черный", "北京 owl"):
        expected = index.get_scores(analyzer.words(query))
        assert expected.any()
        assert retriever.text_scores([query])[0].tolist() == expected.tolist()


def test_unspaced_scripts_are_found_by_pairs_and_by_single_characters() -> None:
    assert Analyzer().words("熊猫吃 iPhone手机") == ["熊猫", "猫吃", "iphone", "手机"]
    assert Analyzer().words("熊猫吃", True) == ["熊", "猫", "吃", "熊猫", "猫吃"]
    assert Analyzer().words("湖") == ["湖"]
    texts = [
        "青海湖是中国最大的咸水湖。", "熊猫主要吃竹子。", "琵琶湖は滋賀県にあります。",
        "แมวกินปลาในแม่น้ำ", "한국의 수도는 서울이다",
    ]  # fmt: skip
    queries = ["熊猫吃什么", "竹子", "竹", "琵琶湖はどこ", "ปลา", "서울은"]
    assert [ids[:1] for ids in found(texts, queries)] == [["1"], ["1"], ["1"], ["2"], ["3"], ["4"]]


@pytest.mark.parametrize(("one", "other"), [
    (unicodedata.normalize("NFD", "café München Ångström"), "café München Ångström"),
    ("ＢＭ２５　ｆｕｌｌｗｉｄｔｈ", "bm25 fullwidth"),
    ("ﾗｰﾒﾝ", "ラーメン"),
    ("STRASSE ﬁnden", "Straße finden"),
    ("İSTANBUL ISPARTA", "istanbul ısparta"),
    ("كِتَابٌ مُفيد ٣٤", "كتاب مفيد 34"),
    ("أحمد إلى مدرسة", "احمد الي مدرسه"),
    ("ΑΘΗΝΑΣ", "Αθήνας"),
    ("Чёрный ЁЖ", "черный еж"),
    ("שָׁלוֹם", "שלום"),
    ("हिन्दी १२", "हिन्दी 12"),
    ("soft\u00adhyphen \ufeffmark", "softhyphen mark"),
    (unicodedata.normalize("NFD", "가나다 がぎぐ"), "가나다 がぎぐ"),
    (unicodedata.normalize("NFD", "Việt Nam"), "Việt Nam"),
])  # fmt: skip
def test_what_differs_in_writing_alone_has_the_same_words(one: str, other: str) -> None:
    assert Analyzer("none").words(one) == Analyzer("none").words(other) != []
    assert plain_words(one) == plain_words(other)


def test_accents_of_latin_letters_part_words_and_marks_belong_to_theirs() -> None:
    words = Analyzer("none").words
    assert words("CAFÉ cafe\u0301 Año") == ["café", "café", "año"]
    assert words("CAFE ano") == ["cafe", "ano"]
    assert Analyzer().words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert plain_words("Hindi: हिन्दी_भाषा!") == "hindi हिन्दी भाषा"


ODD = "aZ9_ .'-\t\n\x00\x1c\x85\xa0\xad\u200b\u200d\u2003\u3000\ufeff\u0301éÅŉſßİıςΣΐ①ﬁｱÅ東京ไทย한ᄒ🎬🏽🇩م٣"


@given(st.text(ODD) | st.text())
def test_plain_words_of_a_text_are_those_of_the_whole_text(text: str) -> None:
    """Whole: folded at once, and split at what is no letter, mark or digit."""
    words = regex.findall(r"[\w--_]+", fold(text), regex.VERSION1)
    assert plain_words(text) == " ".join(part for word in words for part in _pieces(word))


def test_turkish_tells_its_two_i_apart_and_other_languages_do_not() -> None:
    assert fold("ISPARTA sınır", turkish=True) == "ısparta sınır"
    assert fold("İZMİR", turkish=True) == "izmir" == fold("İZMİR")
    assert Analyzer("tr").words("SINIR") != Analyzer("tr").words("sinir")
    assert found(["Isparta bir şehirdir"], ["ısparta", "ISPARTA"], Analyzer("tr")) == [["0"], ["0"]]


@pytest.mark.parametrize(("code", "texts"), [
    ("en", ["The owl hunts mice at night.", "It is a bird of prey with large eyes."]),
    ("de", ["Die Eule ist ein Vogel.", "Der Fuchs und die Maus sind im Wald, das ist nicht neu."]),
    ("fr", ["La chouette est un oiseau.", "Elle chasse dans les bois et sur le toit."]),
    ("es", ["El búho es un ave que caza por la noche.", "Los ratones y las aves están en el bosque."]),
    ("it", ["Il gufo è un uccello che vive nel bosco.", "La volpe e il topo sono della foresta."]),
    ("nl", ["De uil is een vogel van het bos.", "Het is niet de vos die met de muis speelt."]),
    ("tr", ["Baykuş bir kuştur ve gece avlanır.", "Kızıl tilki ormanda yaşar."]),
    ("ru", ["Сова охотится ночью."]),
    ("uk", ["Сова полює вночі, її їжа — миші."]),
    ("el", ["Η κουκουβάγια κυνηγά τη νύχτα."]),
    ("ar", ["البومة تصطاد الفئران في الليل."]),
    ("fa", ["جغد شب‌ها شکار می‌کند و پرنده است گربه چاق"]),
    ("hi", ["उल्लू रात में शिकार करता है।"]),
    ("zh", ["猫头鹰在夜里捕鼠。"]),
    ("ja", ["梟は夜に鼠を捕る。"]),
    ("ko", ["올빼미는 밤에 쥐를 잡는다."]),
    ("th", ["นกฮูกล่าหนูในเวลากลางคืน"]),
    (None, ["1984 ... 42", ""]),
    (None, ["zorb glim plat"]),
    (None, ["🍣 😀", "→ ∞"]),
    (None, ["for i in range(n): s += a[i]", "z = x + y", "git commit -a -m do"]),
    (None, ["John Smith", "Mary O'Connor", "Peter Novak", "Anna Kowalski", "Maria Garcia"]),
    ("en", ["Men's cotton shirt", "Women's running shoes, size S", "Kid's rain jacket", "Nurse's watch"]),
    ("en", ["Fed's rate cut lifts stocks", "Mayor's budget stalls in council", "Bank's profit doubles"]),
    ("en", ["How do I reset my password?", "Where do I find my invoice?", "Can I change my plan?"]),
    ("en", ["I love it", "I do recommend", "Works great, I use it daily"]),
    ("en", ["Boil pasta, drain, add butter", "Fry onion in a pan", "Whisk eggs, pour in a bowl"]),
    ("en", ["A cat is a feline and likes to purr", "A bird can fly", "A horse has a tail"]),
    ("en", ["Murder in the Mind", "The Curse of the Fox", "A Fig Leaf for Eve", "The Big Sleep"]),
    (None, ["ba be da", "da ba bo", "be bo da ba", "do du bi", "di ba du", "bu do be"]),
    (None, ["Murder in Mind", "Hans van den Broek", "Żołnierz zwycięstwa"]),
    ("pl", ["Sowa jest ptakiem, który poluje w nocy.", "Lis mieszka w lesie i je myszy."]),
    ("cs", ["Jak si změním heslo?", "Kde najdu svou fakturu?", "Mohu změnit svůj tarif?"]),
    ("pt", ["Onde está a minha fatura?", "Como posso alterar a minha senha?"]),
    ("sv", ["Ugglan är en fågel som jagar på natten.", "Räven bor i skogen."]),
    ("fi", ["Pöllö on lintu, joka metsästää yöllä.", "Kettu asuu metsässä."]),
    ("hu", ["A bagoly éjszaka vadászó madár.", "A róka az erdőben él."]),
    ("vi", ["Con cú săn chuột vào ban đêm.", "Cáo sống trong rừng."]),
    ("he", ["ינשוף צד עכברים בלילה.", "השועל חי ביער."]),
    ("ta", ["ஆந்தை இரவில் வேட்டையாடும்.", "நரி காட்டில் வாழ்கிறது."]),
    ("bn", ["পেঁচা রাতে শিকার করে।", "শিয়াল বনে থাকে।"]),
    ("ka", ["ბუ ღამით ნადირობს.", "მელა ტყეში ცხოვრობს."]),
    (None, []),
])  # fmt: skip
def test_the_language_is_guessed(code: str | None, texts: list[str]) -> None:
    assert guess(texts) == code


def test_a_guess_is_told_and_what_is_given_is_not_guessed(caplog: pytest.LogCaptureFixture) -> None:
    texts = ["Die Eule ist ein Vogel.", "Der Fuchs und die Maus sind im Wald, das ist nicht neu."]
    assert Analyzer().of(passages(*texts)) == Analyzer("de")
    assert "seems to be in the language 'de'" in caplog.text
    caplog.clear()
    assert Analyzer("fr").of(passages(*texts)) == Analyzer("fr")
    assert Analyzer().of(passages(ENGLISH)) == Analyzer().of(passages("zorb")) == Analyzer("en")
    assert not caplog.records


def test_stems_and_stop_words_are_those_of_the_language() -> None:
    assert Analyzer("de").words("die Häuser und der Wald") == ["häuser", "wald"]
    assert Analyzer("de", stop_words=False).words("die Häuser") == ["die", "häuser"]
    assert Analyzer("de", stem=True).words("die Häuser des Hauses") == ["haus", "haus"]
    assert Analyzer("en", stem=True).words("running runs 熊猫吃") == ["run", "run", "熊猫", "猫吃"]
    assert found(["Der Bauer hat Häuser.", "Ein Wald."], ["des Hauses"], Analyzer("de", stem=True)) == [["0"]]
    books = ["Книги лежат на столе.", "Лиса живёт в лесу, а сова охотится ночью."]
    assert found(books, ["где книга"], Analyzer("auto", stem=True)) == [["0"]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Analyzer("zh", stem=True), "no stemmer for the language 'zh'"),
        (Analyzer("none", stem=True), "no stemmer for the language 'none'"),
        (Analyzer("auto", stem=True), "cannot be guessed"),
    ],
)
def test_what_cannot_be_is_refused(given: Analyzer, said: str) -> None:
    raises(ConfigError, said, given.of, passages("zorb"))
    raises(ConfigError, "expected the language auto, none or a code", Analyzer, "German")


def test_a_corpus_where_most_queries_find_nothing_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    corpus = Corpus.from_passages([Passage("p", "An owl hunts mice."), Passage("q", "Bears eat fish.")])
    retriever = BM25Retriever(corpus)
    asked = [Query("a", "совы"), Query("b", "медведи"), Query("c", "owl")]
    retriever.retrieve(asked[2:], 1)
    assert not caplog.records
    retriever.retrieve(asked, 1)
    assert not caplog.records, "half of them find something"
    retriever.text_scores([query.text for query in asked[:2]])
    assert "4 queries share no word with" in caplog.text
    caplog.clear()
    retriever.retrieve(asked[:2], 1)
    assert not caplog.records, "once is enough"


def test_the_warning_names_no_temporary_folder(tmp_path: Path) -> None:
    """A corpus that an experiment keeps in a temporary folder was named by a path that nobody knows."""
    with temporary(tmp_path / "corpus.jsonl") as room:
        line = nothing_found(2, 2, f"{room}/new/../corpus.jsonl")
    assert line is not None
    assert line.startswith("2 queries share no word with the corpus, of 2 asked")
    assert "`grls index bm25`" in line, "a search has no option of the analyzer"
    assert "with data/c.jsonl, of" in nothing_found(2, 2, "data/c.jsonl")


def test_views_begin_within_unspaced_text() -> None:
    passage = Passage("z", "青海湖（湖）是Qinghai最大  的。 长城", "湖")
    spans = Identifiers(Spans(4), Corpus.from_passages([passage]))
    texts = [str(span) for span in spans.listed(range(len(spans)))]
    assert texts[:3] == ["湖 青海湖", "青海湖（湖）", "海湖（湖）是"]
    assert texts[-4:] == ["大 的。 长城", "的。 长城", "长城", "城"]
    assert "是Qinghai最大" in texts
    assert all(text in "湖 青海湖（湖）是Qinghai最大 的。 长城" for text in texts)


@pytest.mark.parametrize(("text", "words"), [
    ("one two, three", 3), ("熊猫吃竹子。", 3), ("湖", 1), ("iPhone 手机 。", 3), ("गंगा नदी है।", 3), ("", 0),
])  # fmt: skip
def test_words_are_counted_in_all_scripts(text: str, words: int) -> None:
    assert count(text) == words


def test_pieces_joined_are_the_text() -> None:
    for text in (ENGLISH, "青海湖（湖）是 Qinghai最大的。3月", "แมวกิน ปลา", "a\u200bb ｶﾞﾗｽ"):
        assert "".join(pieces(text)).strip() == " ".join(text.split())


def test_the_part_that_is_shown_is_around_the_words_of_the_question() -> None:
    filler = "no clobber: leave an existing file alone. " * 9
    text = f"cp: files are taken. {filler}Take directories recursively. {filler}"
    part = part_around("copy directories recursively", text, 100)
    assert part.startswith("… Take directories recursively. no clobber")
    assert part.endswith("…")
    assert len(part) <= 103
    assert part_around("zebra", text, 50) == f"{text[:50].rstrip()}…"
    assert part_around("", " short ", 50) == "short"
    assert "needle" in part_around("a needle", f"{'hay' * 300} needle", 100)
