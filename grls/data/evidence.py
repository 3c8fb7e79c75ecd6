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
    """An excerpt of a passage as evidence for a question, of at most ``words`` words; 0: the whole passage.

    It is the title, the first sentence and the sentences nearest to the question, in their order, as many as
    fit without the title. A first sentence that is too long is cut.
    """
    if not words or count(passage.text) <= words:
        return passage
    parts = sentences(passage.text)
    stems = {stem_key(word) for word in pieces(question)} - {""}
    shared = [{stem_key(word) for word in pieces(part)} & stems for part in parts]
    holders = Counter(stem for sentence in shared for stem in sentence)
    scores = [sum(math.log((len(parts) + 1) / holders[stem]) for stem in sentence) for sentence in shared]
    rows, room = [0], words - count(parts[0])
    for row in sorted(range(1, len(parts)), key=lambda row: -scores[row]):
        length = count(parts[row])
        if scores[row] > 0 and length <= room:
            rows.append(row)
            room -= length
    text = " ".join(parts[row] for row in sorted(rows))
    if count(text) > words:  # its longest beginning of so many words
        split = pieces(text)
        length = next(n for n in range(len(split), -1, -1) if count("".join(split[:n])) <= words)
        text = "".join(split[:length]).strip()
    return passage._replace(text=text)
