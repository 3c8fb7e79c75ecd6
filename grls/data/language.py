"""Guesses the language of texts: by their script and, in Latin script, by their function words.

Little depends on the guess. Texts are split by the script of each character (:mod:`grls.data.words`). The
language only selects function words and a stemmer, and how Turkish writes its i.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import regex

STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish",
    "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian",
    "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch", "no": "norwegian", "pl": "polish",
    "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil",
    "tr": "turkish", "yi": "yiddish",
}  # fmt: skip
"""Language code (ISO 639-1) -> the name of its Snowball stemmer."""

_SCRIPTS = {
    "Arabic": "ar", "Hebrew": "he", "Greek": "el", "Cyrillic": "ru", "Devanagari": "hi", "Bengali": "bn",
    "Tamil": "ta", "Telugu": "te", "Thai": "th", "Lao": "lo", "Khmer": "km", "Myanmar": "my", "Tibetan": "bo",
    "Hangul": "ko", "Armenian": "hy", "Georgian": "ka", "Ethiopic": "am",
}  # fmt: skip
_LETTERS = regex.compile(
    "|".join(rf"(?P<{name}>\p{{Script={name}}}+)" for name in (*_SCRIPTS, "Latin", "Han"))
    + r"|(?P<Kana>[\p{Script=Hiragana}\p{Script=Katakana}]+)"
)
_OTHERS = {
    "ar": (("fa", regex.compile("[پچژگکی]")), ("ur", regex.compile("[ٹڈڑےں]"))),
    "ru": (("uk", regex.compile("[іїєґ]")),),
    "hi": (("ne", regex.compile(r"\b(?:छ|हो|गरे|भएको)\b")),),
}
"""Code of the most common language of a script -> other languages with letters that only they have."""

_COMMON = {
    "en": "the of and to is that for it was with as are this be by from which has have not or what who how",
    "de": "der die und das ist nicht ein eine den dem mit von auf im sich des für zu wird wie welche wo",
    "nl": "het een van en niet op zijn voor met dat wordt aan bij ook naar uit wie welke wat",
    "fr": "le la les des est et une dans du que pour qui sur au aux par pas quel quelle où ce sont il elle",
    "es": "el los las una es y que por con se del su para al no más qué cuál dónde como en la de",
    "pt": "os uma não em da que para com dos das por mais ao são é qual onde como na no",
    "it": "il che di è una della per con gli sono nel alla dei le delle più dove quale come la si",
    "sv": "och är att det som på av för inte ett den till med en vad hur",
    "da": "og er at det som på af til ikke den med en et der hvad hvor",
    "no": "og er det som på av til ikke å den med en et hva hvor",
    "fi": "ja että se ovat oli mutta tai mikä joka sen kuin myös missä",
    "pl": "w z na się jest nie i że do co jak dla przez oraz gdzie",
    "cs": "se je na že v s z a do pro jako který jsou kde",
    "ro": "și în este cu pe nu din la sau care mai ce unde",
    "hu": "az és egy hogy nem van volt mi hol meg",
    "tr": "ve bir bu için ile olarak çok da ne nedir hangi var olan en nerede",
    "id": "yang dan di dengan untuk adalah ini pada itu dari tidak apa mana",
    "vi": "và của là có được cho trong các một những ở gì nào",
}  # fmt: skip
_HOLDERS = {code: frozenset(words.split()) for code, words in _COMMON.items()}
_TURKISH = regex.compile("[ığİş]")
_WORD = regex.compile(r"\w+")
_SAMPLE, _LONGEST, _SHARE = 500, 400, 0.05
"""How many texts are read, how many characters of each, and the least share of function words."""


def guess(texts: Iterable[str]) -> str | None:
    """The code of the most probable language of the first texts; None if it cannot be guessed.

    ``en`` is preferred if there are at least two thirds as many English function words as of the best
    language.
    """
    text = "\n".join(piece[:_LONGEST] for piece in islice(texts, _SAMPLE))
    if text.isascii():
        return _latin(text)
    counts: Counter[str] = Counter()
    for match in _LETTERS.finditer(text):
        counts[str(match.lastgroup)] += len(match[0])
    if not counts:
        return None
    if counts["Kana"] * 20 > counts["Han"]:  # Japanese has kana in nearly every sentence, Chinese none
        counts["Kana"] += counts.pop("Han", 0)
    script = max(counts, key=counts.__getitem__)
    if script == "Latin":
        return _latin(text)
    if script in ("Kana", "Han"):
        return "ja" if script == "Kana" else "zh"
    usual = _SCRIPTS[script]
    for code, telling in _OTHERS.get(usual, ()):
        if len(telling.findall(text)) * 100 > counts[script]:
            return code
    return usual


def _latin(text: str) -> str | None:
    words = _WORD.findall(text.lower())
    seen = Counter(words)
    counts = {code: sum(seen[word] for word in common) for code, common in _HOLDERS.items()}
    counts["tr"] += sum(count for word, count in seen.items() if _TURKISH.search(word))
    best = max(counts, key=counts.__getitem__)
    if counts["en"] * 1.5 >= counts[best]:
        best = "en"
    return best if counts[best] >= max(3, _SHARE * len(words)) else None
