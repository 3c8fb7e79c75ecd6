"""RuleTaker-Open's language and the four graph checks of a retrieved chain.

The grammar stands here once: the generator (``data_prep/ruletaker.py``) renders with it, the metric
parses with it. Three sentences make up the language::

    anna is kind .                                  a fact
    if someone is kind then they are calm .         a rule with one premise
    if someone is kind and calm then they are big . a rule with two premises

and a query names its start facts and asks for the goal: ``anna is kind . why is anna big ?``. A chain
is what was retrieved, in order; it answers the query where its statements form a proof in forward
order. Nothing here knows of passages' ids, models or files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_WORD = r"[^\W_]+"
_FACT = re.compile(rf"({_WORD}) is ({_WORD})(?: ?\.)?")
_RULE = re.compile(rf"if someone is ({_WORD})(?: and ({_WORD}))? then they are ({_WORD})(?: ?\.)?")
_QUERY = re.compile(rf"((?:{_WORD} is {_WORD} ?\. )+)why is ({_WORD}) ({_WORD}) ?\?")


class Fact(NamedTuple):
    """A fact: ``<subject> is <predicate> .``."""

    subject: str
    predicate: str


class Rule(NamedTuple):
    """A rule: ``if someone is <premise> [and <premise>] then they are <conclusion> .``."""

    premises: tuple[str, ...]
    conclusion: str


Statement = Fact | Rule


class Problem(NamedTuple):
    """What a query asks: a proof of ``goal`` from the facts ``start``."""

    start: tuple[Fact, ...]
    goal: Fact


class GraphErrors(NamedTuple):
    """Which of the four checks a chain failed; True means failed.

    Attributes:
        node_number: The graph has fewer than two nodes.
        start_node: The first node is no start fact, or a fact among the nodes is none.
        end_node: The last node does not conclude the goal.
        missing_edge: A node lacks an edge it needs (see :func:`missing_edge`).
    """

    node_number: bool
    start_node: bool
    end_node: bool
    missing_edge: bool

    @property
    def success(self) -> bool:
        """True where no check failed."""
        return not any(self)


def render(statement: Statement) -> str:
    """The one text of a statement."""
    if isinstance(statement, Fact):
        return f"{statement.subject} is {statement.predicate} ."
    return f"if someone is {' and '.join(statement.premises)} then they are {statement.conclusion} ."


def parse(text: str) -> Statement | None:
    """The statement of a text, or None where the text is not of this language.

    Case, runs of white space and a missing final full stop do not matter.
    """
    plain = _plain(text)
    if rule := _RULE.fullmatch(plain):
        return Rule(tuple(p for p in rule.group(1, 2) if p), rule.group(3))
    if fact := _FACT.fullmatch(plain):
        return Fact(*fact.groups())
    return None


def render_query(problem: Problem) -> str:
    """The text of a query."""
    facts = " ".join(render(fact) for fact in problem.start)
    return f"{facts} why is {problem.goal.subject} {problem.goal.predicate} ?"


def parse_query(text: str) -> Problem | None:
    """What a query text asks, or None where it is not of this language."""
    match = _QUERY.fullmatch(_plain(text))
    if match is None:
        return None
    start = tuple(Fact(*found) for found in _FACT.findall(match.group(1)))
    return Problem(start, Fact(match.group(2), match.group(3)))


def states_problem(metadata: Mapping[str, object]) -> bool:
    """True where a query's metadata has the form that :func:`problem_of` reads, with a goal that is a fact.

    Other data may use the same keys for something else; its ``start`` need not be passage ids.
    """
    start, goal = metadata.get("start"), metadata.get("goal")
    ids = isinstance(start, list) and bool(start) and all(isinstance(i, str) for i in start)
    return ids and isinstance(goal, str) and isinstance(parse(goal), Fact)


def problem_of(metadata: Mapping[str, object], texts: Mapping[str, str]) -> Problem | None:
    """The problem that a query's metadata states.

    Args:
        metadata: ``start``: the ids of the start facts; ``goal``: the goal as a fact's text.
        texts: Passage id -> text; the start facts suffice.

    Returns:
        The problem, or None where a part is missing or is not of this language.
    """
    ids, goal = metadata.get("start"), parse(str(metadata.get("goal")))
    if not isinstance(ids, Sequence) or not ids or not isinstance(goal, Fact):
        return None
    start = [parse(texts.get(str(i), "")) for i in ids]
    facts = tuple(fact for fact in start if isinstance(fact, Fact))
    return Problem(facts, goal) if len(facts) == len(start) else None


def graph_errors(problem: Problem, chain: Sequence[str | Statement | None]) -> GraphErrors:
    """Check a retrieved chain.

    Args:
        problem: The query's start facts and goal.
        chain: The nodes in retrieval order, without DONE: texts, or statements already parsed. A text
            of another language is a node that nothing leads to.

    Returns:
        The checks that failed. An empty chain fails the first three; it has no node that could lack
        an edge.
    """
    nodes = [parse(node) if isinstance(node, str) else node for node in chain]
    return GraphErrors(
        node_number=len(nodes) < 2,
        start_node=_start_error(problem, nodes),
        end_node=not nodes or not _concludes(nodes[-1], problem.goal),
        missing_edge=missing_edge(nodes),
    )


def _start_error(problem: Problem, nodes: Sequence[Statement | None]) -> bool:
    facts = [node for node in nodes if isinstance(node, Fact)]
    return not nodes or nodes[0] not in problem.start or any(fact not in problem.start for fact in facts)


def _concludes(node: Statement | None, goal: Fact) -> bool:
    if isinstance(node, Rule):
        return node.conclusion == goal.predicate
    return node == goal


def missing_edge(nodes: Sequence[Statement | None]) -> bool:
    """True where the proof graph of these nodes lacks an edge.

    Our reading of algorithm 3 of arXiv 2204.13596, whose text we could not consult. The graph has an
    edge from an earlier node to a later rule where the earlier one states a premise of the later.
    Two things must hold:

    * every rule is fed: one subject satisfies all its premises by facts and conclusions of earlier
      nodes (walking in order and keeping the set of statements derived so far);
    * no node dangles: every node but the last feeds a later rule.

    So a fact needs no incoming edge, and a node of another language (None), which can neither be fed
    nor feed, always lacks one. A premise stated twice has an edge from both nodes.
    """
    derived: set[Fact] = set()
    for node in nodes:
        new = _derive(node, derived)
        if not new:
            return True
        derived |= new
    return any(not _feeds(node, nodes[i + 1 :]) for i, node in enumerate(nodes[:-1]))


def _derive(node: Statement | None, derived: set[Fact]) -> set[Fact]:
    """What a node states, given the statements before it: nothing where a premise is missing."""
    if node is None:
        return set()
    if isinstance(node, Fact):
        return {node}
    subjects = {fact.subject for fact in derived}
    return {
        Fact(subject, node.conclusion)
        for subject in subjects
        if all(Fact(subject, premise) in derived for premise in node.premises)
    }


def _feeds(node: Statement | None, later: Sequence[Statement | None]) -> bool:
    if node is None:
        return False
    stated = node.predicate if isinstance(node, Fact) else node.conclusion
    return any(isinstance(other, Rule) and stated in other.premises for other in later)


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
