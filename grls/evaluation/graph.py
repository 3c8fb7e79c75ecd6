"""The graph checks of a retrieved RuleTaker-Open chain (appendix A.6 of arXiv 2204.13596).

There are four checks: the number of nodes, the start node, the end node, the missing edge. ``algorithm3``
is the paper's reading: each use of a statement consumes it, so a statement that feeds two rules must
stand in the chain twice, and a leftover fails. With ``reuse`` a statement may feed any number of rules,
and no node may dangle.

Algorithm 3 keeps a list T of unused statements. A fact is appended. A rule removes each of its premises
once, fails if one is missing, and appends its conclusion. At the end T must be empty. Read to the letter,
no chain would pass, because the last conclusion stays in T: so the goal alone may stay (or another last
statement, which the end node check reports). A rule's variable stands for one subject; the chain passes
if at least one choice of subjects passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from grls.errors import DataError
from grls.evaluation.metrics import Scores
from grls.evaluation.ruletaker import Fact, Problem, Rule, Statement, last_word, parse_statement

Reading = Literal["algorithm3", "reuse"]


class GraphErrors(NamedTuple):
    """Which of the four checks a chain failed; True means failed.

    Attributes:
        node_number: The graph has fewer than two nodes.
        start_node: The first node, or a later fact, is no start fact. The paper only compares the subject;
            our corpus holds the fact of every subject and predicate, and the query names the start facts.
        end_node: The last word of the last node (attribute, or object of a relation) is not the goal's;
            with ``reuse`` the whole statement counts.
        missing_edge: A node lacks an edge that it needs (:func:`lacks_edge`, or algorithm 3).
    """

    node_number: bool
    start_node: bool
    end_node: bool
    missing_edge: bool

    @property
    def success(self) -> bool:
        return not any(self)

    @property
    def first(self) -> GraphErrors:
        """Only the first failed check: the paper counts a chain under this error."""
        failed = next((n for n, wrong in enumerate(self) if wrong), None)
        return GraphErrors(*(n == failed for n in range(len(self))))


def graph_success(chain: Sequence[str], problem: Problem, reading: Reading = "algorithm3") -> Scores:
    """``success``: 1 if a chain of texts, without DONE, passes all four checks; and each check that it fails.

    By ``algorithm3`` a chain counts under the first check that it fails, so that error rates and success add
    up to 1, as in table 10 of the paper; with ``reuse`` it counts under every one. Gold evidence does not
    matter: another proof of the goal succeeds as well.
    """
    errors = graph_errors(problem, chain, reading)
    return {"success": errors.success, **(errors.first if reading == "algorithm3" else errors)._asdict()}


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


def graph_errors(
    problem: Problem, chain: Sequence[str | Statement | None], reading: Reading = "algorithm3"
) -> GraphErrors:
    """The failed checks of a chain, each decided independently; an empty chain fails the first three.

    ``chain``: the nodes in retrieval order, without DONE, as texts or parsed. No edge leads to a text
    outside the language.
    """
    nodes = [parse_statement(node) if isinstance(node, str) else node for node in chain]
    facts = [node for node in nodes if isinstance(node, Fact)]
    paper = reading == "algorithm3"
    if paper:  # a node outside the language always lacks an edge
        missing = any(node is None for node in nodes) or not _passes(problem, nodes)
    else:
        missing = lacks_edge(problem, nodes)
    return GraphErrors(
        node_number=len(nodes) < 2,
        start_node=not nodes
        or nodes[0] not in problem.start
        or any(fact not in problem.start for fact in facts),
        end_node=not (_ends_in_goal(problem, nodes) if paper else _proves_goal(problem, nodes)),
        missing_edge=missing,
    )


def _ends_in_goal(problem: Problem, nodes: Sequence[Statement | None]) -> bool:
    last = nodes[-1] if nodes else None
    return last is not None and last_word(last) == last_word(problem.goal)


_Unused = tuple[tuple[Fact, int], ...]
"""T: each statement with the node that states it, in order."""


def _passes(problem: Problem, nodes: Sequence[Statement | None]) -> bool:
    """Whether a chain passes algorithm 3 with some choice of subjects, tried depth first."""
    rules = [node for node in nodes if isinstance(node, Rule)]
    facts = sum(isinstance(node, Fact) for node in nodes)
    if nodes and facts - sum(len(rule.premises) - 1 for rule in rules) != 1:
        return False  # the numbers of statements and uses cannot leave exactly one statement
    right = _ends_in_goal(problem, nodes)
    hopeless: set[tuple[int, tuple[Fact, ...]]] = set()

    def go(n: int, unused: _Unused) -> bool:
        state = n, tuple(sorted(fact for fact, _ in unused))
        if state in hopeless:
            return False
        if n == len(nodes):
            stay = [m for fact, m in unused if m == n - 1 and (fact == problem.goal or not right)]
            passes = len(stay) == len(unused)
        else:
            passes = any(go(n + 1, after) for after in _taken(problem, nodes[n], n, unused))
        if not passes:
            hopeless.add(state)
        return passes

    return go(0, ())


def _taken(problem: Problem, node: Statement | None, n: int, unused: _Unused) -> Iterator[_Unused]:
    """T after node ``n``, for each subject that it can be about, the goal's first."""
    if not isinstance(node, Rule):
        yield unused if node is None else (*unused, (node, n))
        return
    subjects = sorted({fact.subject for fact, _ in unused} - {problem.goal.subject})
    for subject in (problem.goal.subject, *subjects) if node.free else ("",):
        premises, conclusion = node.of(subject)
        left = list(unused)
        for premise in premises:
            index = next((i for i, (fact, _) in enumerate(left) if fact == premise), None)
            if index is None:
                break
            left.pop(index)
        else:
            yield (*left, (conclusion, n))


def _proves_goal(problem: Problem, nodes: Sequence[Statement | None]) -> bool:
    """Whether the last node can conclude the goal, from the statements derived so far."""
    if not nodes:
        return False
    last = nodes[-1]
    if not isinstance(last, Rule):
        return last == problem.goal
    if last.of(problem.goal.subject)[1] != problem.goal:
        return False
    cases = _cases(nodes)[-1]
    return not cases or any(conclusion == problem.goal for _, conclusion in cases)


def lacks_edge(problem: Problem, nodes: Sequence[Statement | None]) -> bool:
    """The missing edge if statements may be used again: whether the proof graph lacks an edge.

    An edge leads from a node to a later rule if the node states a premise of the rule about the same
    subject. Two conditions must hold:

    * every rule is fed: one subject satisfies all its premises by earlier facts and conclusions;
    * no node dangles: walking back from the last node (from the goal, if it concludes it), every node states
      a premise of a later rule, for a subject about which that rule's conclusion is needed.

    A fact needs no incoming edge. A node outside the language (None) always lacks one. A premise stated
    twice has an edge from both nodes.
    """
    cases = _cases(nodes)
    if not all(cases):
        return True
    needed: set[Fact] = set()
    for n, stated in reversed(list(enumerate(cases))):
        if n == len(nodes) - 1:
            used = [case for case in stated if case[1] == problem.goal] or stated
        else:
            used = [case for case in stated if case[1] in needed]
        if not used:
            return True
        needed.update(premise for premises, _ in used for premise in premises)
    return False


_Case = tuple[tuple[Fact, ...], Fact]
"""Premises and the statement that follows from them; a fact has no premises."""


def _cases(nodes: Sequence[Statement | None]) -> list[list[_Case]]:
    """What each node states, derived from earlier nodes; nothing for a rule with a missing premise."""
    derived: set[Fact] = set()
    stated = []
    for node in nodes:
        cases: list[_Case] = []
        if isinstance(node, Fact):
            cases = [((), node)]
        elif isinstance(node, Rule):  # an instance for each subject that satisfies the premises
            subjects = sorted({fact.subject for fact in derived}) if node.free else [""]
            cases = [case for case in map(node.of, subjects) if derived.issuperset(case[0])]
        stated.append(cases)
        derived |= {conclusion for _, conclusion in cases}
    return stated
