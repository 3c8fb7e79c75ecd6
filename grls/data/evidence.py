"""Excerpts of passages as evidence for a question: the title, and the sentences nearest to the question.

A hop reads the question and every passage retrieved so far. Whole passages make this input long, and the
next hop mostly needs one or two sentences. The first sentence says what a passage is about, so it always
stays. Other sentences are ranked by the words that they share with the question; a word that is rare in the
passage counts more. With S sentences, of which S_w hold the word w,

    score(sentence) = sum over the words w that sentence and question share of log((S + 1) / S_w).

Words are compared by their first six letters, without case.
"""

from __future__ import annotations

import math
import re
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


def part_around(question: str, text: str, most: int) -> str:
    """The part of a text nearest to a question, of at most ``most`` characters; … is left out.

    It holds the words of the question that are rarest in the text; without any it is the beginning.
    """
    text = text.strip()
    if len(text) <= most:
        return text
    stems = {stem_key(word) for word in pieces(question)} - {""}
    places = [(word.start(), stem_key(word[0])) for word in re.finditer(r"\w+", text)]
    places = [(start, stem) for start, stem in places if stem in stems][:_PLACES]
    holders = Counter(stem for _, stem in places)
    best, begin = 0.0, 0
    for row, (start, _) in enumerate(places):
        near = {stem for other, stem in places[row : row + most] if other < start + most * 3 // 4}
        worth = math.fsum(1 / holders[stem] for stem in near)
        if worth > best:
            best, begin = worth, start
    first = max(0, begin - most // 4) if begin > most // 2 else 0
    # From the beginning of a sentence or line before it, or of a word.
    ends = [match.end() for match in re.finditer(r"[.!?]\s+|\n+", text[first:begin])] if first else [0]
    first = first + (ends[-1] if ends else max(0, text[first:begin].find(" ") + 1))
    part = text[first : first + most].rstrip()
    return f"{'… ' if first else ''}{part}{'…' if first + most < len(text) else ''}"


_PLACES = 500
"""The most words of a text that are looked at."""
