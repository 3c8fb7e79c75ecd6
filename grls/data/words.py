"""Splits texts into the words that BM25 and TF-IDF count; both use this one rule.

First a text is folded (:func:`fold`): Unicode NFKC and case folding, without optional marks (vowel points,
Greek accents, variants of Arabic letters), and with one set of digits. Accents of Latin letters stay, because
they distinguish words (Spanish ``ano`` and ``año``).

If a script puts spaces between words, a word is a run of letters, marks and digits. Other scripts have no
spaces (Han, kana, Thai, Lao, Khmer, Burmese, Tibetan, …) or put them between longer units (Hangul). Their
words are pairs of neighbouring characters, as in Lucene's ``CJKAnalyzer``, and a single character is a word.
The script is decided for each character, so a text may mix scripts. A symbol beyond ASCII (an emoji, ``€``)
is a word; so is a word with the signs at its end (``c++`` and ``c``). A letter that an apostrophe
joins to a word (the s of ``owl's``) is none. The language selects function words and a stemmer
(:class:`Analyzer`).
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Protocol

import regex
import Stemmer

from grls.data.language import STEMMERS, guess
from grls.data.types import Passage
from grls.errors import ConfigError, Option
from grls.io.arguments import options
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
_SIGNS = regex.compile(r"[+#]++(?!\w)|\+\+(?=\d)")
"""Signs at the end of a word that belong to it, as in ``C++``, ``C++17`` and ``C#``."""
_JOINED = regex.compile(r"(?<=\w['’])\w\b|\b\w(?=['’]\w)")
"""A letter that an apostrophe joins to a word, as in ``owl's`` and ``l'eau``."""
_CLUSTER = regex.compile(r"\w[\p{M}\u200c\u200d]*")
_WORD = regex.compile(r"[\w--_]+", regex.VERSION1)
_ASCII_WORDS = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(128))
"""Each ASCII character as :func:`plain_words` reads it."""
_REPEATED = 40
"""Shorter parts of texts are often repeated, so their words are cached."""
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

_TURKIC = ("tr", "az")
"""The languages in which ``I`` is the capital of ``ı``."""

_SAMPLED = 200
"""The language is guessed from this many passages at the start of the corpus, and as many spread over it."""

_COMMANDS = "`grls index bm25`, `grls retrieve bm25`, grls.BM25"
_LANGUAGE = Option("analyzer.language", python="analyzer=Analyzer(language=…)")
_STEM = Option("analyzer.stem", python="analyzer=Analyzer(stem=…)")


class PassagesByNumber(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Passage: ...


@options("analyzer")
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

    def __post_init__(self) -> None:
        if not regex.fullmatch(r"auto|none|[a-z]{2,3}", self.language):
            raise ConfigError(
                f"expected the language auto, none or a code such as en, de, zh; got {self.language!r}."
            )

    def of(self, passages: PassagesByNumber) -> Analyzer:
        """The same analyzer with a language; ``auto``: guessed from passages; warns if not English."""
        analyzer = self
        if analyzer.language == "auto":
            guessed = _guessed(passages)
            if guessed is None and analyzer.stem:
                raise ConfigError(f"the language of the corpus cannot be guessed: give {_LANGUAGE}.")
            analyzer = replace(analyzer, language=guessed or "en")
            if analyzer.language != "en":
                log.warning(
                    "the corpus seems to be in the language %r; if it is another, say so where BM25 is made "
                    "(%s): %s.",
                    analyzer.language,
                    _COMMANDS,
                    _LANGUAGE,
                )
        if analyzer.stem:
            _stemmer(analyzer.language)
        return analyzer

    @classmethod
    def guessed(cls, passages: PassagesByNumber) -> Analyzer:
        """The default analyzer with a guessed language, without a warning."""
        return cls(_guessed(passages) or "en")

    def in_english(self) -> Analyzer:
        """The same analyzer with English in place of ``auto``."""
        return replace(self, language="en") if self.language == "auto" else self

    def settings(self) -> dict[str, str | bool]:
        """Those that differ from English without stemming, for manifests."""
        usual = {"language": ("auto", "en"), "stem": (False,), "stop_words": (True,)}
        return {name: value for name, value in vars(self).items() if value not in usual[name]}

    def content(self, text: str) -> dict[str, str]:
        """The content words of a text in order, each once: folded word -> the word as first written.

        The list of function words that are left out is longer than for BM25.
        """
        stop = function_words(self.language)
        content: dict[str, str] = {}
        for word in _split(unicodedata.normalize("NFC", text), False):
            folded = fold(word, self.language in _TURKIC)
            if _WORD.fullmatch(word) and folded not in stop:
                content.setdefault(folded, word)
        return content

    def words(self, text: str, singles: bool = False) -> list[str]:
        """The words of a text; in unspaced scripts, pairs of characters.

        ``singles``: single characters as well, as of a passage, so that a query of one character finds it.
        """
        stop = _stop(self.language) if self.stop_words else frozenset()
        turkic = self.language in _TURKIC
        stem = _stemmer(self.language) if self.stem else None
        words: list[str] = []
        for word in _split(_cased(text, turkic) if stem else fold(text, turkic), singles):
            folded = _spelled(word) if stem else word
            if folded not in stop:
                words.append(_spelled(stem(word)) if stem and not _UNSPACED.match(word) else folded)
        return words


USUAL = Analyzer()
"""The default analyzer of commands."""


def fold(text: str, turkish: bool = False) -> str:
    """A text in one normal form, so that variants of case, optional marks and digits become equal.

    ``turkish``: ``I`` is the capital of ``ı``; otherwise ``ı`` becomes ``i``.
    """
    if text.isascii() and not turkish:
        return text.lower()
    return _spelled(_cased(text, turkish))


def is_short(word: str) -> bool:
    """Whether a word of an analyzer is a letter (not of an unspaced script), a symbol, or has signs."""
    return (len(word) == 1 and not _UNSPACED.match(word)) or not _WRITTEN.fullmatch(word)


def stem_key(word: str) -> str:
    """The first six letters of a word, folded and without signs; words of one stem mostly share them."""
    return str(_SIGN.sub("", fold(word)))[:_STEM_LETTERS]


def plain_words(text: str) -> str:
    """The folded words of a text, joined by spaces; each character of an unspaced script is a word."""
    if text.isascii():
        return " ".join(text.translate(_ASCII_WORDS).split())
    words = (
        _plain_token(token) if len(token) < _REPEATED else _plain_token.__wrapped__(token)
        for token in text.split()
    )
    return " ".join(filter(None, words))


@lru_cache(2**15)
def _plain_token(token: str) -> str:
    if token.isascii():
        return plain_words(token)
    folded = fold(token)
    words = _WORD.findall(folded)
    if _UNSPACED.search(folded):
        words = [piece for word in words for piece in _pieces(word)]
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
        if word.isascii():
            total += 1
            continue
        runs = [len(_CLUSTER.findall(m[0])) for m in _PART.finditer(word) if m.lastgroup == "unspaced"]
        total += sum((run + 1) // 2 for run in runs) + (not runs)
    return total


def _guessed(passages: PassagesByNumber) -> str | None:
    step = max(1, len(passages) // _SAMPLED)
    numbers = (*range(min(_SAMPLED, len(passages))), *range(_SAMPLED, len(passages), step))
    return guess(f"{passage.title} {passage.text}" for passage in map(passages.__getitem__, numbers))


def nothing_found(queries: int, empty: int, source: str) -> str:
    corpus = "the corpus" if is_temporary(source) else source
    return (
        f"{counted(empty, 'query shares', 'queries share')} no word with {corpus}, of {queries:,} asked: "
        "BM25 finds nothing there. Are queries and passages in one language? Language and stemming are "
        f"chosen where BM25 is made ({_COMMANDS}): {_LANGUAGE!s} and {_STEM!s}."
    )


def _pieces(word: str) -> list[str]:
    if word.isascii():
        return [word]
    category = unicodedata.category
    starts = {m.start() for m in _UNSPACED.finditer(word) if category(m[0])[0] not in "MPSC"}
    for match in _PART.finditer(word):
        if match.lastgroup == "word" and _UNSPACED.search(word, 0, match.start()):
            starts.add(match.start())
    cuts = {0, len(word)}
    for start in starts:
        while start and category(word[start - 1]) in ("Ps", "Pi"):  # opening brackets and quotes
            start -= 1
        cuts.add(start)
    return [word[a:b] for a, b in pairwise(sorted(cuts))]


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
    return _listed(_LISTS.get(language, "EN"), language)


@cache
def function_words(language: str) -> frozenset[str]:
    """The function words of English and of a language, folded; of English alone if it has no list."""
    english = _listed("EN_PLUS")
    return english | _listed(_LISTS[language], language) if language in _LISTS else english


def _listed(name: str, language: str = "en") -> frozenset[str]:
    """The words of a list of bm25s, folded as those of a language."""
    from bm25s import stopwords  # imports scipy

    words: Iterable[str] = getattr(stopwords, f"STOPWORDS_{name}")
    return frozenset(fold(word, language in _TURKIC) for word in words)


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    name = STEMMERS.get(language)
    if name is None or name not in Stemmer.algorithms():
        raise ConfigError(
            f"there is no stemmer for the language {language!r}; leave {_STEM} out, or "
            f"set {_LANGUAGE} to one of {', '.join(sorted(STEMMERS))}."
        )
    stem: Callable[[str], str] = Stemmer.Stemmer(name).stemWord
    return stem
