"""What of a passage stands beside a question as evidence: its title, and the sentences nearest to it.

A hop reads the question and every passage found so far. Whole passages make such inputs long and drown the
question; what the next hop needs is mostly in one or two sentences. The first sentence says what a passage is
about, so it is always kept. Another one counts the more, the rarer its words that stand in the question, too,
are in the passage: with S sentences, of which S_w hold the word w,

    score(sentence) = sum over the words w that sentence and question share of log((S + 1) / S_w).

Words are compared by their first six letters, without case. The module knows no corpus and no tokenizer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.data.words import count, pieces, stem_key


def excerpt(question: str, passage: Passage, words: int) -> Passage:
    """A passage as evidence of a question: its title, and at most so many words of its text.

    Args:
        question: What is asked.
        passage: The passage.
        words: Most words of the text; 0: the whole text. The title does not count.

    Returns:
        The passage with the first sentence and those nearest to the question, in their order, as many as
        there is room for. A first sentence that is longer is cut.
    """
    if not words or count(passage.text) <= words:
        return passage
    parts = sentences(passage.text)
    scores = _scores(question, parts)
    kept, room = [0], words - count(parts[0])
    for place in sorted(range(1, len(parts)), key=lambda place: -scores[place]):
        length = count(parts[place])
        if scores[place] > 0 and length <= room:
            kept.append(place)
            room -= length
    return passage._replace(text=_cut(" ".join(parts[place] for place in sorted(kept)), words))


def _scores(question: str, parts: Sequence[str]) -> list[float]:
    asked = {stem_key(word) for word in pieces(question)} - {""}
    held = [{stem_key(word) for word in pieces(part)} & asked for part in parts]
    holders = Counter(word for words in held for word in words)
    return [sum(math.log((len(parts) + 1) / holders[word]) for word in words) for words in held]


def _cut(text: str, words: int) -> str:
    """The first words of a text."""
    return "".join(pieces(text)[:words]).strip() if count(text) > words else text
