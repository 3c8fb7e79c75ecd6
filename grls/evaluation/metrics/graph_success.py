"""RuleTaker-Open: the share of retrieved chains that prove the goal, and the rate of each error.

Convention: the four checks of ``grls.evaluation.graph`` (at least two nodes; the first is a start fact; the
last concludes the goal; no edge is missing) on each chain, in retrieval order and without DONE. Success is
the share of queries that pass all four. With the reading ``algorithm3`` a chain counts under the first check
that it fails, so that error rates and success add up to 1, as in table 10 of arXiv 2204.13596; with
``reuse`` it counts under every check that it fails. An empty chain, as for an unanswered query, fails all
checks except the missing edge. Gold evidence does not matter: another proof of the goal succeeds as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from grls.errors import DataError
from grls.evaluation.graph import GraphErrors, Reading, graph_errors
from grls.evaluation.metrics.averages import mean, metric_class
from grls.evaluation.ruletaker import Fact, Problem, parse_statement


def graph_success(
    chains: Sequence[Sequence[str]], problems: Sequence[Problem], reading: Reading = "algorithm3"
) -> dict[str, float]:
    """Success rate and error rates, ``{"success": …, "node_number": …, …}``; all but the first are errors.

    ``chains`` are passage texts in retrieval order, without DONE.
    """
    errors = [graph_errors(problem, chain, reading) for chain, problem in zip(chains, problems, strict=True)]
    result = {"success": mean(e.success for e in errors)}
    if reading == "algorithm3":
        errors = [e.first for e in errors]
    for check in GraphErrors._fields:
        result[check] = mean(getattr(e, check) for e in errors)
    return result


def problem_from_texts(start: Sequence[str], goal: str) -> Problem:
    """A problem from the texts of its start facts and of its goal."""
    facts = []
    for text in [*start, goal]:
        fact = parse_statement(text)
        if not isinstance(fact, Fact):
            raise DataError(f"expected a fact such as 'anna is kind .', got {text!r}.")
        facts.append(fact)
    if not start:
        raise DataError(f"the goal {goal!r} has no start fact; give at least one.")
    return Problem(tuple(facts[:-1]), facts[-1])


GraphSuccess = metric_class(
    lambda chains, problems: graph_success(chains, [problem_from_texts(**texts) for texts in problems]),
    __name__,
    predictions=["string"],
    references={"start": ["string"], "goal": "string"},
)
