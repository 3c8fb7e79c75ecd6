"""A retriever of hops that finds what a table says."""

import math
from collections.abc import Callable, Sequence

from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.retrieve.base import Description, HopHits

SCRIPTED = Corpus.from_passages([Passage(name, f"text {name}") for name in "abcdefg"])
"""Passages a to g."""


class ScriptedHops:
    """Finds what a table says, by the passages found so far; its scores are log-probabilities.

    Args:
        table: The ids so far, joined -> passage id or DONE -> its probability.
        learned: Whether it was trained with DONE; None: it is not known.
        score: The score of a value of the table.
    """

    kind, corpus = "scripted", SCRIPTED

    def __init__(
        self,
        table: dict[str, dict[str, float]],
        learned: bool | None = True,
        score: Callable[[float], float] = math.log,
    ):
        self.table, self.learned_done, self.score = table, learned, score
        self.asked: list[str] = []

    def describe(self) -> Description:
        return Description("scripted", "log-probability")

    def fingerprint(self) -> str:
        return "scripted"

    def retrieve_hop(
        self, queries: Sequence[Query], evidence: Sequence[Sequence[Passage]], k: int, allow: object = None
    ) -> list[HopHits]:
        found = []
        for passages in evidence:
            key = "".join(passage.id for passage in passages)
            self.asked.append(key)
            row = self.table.get(key, {})
            hits = [Hit(name, self.score(value)) for name, value in row.items() if name != "DONE"]
            done = row.get("DONE")
            hits.sort(key=lambda hit: -hit.score)
            found.append(HopHits(hits[:k], None if done is None else self.score(done)))
        return found
