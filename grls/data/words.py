"""Splits texts into words, which BM25, TF-IDF and neighbours count, and into sentences; guesses languages.

First a text is folded (:func:`fold`): Unicode NFKC and case folding, without optional marks (vowel points,
Greek accents, variants of Arabic letters), and with one set of digits. Accents of Latin letters stay, because
they distinguish words (Spanish ``ano`` and ``año``).

If a script puts spaces between words, a word is a run of letters, marks and digits. Other scripts have no
spaces (Han, kana, Thai, Lao, Khmer, Burmese, Tibetan, …) or put them between longer units (Hangul). Their
words are pairs of neighbouring characters, as in Lucene's ``CJKAnalyzer``, and a single character is a word.
The script is decided for each character, so a text may mix scripts. A symbol beyond ASCII (an emoji, ``€``)
is a word, and so is a word with the signs at its end (``c++`` beside ``c``). A letter that an apostrophe
joins to a word (the s of ``owl's``) is none. The language selects function words and a stemmer
(:class:`Analyzer`).
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise
from typing import Any, Protocol

import regex
import Stemmer

from grls.data.inputs.arguments import options_of
from grls.data.types import Passage
from grls.errors import ConfigError, Option
from grls.io.files import is_temporary
from grls.io.progress import counted

log = logging.getLogger(__name__)


UNSPACED = (
    r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Thai}"
    r"\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}\p{Script=Javanese}\p{Script=Balinese}"
    r"\p{Script=Tai_Le}\p{Script=New_Tai_Lue}\p{Script=Tai_Tham}\p{Script=Tai_Viet}\p{Script=Yi}ー"
)
"""The scripts without spaces between words, as the inside of a character class of ``regex``."""

_UNSPACED = regex.compile(f"[{UNSPACED}]")
_PART = regex.compile(
    rf"(?P<unspaced>(?:(?=\w)[{UNSPACED}][\p{{M}}\u200c\u200d]*)+)|(?P<word>(?:(?![{UNSPACED}])\w)+)"
    r"|(?P<symbol>\p{Regional_Indicator}{2}|(?!\p{ASCII})\p{S})"
)
_SIGNS = regex.compile(r"[+#]+(?!\w)")
"""Signs at the end of a word that belong to it, as in ``C++`` and ``C#``."""
_JOINED = regex.compile(r"(?<=\w['’])\w\b|\b\w(?=['’]\w)")
"""A letter that an apostrophe joins to a word, as in ``owl's`` and ``l'eau``."""
_CLUSTER = regex.compile(r"\w[\p{M}\u200c\u200d]*")
_WORD = regex.compile(r"[\w--_]+", regex.VERSION1)
_WRITTEN = regex.compile(r"\w[\w\u200c\u200d]*")
_SIGN = regex.compile(r"\W|_")
_STEM_LETTERS = 6
_FORMAT = regex.compile(r"[\u00ad\u200c-\u200f\u2060\ufeff\p{Variation_Selector}]")
_LISTS = {
    "da": "DANISH",
    "de": "GERMAN",
    "es": "SPANISH",
    "fr": "FRENCH",
    "it": "ITALIAN",
    "nl": "DUTCH",
    "no": "NORWEGIAN",
    "pt": "PORTUGUESE",
    "ru": "RUSSIAN",
    "sv": "SWEDISH",
    "tr": "TURKISH",
}
"""Language code -> the list of function words in bm25s. Unspaced scripts have none: their words are pairs of
characters."""

_SAMPLED = 200
"""The language is guessed from this many passages at the start of the corpus, and as many spread over it."""


class PassagesByNumber(Protocol):
    """Passages by their numbers: a corpus, or a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Passage: ...


@dataclass(frozen=True)
class Analyzer:
    """How texts become words, for passages and queries alike.

    Args:
        language: A code such as ``en``, ``de``, ``tr``, ``zh``; ``auto`` guesses the language of the corpus;
            ``none`` keeps all words and does not stem. Texts are split by script, whatever the language.
        stem: Reduce words to their stems (Snowball's stemmer of the language).
        stop_words: Leave out the function words of the language (of English if the language has no list).
    """

    language: str = "auto"
    stem: bool = False
    stop_words: bool = True

    def of(self, passages: PassagesByNumber) -> Analyzer:
        """The same analyzer with a language; ``auto``: guessed from passages, with a warning if not English.

        Raises:
            ConfigError: A setting is not of its type, the language is no code, or ``stem`` is set and the
                language is unknown or has no stemmer.
        """
        analyzer = options_of(Analyzer, vars(self), "Analyzer")
        if analyzer.language == "auto":
            guessed = _guessed(passages)
            if guessed is None and analyzer.stem:
                raise ConfigError(
                    f"the language of the corpus cannot be guessed: give {Option('analyzer.language')}."
                )
            analyzer = replace(analyzer, language=guessed or "en")
            if analyzer.language != "en":
                log.warning(
                    "the corpus seems to be in the language %r; if it is another, say so where BM25 is made "
                    "(%s of `grls index bm25` and `grls retrieve bm25`).",
                    analyzer.language,
                    Option("analyzer.language"),
                )
        analyzer.check()
        return analyzer

    @classmethod
    def guessed(cls, passages: PassagesByNumber) -> Analyzer:
        """The default analyzer with a language that is guessed from passages, without a warning."""
        return cls(_guessed(passages) or "en")

    def in_english(self) -> Analyzer:
        """The same analyzer with English in place of ``auto``."""
        return replace(self, language="en") if self.language == "auto" else self

    def check(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            ConfigError: The language is no code, or ``stem`` is set and the language has no stemmer.
        """
        # Not in the constructor: jsonargparse would hide this error inside another one.
        if not regex.fullmatch(r"auto|none|[a-z]{2,3}", self.language):
            raise ConfigError(
                f"expected the language auto, none or a code such as en, de, zh; got {self.language!r}."
            )
        if self.stem and self.language != "auto":
            _stemmer(self.language)

    def settings(self) -> dict[str, str | bool]:
        """The settings that differ from English without stemming, for manifests."""
        usual = {"language": ("auto", "en"), "stem": (False,), "stop_words": (True,)}
        return {name: value for name, value in vars(self).items() if value not in usual[name]}

    def words(self, text: str) -> list[str]:
        """The words of a query; in unspaced scripts, pairs of characters."""
        return list(self._all(text, False))

    def indexed(self, text: str) -> list[str]:
        """The words of a passage: in unspaced scripts single characters as well as pairs.

        So a query of one character finds the passages that hold it.
        """
        return list(self._all(text, True))

    def content(self, text: str, least: int = 2) -> dict[str, str]:
        """The content words of a text in order, each once: folded word -> the word as first written.

        The list of function words that are left out is longer than for BM25.

        Args:
            text: The text.
            least: The least number of letters of a word.
        """
        stop = function_words(self.language)
        content: dict[str, str] = {}
        for word in _split(unicodedata.normalize("NFC", text), False):
            folded = fold(word, self._turkish)
            long = len(word) >= least or _UNSPACED.match(word)
            if long and _WORD.fullmatch(word) and folded not in stop:
                content.setdefault(folded, word)
        return content

    @property
    def _turkish(self) -> bool:
        return self.language in ("tr", "az")

    def _all(self, text: str, singles: bool) -> Iterator[str]:
        stop = _stop(self.language) if self.stop_words else frozenset()
        if not self.stem:
            yield from (w for w in _split(fold(text, self._turkish), singles) if w not in stop)
            return
        stem = _stemmer(self.language)
        for word in _split(_cased(text, self._turkish), singles):
            folded = _spelled(word)
            if folded not in stop:
                yield folded if _UNSPACED.match(word) else _spelled(stem(word))


USUAL = Analyzer()
"""The default analyzer of commands."""


def fold(text: str, turkish: bool = False) -> str:
    """A text in one normal form, so that variants of case, optional marks and digits become equal.

    Args:
        text: The text.
        turkish: ``I`` is the capital of ``ı``; otherwise ``ı`` becomes ``i``.
    """
    if text.isascii() and not turkish:
        return text.lower()
    return _spelled(_cased(text, turkish))


def is_short(word: str) -> bool:
    """Whether a word of an analyzer is a letter, a symbol, or has signs; characters of unspaced scripts are
    words like others.
    """
    return (len(word) == 1 and not _UNSPACED.match(word)) or not _WRITTEN.fullmatch(word)


def stem_key(word: str) -> str:
    """The first six letters of a word, folded and without signs; words of one stem mostly share them."""
    return str(_SIGN.sub("", fold(word)))[:_STEM_LETTERS]


def plain_words(text: str) -> str:
    """The folded words of a text, joined by spaces; each character of an unspaced script is a word."""
    words: list[str] = []
    for match in _WORD.finditer(fold(text)):
        words += _pieces(match[0])
    return " ".join(words)


def pieces(text: str) -> list[str]:
    """A text in the smallest parts that may begin a span: words, and characters of unspaced scripts.

    Each part includes its punctuation, and begins with a space if white space comes before it. So consecutive
    parts, joined, are a substring of the text (with single spaces as white space).
    """
    split: list[str] = []
    for word in text.split():
        parts = _pieces(word)
        split += [f" {parts[0]}", *parts[1:]]
    return split


def count(text: str) -> int:
    """About how many words a text has; two characters of an unspaced script count as one word."""
    if text.isascii():
        return len(text.split())
    total = 0
    for word in text.split():
        runs = [len(_CLUSTER.findall(m[0])) for m in _PART.finditer(word) if m.lastgroup == "unspaced"]
        total += sum((run + 1) // 2 for run in runs) + (not runs)
    return total


def _guessed(passages: PassagesByNumber) -> str | None:
    step = max(1, len(passages) // _SAMPLED)
    numbers = (*range(min(_SAMPLED, len(passages))), *range(_SAMPLED, len(passages), step))
    return guess(f"{passage.title} {passage.text}" for passage in map(passages.__getitem__, numbers))


def nothing_found(asked: int, empty: int, source: str) -> str | None:
    """The warning if most queries share no word with the corpus; None otherwise."""
    if empty * 2 <= asked:
        return None
    corpus = "the corpus" if is_temporary(source) else source
    return (
        f"{counted(empty, 'query shares', 'queries share')} no word with {corpus}, of {asked:,} asked: BM25 "
        "finds nothing there. Are queries and passages in one language? Language and stemming are chosen "
        f"where BM25 is made: {Option('analyzer.language')!s} and {Option('analyzer.stem')!s} of `grls index "
        "bm25` and `grls retrieve bm25`."
    )


def _pieces(word: str) -> list[str]:
    """A word without white space, split before each character of an unspaced script."""
    if word.isascii():
        return [word]
    starts = {match.start() for match in _UNSPACED.finditer(word) if not _mark(match[0])}
    starts |= {m.start() for m in _PART.finditer(word) if m.lastgroup == "word" and _follows(word, m.start())}
    cuts = [0, *sorted({_opened(word, start) for start in starts} - {0}), len(word)]
    return [word[a:b] for a, b in pairwise(cuts)]


def _opened(word: str, place: int) -> int:
    """The start of a part, moved back over opening brackets and quotes."""
    while place and unicodedata.category(word[place - 1]) in ("Ps", "Pi"):
        place -= 1
    return place


def _mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "MPSC"


def _follows(word: str, place: int) -> bool:
    """Whether a word holds a character of an unspaced script before a place."""
    return _UNSPACED.search(word, 0, place) is not None


def _split(text: str, singles: bool) -> Iterator[str]:
    for match in _PART.finditer(text):
        if match.lastgroup != "unspaced":
            first, last = match.span()
            if last - first > 1 or not _JOINED.match(text, first):
                yield match[0]
            if match.lastgroup == "word" and (signs := _SIGNS.match(text, last)):
                yield match[0] + signs[0]
            continue
        clusters = _CLUSTER.findall(match[0])
        if singles or len(clusters) == 1:
            yield from clusters
        yield from (first + second for first, second in pairwise(clusters))


def _cased(text: str, turkish: bool) -> str:
    text = unicodedata.normalize("NFKC", text)
    if turkish:
        text = text.replace("I", "ı").replace("İ", "i")
    text = unicodedata.normalize("NFKC", text.casefold()).replace("i\u0307", "i")
    return str(_FORMAT.sub("", text if turkish else text.replace("ı", "i")))


def _spelled(text: str) -> str:
    return text if text.isascii() else text.translate(_spellings())


@cache
def _spellings() -> dict[int, str]:
    """Character -> its normal form: without optional points and accents, digits in ASCII."""
    table = {ord(old): new for old, new in zip("أإآٱىیکةۀё", "ااااييكههе", strict=True)}
    points = [*range(0x064B, 0x0660), 0x0670, 0x0640, *range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4]
    table |= dict.fromkeys(points, "")
    for code in (*range(0x0370, 0x0400), *range(0x1F00, 0x2000)):
        bare = [c for c in unicodedata.normalize("NFD", chr(code)) if not unicodedata.combining(c)]
        if "".join(bare) != chr(code):
            table[code] = "".join(bare)
    for code in range(0x80, 0x20000):
        if unicodedata.category(chr(code)) == "Nd":
            table[code] = str(unicodedata.digit(chr(code)))
    return table


@cache
def _stop(language: str) -> frozenset[str]:
    if language == "none":
        return frozenset()
    return _folded(_listed(_LISTS.get(language, "EN")), language)


@cache
def function_words(language: str) -> frozenset[str]:
    """The function words of English and of a language, folded; of English alone if it has no list."""
    english = frozenset(_listed("EN_PLUS"))
    return english | _folded(_listed(_LISTS[language]), language) if language in _LISTS else english


def _listed(name: str) -> Iterable[str]:
    from bm25s import stopwords  # imports scipy

    words: Iterable[str] = getattr(stopwords, f"STOPWORDS_{name}")
    return words


def _folded(words: Iterable[str], language: str) -> frozenset[str]:
    return frozenset(fold(word, language in ("tr", "az")) for word in words)


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    name = STEMMERS.get(language)
    if name is None or name not in Stemmer.algorithms():
        raise ConfigError(
            f"there is no stemmer for the language {language!r}; leave {Option('analyzer.stem')} out, or "
            f"set {Option('analyzer.language')} to one of {', '.join(sorted(STEMMERS))}."
        )
    stem: Callable[[str], str] = Stemmer.Stemmer(name).stemWord
    return stem


# Splits texts into sentences, in all scripts.
#
# Signs that only end sentences (``。！？।؟።`` and others: Unicode's ``STerm`` beyond ASCII) follow UAX
# 29, rules SB8a to SB11: the sentence includes closing brackets and quotes after the sign, and it
# does not end if a comma or a similar sign follows. So do the signs of that use that ``STerm`` lacks:
# shad (Tibetan), sof pasuq (Hebrew), the closing signs of Thai, Khmer, Sinhala and Coptic, and the
# Greek question mark. The full stop, ``!``, ``?``, ``…`` and the Greek ``;`` have other uses, too.
# They end a sentence only if a space follows (none is needed between characters of unspaced scripts),
# no lower-case letter comes next, and no abbreviation comes before. Most texts in Thai and Lao have
# no sign that ends a sentence, so such a text is one sentence. The module does not know languages.


_ENDS = r"[\p{Sentence_Break=STerm}．﹒｡׃\u037e།༎༏༐༑༒๚๛៚෴⳾--[!?]]"
_HEAD = "[༄-༊]"
"""A mark at the head of a Tibetan text; the shad after it ends nothing."""
_END = regex.compile(
    rf"(?:(?<!{_HEAD}[།\s]*){_ENDS}(?<!．(?=\p{{Nd}}))[!?]*(?:(?<=[།༎])\s+(?=[།༎]))?|(?<=[{UNSPACED}])[.!?](?=[{UNSPACED}]))++[\"'\p{{Pe}}\p{{Pf}}]*+\s*+(?=[^\s\p{{Sentence_Break=SContinue}}])"
    r"|(?:[.!?…]|(?<=\p{Script=Greek}[\p{Pe}\p{Pf}]?);)[\"')\]”’»›“]*(?:\s»)?\s+"
    r"(?=(?:«\s|[«„‹¿¡])*[\"'(\[“‘「]?[¿¡]?(?P<next>\w))",
    regex.VERSION1,
)
_ABBREVIATION = regex.compile(
    r"\b(?:\p{Lu}|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|No|vs|etc|e\.g|i\.e|c|ca|z|bzw|Nr|т|д)\.\s*$"
)
_NEAR = 16
"""How many characters before the end of a sentence are searched for an abbreviation."""


def sentences(text: str) -> list[str]:
    """The sentences of a text, unchanged, in order."""
    ends = [match.end() for match in _END.finditer(text) if match["next"] is None or _ends(text, match)]
    parts = [text[a:b].strip() for a, b in pairwise([0, *ends, len(text)])]
    return [part for part in parts if part]


def _ends(text: str, match: regex.Match[str]) -> bool:
    """Whether a sign with other uses ends a sentence here."""
    after = match["next"]
    if after.islower() and not "\u10d0" <= after <= "\u10ff":  # all common Georgian letters are lower-case
        return False
    return not _ABBREVIATION.search(text[max(0, match.end() - _NEAR) : match.end()])


# Tells the language of texts, with py3langid; where that is unsure, the language is unknown.
#
# Little depends on it. Texts are split by the script of each character (:mod:`grls.data.words`). The language
# only selects function words and a stemmer, and how Turkish writes its i.


STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian",
    "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Language code (ISO 639-1) -> the name of its Snowball stemmer."""

_SAMPLE, _LONGEST = 500, 400
"""How many texts are read, and how many characters of each."""

_SURE = 0.5
"""The least probability of a language. Lists of names and code stay below it in all languages."""


def guess(texts: Iterable[str]) -> str | None:
    """The code (ISO 639-1) of the language of the first texts; None: unknown.

    Another language than English has consequences, so both halves of a text in Latin letters must be in it:
    one foreign title among English ones is not enough.
    """
    sample = [text[:_LONGEST].lower() for text in islice(texts, _SAMPLE)]
    code, probability = _likeliest(sample)
    if probability < _SURE:
        return None
    halves: tuple[list[str], ...] = ()
    if code != "en" and len(sample) > 1 and any("a" <= letter <= "z" for text in sample for letter in text):
        halves = (sample[::2], sample[1::2])
    return code if all(_likeliest(half)[0] == code for half in halves) else None


def _likeliest(texts: list[str]) -> tuple[str, float]:
    code, probability = _identifier().classify("\n".join(texts))
    return str(code), float(probability)


@cache
def _identifier() -> Any:
    """The detector; its model is read at the first guess, in 0.7 s."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    # Codes of three letters are varieties that are taken for their large neighbours, such as Nigerian Pidgin
    # for English.
    identifier.set_languages([code for code in dict.fromkeys(identifier.nb_classes) if len(code) == 2])
    return identifier
