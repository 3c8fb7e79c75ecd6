"""A retriever of hops that finds what a table says."""

import math
from collections.abc import Sequence

from grls.data.corpus import Corpus
from grls.data.types import Hit, Passage, Query
from grls.retrieve.base import Description, HopHits

SCRIPTED = Corpus.from_passages([Passage(name, f"text {name}") for name in "abcdefg"])
"""Passages a to g."""


class ScriptedHops:
    """Finds what a table says, by the passages found so far; its scores are log-probabilities.

    Args:
        table: The ids so far, joined -> passage id or DONE -> its probability.
        learned: Whether it was trained with DONE.
    """

    kind, corpus = "scripted", SCRIPTED

    def __init__(self, table: dict[str, dict[str, float]], learned: bool = True):
        self.table, self.learned_done = table, learned
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
            hits = [Hit(name, math.log(share)) for name, share in row.items() if name != "DONE"]
            done = row.get("DONE")
            found.append(HopHits(hits[:k], None if done is None else math.log(done)))
        return found
