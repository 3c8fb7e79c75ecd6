"""Which of a question's two gold passages is retrieved first, where the raw files do not say.

HotpotQA lists its gold titles in no order of retrieval. The first hop is the passage from which the other
one is reached, so the rules below are tried in turn, and the first that prefers one passage decides:

========== ===========================================================================================
``answer`` the answer stands in one passage alone: that one is last (the convention of multi-hop dense
           retrieval, arXiv 2009.12756); for releases that have answers
``link``   one passage mentions the other's title and is not mentioned back: it is first
``named``  the question names the title of one passage alone: it is first
``words``  the question shares more words with one title than with the other: it is first
========== ===========================================================================================

A title is compared in lower case, without signs and without what stands in parentheses at its end
("Ghost Rider (Suicide song)" is "ghost rider"). Where no rule decides, and in a comparison question,
neither passage leads to the other: any order is right, and the query's metadata say ``any_order: true``.
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
    """What the rules need to know of a gold passage; its text may be forgotten.

    Attributes:
        title: Its title as the raw file writes it.
        answers: Whether its text holds the answer.
        links: Whether its text mentions the title of another gold passage.
    """

    title: str
    answers: bool = False
    links: bool = False


class Order(NamedTuple):
    """Gold passages in retrieval order, and the rule that found it."""

    hops: tuple[Hop, ...]
    rule: str

    def metadata(self, kind: str) -> dict[str, Any]:
        """What the query's metadata say of the order; ``kind`` is the type of the question."""
        if self.rule in (COMPARISON, UNDECIDED):
            return {"type": kind, "any_order": True}
        return {"type": kind, "order": self.rule}


def read(title: str, text: str, titles: Sequence[str], answer: str = "") -> Hop:
    """Read a gold passage.

    Args:
        title: Its title.
        text: Its text.
        titles: The titles of all gold passages of the question.
        answer: The short answer; empty where unknown.
    """
    links = any(holds(text, bare_title(other)) for other in titles if other != title)
    return Hop(title, holds(text, answer), links)


def order(question: str, hops: Sequence[Hop], kind: str) -> Order:
    """The retrieval order of a question's gold passages.

    Args:
        question: Its text.
        hops: Its gold passages, in the order of the raw file.
        kind: ``comparison``, or what the raw file calls a question with a bridge.
    """
    if kind == COMPARISON or len(hops) != 2:
        return Order(tuple(hops), COMPARISON if kind == COMPARISON else UNDECIDED)
    first, second = hops
    asked = _words(question)
    rules: dict[str, Callable[[Hop], int]] = {
        "answer": lambda hop: -hop.answers,
        "link": lambda hop: hop.links,
        "named": lambda hop: holds(question, bare_title(hop.title)),
        "words": lambda hop: len(_words(hop.title) & asked),
    }
    for name, score in rules.items():
        ahead = score(first) - score(second)
        if ahead:
            return Order((first, second) if ahead > 0 else (second, first), name)
    return Order((first, second), UNDECIDED)


def bare_title(title: str) -> str:
    """A title without HTML entities and without the parenthesis at its end."""
    return _DETAIL.sub("", html.unescape(title)) or title


def describe(rules: Counter[str]) -> str:
    """A line for the statistics: how many queries each rule has put in order."""
    found = ", ".join(f"{count:,} {rule}" for rule, count in rules.most_common())
    return f"{'order of the hops':<20} {found}"


def _words(text: str) -> set[str]:
    return set(plain_words(bare_title(text)).split())
