"""Explains a RuleTaker-Open chain: which step leads to which, and the faults of each step.

The verdict comes from :func:`grls.evaluation.graph.graph_errors`, in the paper's reading (algorithm 3): each
use of a statement consumes it, and an edge leads to the rule that consumes it. This module assigns the failed
checks to steps. A test checks that a chain has a fault of a kind if and only if that check fails. If a rule
is not fed, its conclusion still counts as true for later steps, so that one wrong step does not make all
later steps wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from grls.evaluation.evaluate import stated_problems
from grls.evaluation.graph import GraphErrors, ends_in_goal, graph_errors, passing_choice
from grls.evaluation.ruletaker import Fact, Problem, parse_statement, render
from grls.report.blocks import Measured, MeasuredGroup
from grls.runs.results import passage_texts


class ProofFault(NamedTuple):
    """A fault, with the check that it fails.

    Attributes:
        left: Whether the fault is a statement that is left over; otherwise a statement is missing or wrong.
    """

    check: Literal["node_number", "start_node", "end_node", "missing_edge"]
    reason: str
    left: bool = False


class ProofStep(NamedTuple):
    """One retrieved passage."""

    text: str
    faults: tuple[ProofFault, ...]


class Proof(NamedTuple):
    """A retrieved chain as a graph.

    Attributes:
        start: Texts of the start facts.
        steps: The passages in retrieval order.
        edges: (earlier step, later step), counted from 0: the later step uses the statement of the earlier
            one.
        given: Steps that are start facts.
        faults: Faults of the end or of the whole chain.
        errors: The verdict.
    """

    start: tuple[str, ...]
    goal: str
    steps: tuple[ProofStep, ...]
    edges: tuple[tuple[int, int], ...]
    given: tuple[int, ...]
    faults: tuple[ProofFault, ...]
    errors: GraphErrors


class ProofExample(NamedTuple):
    """A query with its proof."""

    query_id: str
    query: str
    proof: Proof


def explain_chain(problem: Problem, texts: Sequence[str]) -> Proof:
    """The graph of a chain: passage texts in retrieval order, without DONE."""
    nodes = [parse_statement(text) for text in texts]
    walked = passing_choice(problem, nodes)
    steps = []
    for n, (text, node) in enumerate(zip(texts, nodes, strict=True)):
        faults = []
        if n == 0 and node not in problem.start:
            faults.append(ProofFault("start_node", "a proof begins with a start fact, and this is none"))
        elif isinstance(node, Fact) and node not in problem.start:
            faults.append(ProofFault("start_node", "this fact is none of the start facts"))
        if node is None:
            reason = "neither a fact nor a rule: nothing leads to it or from it"
            faults.append(ProofFault("missing_edge", reason))
        else:
            if walked.lacking[n]:
                premises = " and ".join(render(fact).removesuffix(" .") for fact in walked.lacking[n])
                faults.append(ProofFault("missing_edge", f"missing before it: {premises}"))
            if n in walked.left and n == len(nodes) - 1:
                reason = f"left over: it ends in the goal's last word, but not in {render(problem.goal)}"
                faults.append(ProofFault("missing_edge", reason, left=True))
            elif n in walked.left:
                faults.append(ProofFault("missing_edge", "left over: no later rule uses it", left=True))
        steps.append(ProofStep(text, tuple(faults)))
    faults = []
    if not nodes:
        faults = [
            ProofFault("node_number", "nothing was retrieved"),
            ProofFault("start_node", "there is no first step"),
            ProofFault("end_node", "there is no last step"),
        ]
    else:
        if len(nodes) < 2:
            faults.append(ProofFault("node_number", "a proof has at least two steps"))
        if not ends_in_goal(problem, nodes):
            faults.append(ProofFault("end_node", "the last step does not conclude the goal"))
    given = tuple(n for n, node in enumerate(nodes) if isinstance(node, Fact) and node in problem.start)
    start = tuple(render(fact) for fact in problem.start)
    return Proof(
        start, render(problem.goal), tuple(steps), walked.edges, given, tuple(faults),
        graph_errors(problem, nodes),
    )  # fmt: skip


def proof_examples(group: MeasuredGroup, run: Measured, count: int) -> list[ProofExample]:
    """Successes, then failures, at most ``count`` of each, in the order of the queries.

    Failures of different kinds come first: a failure with the same failed checks as an earlier one waits.
    """
    problems = stated_problems(group.queries, group.corpus)
    if run.chains is None or not problems:
        return []
    texts = passage_texts(group.corpus, (i for ids in run.chains for i in ids))
    queries = {query.id: query.text for query in group.queries}
    examples = [
        ProofExample(q, queries[q], explain_chain(problems[q], [texts[i] for i in ids]))
        for q, ids in zip(group.qrels, run.chains, strict=True)
        if q in problems
    ]
    good = [example for example in examples if example.proof.errors.success]
    bad = [example for example in examples if not example.proof.errors.success]
    first: dict[GraphErrors, ProofExample] = {}
    for example in bad:
        first.setdefault(example.proof.errors, example)
    ordered = [*first.values(), *(e for e in bad if first[e.proof.errors] is not e)]
    return [*good[:count], *ordered[:count]]
