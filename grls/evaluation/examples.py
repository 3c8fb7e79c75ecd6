"""Worked examples for people: retrieved beside gold passages, queries with good and bad results in turn."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

from grls.data.types import Hit, Query
from grls.evaluation.evaluate import Judged, stated_problems
from grls.evaluation.graph import graph_errors
from grls.io.progress import counted, visible
from grls.runs.results import known_passages, passage_texts
from grls.runs.trec import without_done

_SHOWN = 5
_WIDTH = 120  # characters of a passage


class _Example(NamedTuple):
    """A query and its retrieved passages, best first or in hop order; ``done`` is None for a ranking.

    ``problems``: the failed graph checks; None if there is no proof to check.
    """

    query: Query
    hits: list[Hit]
    gold: list[str]
    done: bool | None
    problems: list[str] | None = None

    @property
    def good(self) -> bool:
        if self.problems is not None:
            return not self.problems
        return bool(self.gold) and set(self.gold) <= {hit.id for hit in self.hits}

    @property
    def shown(self) -> list[Hit]:
        return self.hits[:_SHOWN] if self.done is None else self.hits


def format_examples(judged: Judged, count: int) -> str:
    """``count`` queries with their hits, good and bad results in turn.

    A ranking is shown down to rank 5; gold passages below are listed with rank and id.
    """
    run, corpus, examples = judged.run, judged.corpus, []
    for query in (query for query in judged.queries if query.id in judged.gold):
        chain = run.chains.get(query.id) if run.steps == "dynamic" else None
        hits = without_done(chain.hits if chain else run.rankings.get(query.id, []))
        examples.append(_Example(query, hits, judged.gold[query.id], chain.done if chain else None))
    if run.in_hop_order:  # failed graph checks, for chains of queries that state a problem
        problems = stated_problems([e.query for e in examples if e.done is not None], corpus)
        read = [hit.id for e in examples if e.query.id in problems for hit in e.hits]
        words = passage_texts(corpus, read)
        for n, example in enumerate(examples):
            problem = problems.get(example.query.id)
            if problem is not None:
                errors = graph_errors(problem, [words[hit.id] for hit in example.hits])
                failed = [name for name, wrong in errors._asdict().items() if wrong]
                examples[n] = example._replace(problems=failed)
    good, bad = [e for e in examples if e.good], [e for e in examples if not e.good]
    mixed = [e for pair in zip_longest(good, bad) for e in pair if e is not None][: max(count, 0)]
    passages = known_passages(corpus, [i for e in mixed for i in (*(hit.id for hit in e.shown), *e.gold)])
    texts = {i: textwrap.shorten(p.titled, _WIDTH, placeholder=" …") for i, p in passages.items()}
    return "\n\n".join(_format(example, texts) for example in mixed)


def _format(example: _Example, texts: Mapping[str, str]) -> str:
    shown = example.shown
    lines = [f"query {example.query.id}: {example.query.text}"]
    for n, hit in enumerate(shown, 1):
        mark = "*" if hit.id in example.gold else " "
        lines.append(f"  {n}. {mark} {texts[hit.id]}  [{hit.score:.2f}]")
    if example.done is not None:
        lines.append("  DONE" if example.done else "  (stopped by the hop limit, DONE missing)")
    ranks = {hit.id: n for n, hit in reversed(list(enumerate(example.hits, 1)))}
    for passage in example.gold:
        if passage not in ranks:
            lines.append(f"  gold, not found: {passage}: {texts.get(passage, 'not in the corpus')}")
        elif ranks[passage] > len(shown):
            lines.append(f"  gold, rank {ranks[passage]}: {passage}: {texts[passage]}")
    if example.problems is not None:
        failed = ", ".join(name.replace("_", " ") for name in example.problems)
        verdict = f"proof fails: {failed}" if failed else "proof valid"
    elif not example.gold:
        verdict = "no gold passage is known"
    else:
        retrieved = len(set(example.gold) & {hit.id for hit in example.hits})
        share = "all" if example.good else f"{retrieved} of {len(example.gold)}"
        depth = "" if example.done is not None else f" in {counted(len(example.hits), 'hit')}"
        verdict = f"{share} gold passages found{depth}"
    lines.append(f"  => {verdict}")
    return visible("\n".join(lines))
