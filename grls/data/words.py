"""How texts are split into the words that are counted: one rule for BM25, TF-IDF, neighbours and the like.

A text is brought to one form of writing first (:func:`fold`): Unicode NFKC and case folding, without what a
script leaves out at will (vowel points, Greek accents, variants of Arabic letters), with one set of digits.
Accents of Latin letters stay, for they part words (Spanish ``ano`` and ``año``).
Where white space parts words, a word is a run of letters, marks and digits. Where it does not (Han, kana,
Thai, Lao, Khmer, Burmese, Tibetan) or parts longer units (Hangul), the words are pairs of neighbouring
characters, as in Lucene's ``CJKAnalyzer``, and a character that stands alone is a word. The script decides,
character by character, so a text may be in several. The language, which names function words and a stemmer,
is an :class:`Analyzer`'s. The words of ASCII texts are the runs of at least two letters, digits or ``_``,
lower-cased.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import regex
import Stemmer

from grls.data.language import STEMMERS, guess
from grls.errors import ConfigError

log = logging.getLogger(__name__)

UNSPACED = (
    r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Script=Bopomofo}\p{Script=Thai}"
    r"\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}ー"
)
"""The scripts whose words no white space parts: the inside of a character class of ``regex``."""

_UNSPACED = regex.compile(f"[{UNSPACED}]")
_PART = regex.compile(
    rf"(?P<unspaced>(?:(?=\w)[{UNSPACED}][\p{{M}}\u200c\u200d]*)+)|(?P<word>(?:(?![{UNSPACED}])\w)+)"
)
_CLUSTER = regex.compile(r"\w[\p{M}\u200c\u200d]*")
_WORD = regex.compile(r"[\w--_]+", regex.VERSION1)
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
"""Function words by language: bm25s's lists. Pairs of characters are no words, so unspaced scripts
have none."""

_TOLD_OF = 200
"""Texts that a language is guessed from are the first of the corpus and as many spread over it."""


@dataclass(frozen=True)
class Analyzer:
    """How texts become words; one and the same for passages and queries.

    Args:
        language: ``auto`` guesses the corpus's; a code as ``en``, ``de``, ``tr``, ``zh`` says it; ``none``
            leaves out nothing and stems nothing. Texts are split by their scripts, whatever the language.
        stem: Words are cut to their stems (Snowball's stemmer of the language).
        stop_words: Function words of the language are left out (English ones where it has no list).
    """

    language: str = "auto"
    stem: bool = False
    stop_words: bool = True

    def over(self, texts: Sequence[str]) -> Analyzer:
        """The same with a language, guessed from some texts where none is given (and told).

        Raises:
            ConfigError: The language is no code, or has no stemmer and words are to be stemmed.
        """
        found = self
        if self.language == "auto":
            guessed = _guessed(texts)
            if guessed is None and self.stem:
                raise ConfigError("the language of the corpus cannot be guessed: give --analyzer.language.")
            found = replace(self, language=guessed or "en")
            if found.language != "en":
                log.warning(
                    "the corpus seems to be in the language %r; --analyzer.language says another.",
                    found.language,
                )
        found.check()
        return found

    @classmethod
    def guessed(cls, texts: Sequence[str]) -> Analyzer:
        """The usual one, with the language that is guessed from some texts; nothing is told of it."""
        return cls(_guessed(texts) or "en")

    def check(self) -> None:
        """Refuse what cannot be.

        Raises:
            ConfigError: As of :meth:`over`.
        """
        # Not in the constructor: jsonargparse would bury our error in one of its own.
        if not regex.fullmatch(r"auto|none|[a-z]{2,3}", self.language):
            raise ConfigError(
                f"expected the language auto, none or a code as en, de, zh; got {self.language!r}."
            )
        if self.stem and self.language != "auto":
            _stemmer(self.language)

    def settings(self) -> dict[str, str | bool]:
        """What differs from English words without stemming, for records."""
        usual = {"language": ("auto", "en"), "stem": (False,), "stop_words": (True,)}
        return {name: value for name, value in vars(self).items() if value not in usual[name]}

    def words(self, text: str) -> list[str]:
        """The words of a query: pairs of characters where no white space parts words."""
        return list(self._all(text, False))

    def indexed(self, text: str) -> list[str]:
        """The words of a passage: those of a query, and each character of the pairs beside them.

        So that a query of one character finds what holds it.
        """
        return list(self._all(text, True))

    def content(self, text: str, least: int = 2) -> dict[str, str]:
        """The words that say something, in order: each once, and as the text writes it first.

        A longer list of function words is left out than for BM25.

        Args:
            text: The text.
            least: Letters of a word, at least.
        """
        stop = _content_stop(self.language)
        found: dict[str, str] = {}
        for word in _split(unicodedata.normalize("NFC", text), False, least):
            folded = fold(word, self._turkish)
            if folded not in stop:
                found.setdefault(folded, word)
        return found

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
"""The analyzer that commands have for a default."""


def fold(text: str, turkish: bool = False) -> str:
    """One form of writing: what differs in it alone is the same.

    Args:
        text: The text.
        turkish: ``I`` is the capital of ``ı``; otherwise ``ı`` is taken for ``i``.
    """
    if text.isascii() and not turkish:
        return text.lower()
    return _spelled(_cased(text, turkish))


def plain_words(text: str) -> str:
    """The folded words of a text, a space between; characters of unspaced scripts are words."""
    found: list[str] = []
    for match in _WORD.finditer(fold(text)):
        found += _pieces(match[0])
    return " ".join(found)


def pieces(text: str) -> list[str]:
    """A text in the smallest parts that may begin a span: words, and characters of unspaced scripts.

    Each with its punctuation, and with a space before it where white space parts it from the one before; so
    parts in a row, joined, are a part of the text (white space made one space).
    """
    found: list[str] = []
    for word in text.split():
        parts = _pieces(word)
        found += [f" {parts[0]}", *parts[1:]]
    return found


def count(text: str) -> int:
    """About how many words a text has: two characters of an unspaced script are one."""
    if text.isascii():
        return len(text.split())
    total = 0
    for word in text.split():
        runs = [len(_CLUSTER.findall(m[0])) for m in _PART.finditer(word) if m.lastgroup == "unspaced"]
        total += sum((run + 1) // 2 for run in runs) + (not runs)
    return total


def _guessed(texts: Sequence[str]) -> str | None:
    step = max(1, len(texts) // _TOLD_OF)
    return guess([*texts[:_TOLD_OF], *texts[_TOLD_OF::step]])


def nothing_found(asked: int, empty: int, source: str) -> str | None:
    """What to say where most queries share no word with the corpus; None where it is not so."""
    if empty * 2 <= asked:
        return None
    return (
        f"{empty} of {asked} queries share no word with {source}, so BM25 finds nothing for them: are they "
        "in one language? (--analyzer.language, --analyzer.stem)"
    )


def _pieces(word: str) -> list[str]:
    """A word that holds no white space, parted before each character of an unspaced script."""
    if word.isascii():
        return [word]
    starts = {match.start() for match in _UNSPACED.finditer(word) if not _mark(match[0])}
    starts |= {m.start() for m in _PART.finditer(word) if m.lastgroup == "word" and _follows(word, m.start())}
    cuts = [0, *sorted({_opened(word, start) for start in starts} - {0}), len(word)]
    return [word[a:b] for a, b in pairwise(cuts)]


def _opened(word: str, place: int) -> int:
    """Where what begins at a place begins with the brackets and quotes that open it."""
    while place and unicodedata.category(word[place - 1]) in ("Ps", "Pi"):
        place -= 1
    return place


def _mark(character: str) -> bool:
    return unicodedata.category(character)[0] in "MPSC"


def _follows(word: str, place: int) -> bool:
    """Whether a character of an unspaced script stands somewhere before a place."""
    return _UNSPACED.search(word, 0, place) is not None


def _split(text: str, singles: bool, least: int = 2) -> Iterator[str]:
    for match in _PART.finditer(text):
        if match.lastgroup == "word":
            if len(match[0]) >= least:
                yield match[0]
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
    """Character -> how it is counted: without points and accents that may be left out, digits as ASCII."""
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
def _content_stop(language: str) -> frozenset[str]:
    english = frozenset(_listed("EN_PLUS"))
    return english | _folded(_listed(_LISTS[language]), language) if language in _LISTS else english


def _listed(name: str) -> Iterable[str]:
    from bm25s import stopwords  # brings scipy

    found: Iterable[str] = getattr(stopwords, f"STOPWORDS_{name}")
    return found


def _folded(words: Iterable[str], language: str) -> frozenset[str]:
    return frozenset(fold(word, language in ("tr", "az")) for word in words)


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    name = STEMMERS.get(language)
    if name is None or name not in Stemmer.algorithms():
        raise ConfigError(
            f"there is no stemmer for the language {language!r}; leave --analyzer.stem out, or give "
            f"--analyzer.language one of {', '.join(sorted(STEMMERS))}."
        )
    stem: Callable[[str], str] = Stemmer.Stemmer(name).stemWord
    return stem
