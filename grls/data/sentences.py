"""Where sentences end, in all scripts.

Signs that end nothing but sentences (``。！？।؟።`` and others: Unicode's ``STerm`` beyond ASCII) do so as in
UAX 29, rules SB8a to SB11: together with the closing brackets and quotes behind them, unless a comma or the
like follows. The full stop, ``!``, ``?``, ``…`` and the Greek ``;``, which stand elsewhere, too, need a space
behind them (but not between characters of unspaced scripts), no lower-case letter after it, and no
abbreviation before it. Thai and Lao part sentences by no sign, so what has no other one is one sentence. The
module knows no language.
"""

from __future__ import annotations

from itertools import pairwise

import regex

from grls.data.words import UNSPACED

_ENDS = r"[\p{Sentence_Break=STerm}．｡--[!?]]"
_END = regex.compile(
    rf"(?:{_ENDS}(?<!．(?=\p{{Nd}}))[!?]*|(?<=[{UNSPACED}])[.!?](?=[{UNSPACED}]))++[\"'\p{{Pe}}\p{{Pf}}]*+\s*+(?=[^\s\p{{Sentence_Break=SContinue}}])"
    r"|(?:[.!?…]|(?<=\p{Script=Greek}[\p{Pe}\p{Pf}]?);)[\"')\]”’»›“]*(?:\s»)?\s+"
    r"(?=(?:«\s|[«„‹¿¡])*[\"'(\[“‘「]?[¿¡]?(?P<next>\w))",
    regex.VERSION1,
)
_ABBREVIATION = regex.compile(
    r"\b(?:\p{Lu}|Mr|Mrs|Ms|Dr|St|Jr|Sr|Prof|Gen|Col|No|vs|etc|e\.g|i\.e|c|ca|z|bzw|Nr|т|д)\.\s*$"
)
_NEAR = 16
"""Characters before an end that an abbreviation may have."""


def sentences(text: str) -> list[str]:
    """The sentences of a text, as they stand in it."""
    ends = [match.end() for match in _END.finditer(text) if match["next"] is None or _ends(text, match)]
    parts = [text[a:b].strip() for a, b in pairwise([0, *ends, len(text)])]
    return [part for part in parts if part]


def _ends(text: str, match: regex.Match[str]) -> bool:
    """Whether a sign that may stand within a sentence ends one."""
    after = match["next"]
    if after.islower() and not "\u10d0" <= after <= "\u10ff":  # Georgian's usual letters count as lower-case
        return False
    return not _ABBREVIATION.search(text[max(0, match.end() - _NEAR) : match.end()])
