"""Where rankings end: fitted on the rankings of development queries."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from grls.evaluation.metrics.known_number import known_number
from grls.evaluation.metrics.set_f1 import set_f1
from grls.retrieve.fusion.cut import SetSize
from grls.tune.step import Step, TuneChoice, Tuning, as_hits, as_pairs, tell_price


def tune_cut(tuning: Tuning) -> TuneChoice:
    """Fit the cut; set F1 before is that of the whole rankings."""
    spec, dev = tuning.spec, tuning.dev
    depth = int(spec["depth"])

    def search() -> list[Any]:
        opened = tuning.open_member(spec["retriever"], "retriever")
        return [as_pairs(hits) for hits in opened.retrieve(dev.queries, depth)]

    kept = tuning.journal.measured({"step": "cut", "depth": depth, "named": spec["retriever"]}, search)
    rankings = [as_hits(pairs) for pairs in kept]
    gold = [set(ids) for ids in dev.gold]
    size = SetSize.fit(rankings, dev.gold)
    before = set_f1([{hit.id for hit in hits} for hits in rankings], gold)["f1"]
    after = set_f1([{hit.id for hit in size.cut(hits).hits} for hits in rankings], gold)["f1"]
    known = known_number([[hit.id for hit in hits] for hits in rankings], gold)["f1_known_number"]
    tell_price(known, after, "the cut")
    mean = sum(len(size.cut(hits).hits) for hits in rankings) / len(rankings)
    return TuneChoice(
        {"size": asdict(size.record())}, "set F1", before, after, f"{mean:.1f} passages a query"
    )


CUT = Step("cut", tune_cut)
