"""The retrieval order of a question's two gold passages, for raw files that do not say it.

HotpotQA does not list its gold titles in the order of retrieval. The first hop is the passage that leads to
the other one. The rules below are tried in turn, and the first rule that prefers one passage decides:

========== ===========================================================================================
``answer`` only one passage holds the answer: this passage is last (the convention of multi-hop dense
           retrieval, arXiv 2009.12756); for releases that have answers
``link``   only one passage mentions the title of the other: this passage is first
``named``  the question names the title of only one passage: this passage is first
``words``  the question shares more words with one title than with the other: its passage is first
========== ===========================================================================================

Titles are compared in lower case, without punctuation and without parentheses at the end ("Ghost Rider
(Suicide song)" is "ghost rider"). If no rule decides, or in a comparison question, neither passage leads to
the other: any order is right, and the query's metadata say ``any_order: true``.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from data_prep.common import holds, plain_words

COMPARISON = "comparison"
UNDECIDED = "undecided"

_DETAIL = re.compile(r"\s*\([^()]*\)\s*$")


class Hop(NamedTuple):
    """The facts about a gold passage that the rules need, without its text.

    Attributes:
        title: Its title as the raw file writes it.
        answers: Whether its text holds the answer.
        links: Whether its text mentions the title of another gold passage.
    """

    title: str
    answers: bool = False
    links: bool = False


class Order(NamedTuple):
    """Gold passages in retrieval order, and the rule that decided."""

    hops: tuple[Hop, ...]
    rule: str

    def metadata(self, kind: str) -> dict[str, Any]:
        """The metadata of the query about the order; ``kind`` is the type of the question."""
        if self.rule in (COMPARISON, UNDECIDED):
            return {"type": kind, "any_order": True}
        return {"type": kind, "order": self.rule}


def read(title: str, text: str, titles: Sequence[str], answer: str = "") -> Hop:
    """Read a gold passage; ``titles`` are those of all gold passages of the question."""
    links = any(holds(text, bare_title(other)) for other in titles if other != title)
    return Hop(title, holds(text, answer), links)


def order(question: str, hops: Sequence[Hop], kind: str) -> Order:
    """The retrieval order of a question's gold passages.

    Args:
        question: The text of the question.
        hops: The gold passages, in the order of the raw file.
        kind: ``comparison``, or the raw file's name for a question with a bridge.
    """
    if kind == COMPARISON or len(hops) != 2:
        return Order(tuple(hops), COMPARISON if kind == COMPARISON else UNDECIDED)
    first, second = hops
    words = _words(question)
    rules: dict[str, Callable[[Hop], int]] = {
        "answer": lambda hop: -hop.answers,
        "link": lambda hop: hop.links,
        "named": lambda hop: holds(question, bare_title(hop.title)),
        "words": lambda hop: len(_words(hop.title) & words),
    }
    for name, score in rules.items():
        ahead = score(first) - score(second)
        if ahead:
            return Order((first, second) if ahead > 0 else (second, first), name)
    return Order((first, second), UNDECIDED)


def bare_title(title: str) -> str:
    """A title without HTML entities and without parentheses at its end."""
    return _DETAIL.sub("", html.unescape(title)) or title


def describe(rules: Counter[str]) -> str:
    """A line for the statistics: number of queries that each rule has ordered."""
    counts = ", ".join(f"{count:,} {rule}" for rule, count in rules.most_common())
    return f"{'order of the hops':<20} {counts}"


def _words(text: str) -> set[str]:
    return set(plain_words(bare_title(text)).split())
