"""Excerpts of passages as evidence for a question: the title, and the sentences nearest to the question.

A hop reads the question and every passage retrieved so far. Whole passages make this input long, and the
question is a small part of it. The next hop mostly needs one or two sentences. The first sentence says what a
passage is about, so it is always kept. Other sentences are ranked by the words that they share with the
question; a word that is rare in the passage counts more. With S sentences, of which S_w hold the word w,

    score(sentence) = sum over the words w that sentence and question share of log((S + 1) / S_w).

Words are compared by their first six letters, without case. The module does not know corpora or tokenizers.
"""

from __future__ import annotations

import math
from collections import Counter

from grls.data.sentences import sentences
from grls.data.types import Passage
from grls.data.words import count, pieces, stem_key


def excerpt(question: str, passage: Passage, words: int) -> Passage:
    """An excerpt of a passage as evidence for a question: its title, and at most ``words`` words of its text.

    Args:
        question: The question.
        passage: The passage.
        words: The most words of the text, without the title; 0: the whole text.

    Returns:
        The passage with its first sentence and the sentences nearest to the question, in their order, as many
        as fit. A first sentence that is too long is cut.
    """
    if not words or count(passage.text) <= words:
        return passage
    parts = sentences(passage.text)
    asked = {stem_key(word) for word in pieces(question)} - {""}
    held = [{stem_key(word) for word in pieces(part)} & asked for part in parts]
    holders = Counter(word for shared in held for word in shared)
    scores = [sum(math.log((len(parts) + 1) / holders[word]) for word in shared) for shared in held]
    kept, room = [0], words - count(parts[0])
    for place in sorted(range(1, len(parts)), key=lambda place: -scores[place]):
        length = count(parts[place])
        if scores[place] > 0 and length <= room:
            kept.append(place)
            room -= length
    text = " ".join(parts[place] for place in sorted(kept))
    if count(text) > words:  # its longest beginning of so many words
        beginning = pieces(text)
        most = next(n for n in range(len(beginning), -1, -1) if count("".join(beginning[:n])) <= words)
        text = "".join(beginning[:most]).strip()
    return passage._replace(text=text)
