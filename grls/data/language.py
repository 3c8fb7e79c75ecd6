"""Tells the language of texts, with py3langid; where that is unsure, the language is unknown.

Little depends on it. Texts are split by the script of each character (:mod:`grls.data.words`). The language
only selects function words and a stemmer, and how Turkish writes its i.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any

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

_SURE, _SURE_LATIN = 0.5, 0.95
"""The least probability of a language, and of one in Latin letters other than English: lists of names, random
syllables and code stay below it."""


def guess(texts: Iterable[str]) -> str | None:
    """The code (ISO 639-1) of the language of the first texts; None: unknown.

    Another language than English has consequences, so both halves of a text in Latin letters must be in it:
    one foreign title among English ones is not enough.
    """
    sample = [text[:_LONGEST].lower() for text in islice(texts, _SAMPLE)]
    code, probability = _likeliest(sample)
    if probability < _SURE:
        return None
    if code == "en" or not re.search("[a-z]", "".join(sample)):
        return code
    halves = (sample[::2], sample[1::2]) if len(sample) > 1 else ()
    agree = probability >= _SURE_LATIN and all(_likeliest(half)[0] == code for half in halves)
    return code if agree else None


def _likeliest(texts: list[str]) -> tuple[str, float]:
    code, probability = _identifier().classify("\n".join(texts))
    return str(code), float(probability)


@cache
def _identifier() -> Any:
    """Its model is read at the first guess, in 0.7 s."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    # Codes of three letters are varieties that are taken for their large neighbours, such as Nigerian Pidgin
    # for English.
    identifier.set_languages([code for code in dict.fromkeys(identifier.nb_classes) if len(code) == 2])
    return identifier
