"""Worked examples: what was retrieved for a query, beside what should have been.

For a person to read. It shows queries where retrieval did well and where it did not, in turn.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from grls.corpus import Corpus, Qrels, read_split
from grls.evaluation.graph import graph_errors, problem_of
from grls.evaluation.metrics.set_f1 import set_scores
from grls.evaluation.results import Results, find_passages, load_results
from grls.types import Hit, Query

_SHOWN = 5


def format_examples(run: str | Path, data: str | Path, split: str, corpus: Corpus, count: int) -> str:
    """``count`` queries with their hits, good and bad ones in turn, in the order of the queries.

    Args:
        run: JSONL or TREC run.
        data: Data set folder.
        split: Which qrels.
        corpus: The corpus of ``data``.
        count: Number of queries.
    """
    queries, qrels = read_split(data, split, corpus)
    results = load_results(run)
    views = [_Example(query, results, qrels, corpus) for query in queries]
    good, bad = [v for v in views if v.good], [v for v in views if not v.good]
    mixed = [v for pair in zip_longest(good, bad) for v in pair if v is not None]
    return "\n\n".join(view.text() for view in mixed[:count])


class _Example:
    """One query, what was retrieved for it, and whether that was good."""

    def __init__(self, query: Query, results: Results, qrels: Qrels, corpus: Corpus):
        self.query = query
        self.chain = results.chains.get(query.id)
        self.hits: Sequence[Hit] = self.chain.hits if self.chain else results.rankings.get(query.id, [])
        self.gold = list(query.evidence) or [p for p, grade in qrels[query.id].items() if grade > 0]
        self.corpus = corpus
        self.problems: list[str] | None = None
        if self.chain is not None:
            self._check_graph()
        self.good = not self.problems if self.problems is not None else self._found_all()

    def _check_graph(self) -> None:
        """The failed graph checks, where the query states a RuleTaker-Open problem."""
        metadata = json.loads(self.query.metadata)
        texts = self._texts([*metadata.get("start", []), *(hit.id for hit in self.hits)])
        problem = problem_of(metadata, texts)
        if problem is not None:
            errors = graph_errors(problem, [texts[hit.id] for hit in self.hits])
            self.problems = [name for name, failed in errors._asdict().items() if failed]

    def _found_all(self) -> bool:
        return set_scores([hit.id for hit in self.hits], self.gold).recall == 1.0

    def _texts(self, ids: Sequence[str]) -> dict[str, str]:
        return {i: passage.text for i, passage in find_passages(self.corpus, ids).items()}

    def text(self) -> str:
        shown = self.hits if self.chain is not None else self.hits[:_SHOWN]
        texts = self._texts([*(hit.id for hit in shown), *self.gold])
        lines = [f"query {self.query.id}: {self.query.text}"]
        for n, hit in enumerate(shown, 1):
            mark = "*" if hit.id in self.gold else " "
            lines.append(f"  {n}. {mark} {texts[hit.id]}  [{hit.score:.2f}]")
        if self.chain is not None:
            lines.append("  DONE" if self.chain.done else "  (stopped by the hop limit, DONE missing)")
        lines += [
            f"  gold: {texts[passage]}" for passage in self.gold if passage not in {h.id for h in shown}
        ]
        if self.problems is not None:
            failed = ", ".join(name.replace("_", " ") for name in self.problems)
            lines.append(f"  => {'proof valid' if not self.problems else f'proof fails: {failed}'}")
        else:
            lines.append(f"  => {'all gold passages found' if self.good else 'not all gold passages found'}")
        return "\n".join(lines)
