"""Splits texts into sentences, in all scripts.

Signs that only end sentences (``。！？।؟።`` and others: Unicode's ``STerm`` beyond ASCII) follow UAX 29,
rules SB8a to SB11: the sentence includes closing brackets and quotes after the sign, and it does not end if a
comma or a similar sign follows. So do the signs of that use that ``STerm`` lacks: shad (Tibetan), sof pasuq
(Hebrew), the closing signs of Thai, Khmer, Sinhala and Coptic, and the Greek question mark. The full stop,
``!``, ``?``, ``…`` and the Greek ``;`` have other uses, too. They end a sentence only if a space follows
(none is needed between characters of unspaced scripts), no lower-case letter comes next, and no abbreviation
comes before. Most texts in Thai and Lao have no sign that ends a sentence, so such a text is one sentence.
"""

from __future__ import annotations

from itertools import pairwise

import regex

from grls.data.words import UNSPACED

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
    ends = []
    for match in _END.finditer(text):
        end, after = match.end(), match["next"]
        if after is not None:  # the sign has other uses, too
            # All common Georgian letters are lower-case.
            if after.islower() and not "\u10d0" <= after <= "\u10ff":
                continue
            if _ABBREVIATION.search(text[max(0, end - _NEAR) : end]):
                continue
        ends.append(end)
    parts = [text[a:b].strip() for a, b in pairwise([0, *ends, len(text)])]
    return [part for part in parts if part]
