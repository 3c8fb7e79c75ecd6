"""RuleTaker-Open's language: statements, queries, and the problem that a query states.

``data_prep/ruletaker.py`` renders with this grammar, and the graph checks parse with it. A statement says
that a subject has an attribute, or stands in a relation to an object::

    anna is kind .                                           a fact, an attribute
    the cat chases the mouse .                               a fact, a relation
    if someone is kind then they are calm .                  a rule with one premise
    if someone is kind and calm then they are big .          a rule with two premises
    if something is kind then it chases the cat .            a rule that concludes a relation
    if something chases the cat and it is big then it is old .
    if the dog chases the mouse then the dog is young .      a rule about one subject

A query names its start facts and asks for the goal: ``anna is kind . why is anna big ?`` or ``… why does
the cat chase the mouse ?``. A variable or its pronoun is never the object of a relation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

VARIABLES = {"someone": "they", "something": "it"}
"""Word of a rule's variable -> its pronoun."""

_WORD = r"[^\W_]+"
_NO_THING = "|".join(("is", "does", "has", "not"))
_NO_OBJECT = "|".join((_NO_THING, "it", "they", "them", *VARIABLES))
_TERM = rf"(?:the (?:{_WORD} )??)?(?!(?:{_NO_THING})\b){_WORD}"
_OBJECT = rf"(?:the (?:{_WORD} )??)?(?!(?:{_NO_OBJECT})\b){_WORD}"
_VERB = r"(?!(?:is|does|has)\b)[^\W_]+s"
_ADJECTIVE = rf"(?!(?:{_NO_OBJECT})\b){_WORD}"
_ATTRIBUTE = re.compile(rf"({_TERM}) is ({_ADJECTIVE})")
_RELATION = re.compile(rf"({_TERM}) ({_VERB} {_OBJECT})")
_THEY_ARE = re.compile(rf"they are ({_ADJECTIVE})")
_THEY_DO = re.compile(rf"they (?!are\b)({_WORD}) ({_OBJECT})")
_RULE = re.compile(r"if (.+) then (.+)")
_END = re.compile(r" ?\.$")


class Fact(NamedTuple):
    """A subject (``anna``, ``the bald eagle``) and a predicate (``kind``, ``chases the mouse``)."""

    subject: str
    predicate: str


class Rule(NamedTuple):
    """A rule with one or two premises and the predicate that then holds.

    ``subjects`` are those of each premise and of the conclusion; an empty string is the variable
    (``someone`` or ``something``). An empty tuple: all are the variable.
    """

    premises: tuple[str, ...]
    conclusion: str
    subjects: tuple[str, ...] = ()
    variable: str = "someone"

    @property
    def free(self) -> bool:
        return not all(self.subjects) or not self.subjects

    def of(self, subject: str) -> tuple[tuple[Fact, ...], Fact]:
        names = self.subjects or ("",) * (len(self.premises) + 1)
        *facts, conclusion = (
            Fact(name or subject, predicate)
            for name, predicate in zip(names, (*self.premises, self.conclusion), strict=True)
        )
        return tuple(facts), conclusion


Statement = Fact | Rule


class Problem(NamedTuple):
    """The problem of a query: prove ``goal`` from the facts ``start``."""

    start: tuple[Fact, ...]
    goal: Fact


def parse_statement(text: str) -> Statement | None:
    """The statement of a text, or None if the text is not in the language."""
    plain = _END.sub("", " ".join(text.lower().split()))
    if rule := _RULE.fullmatch(plain):
        return _parse_rule(rule.group(1).split(" and "), rule.group(2))
    fact = _parse_clause(plain, None)
    return None if fact is None or fact.subject in VARIABLES else fact


def last_word(statement: Statement) -> str:
    """The attribute or the object at the end of a statement; for a rule, of its conclusion."""
    predicate = statement.predicate if isinstance(statement, Fact) else statement.conclusion
    return predicate.rpartition(" ")[2]


def states_problem(metadata: Mapping[str, object]) -> bool:
    """Whether a query's metadata has the form that :func:`problem_of` reads.

    Other data may use the same keys in another way.
    """
    start, goal = metadata.get("start"), metadata.get("goal")
    ids = isinstance(start, list) and bool(start) and all(isinstance(i, str) for i in start)
    return ids and isinstance(goal, str) and isinstance(parse_statement(goal), Fact)


def problem_of(metadata: Mapping[str, Any], texts: Mapping[str, str]) -> Problem | None:
    """The problem that a query's metadata state (:func:`states_problem`); None if a fact is not one.

    ``metadata``: ``start``, the ids of the start facts, and ``goal``, its text. ``texts``: passage id ->
    text.
    """
    *facts, goal = map(parse_statement, (*(texts[name] for name in metadata["start"]), metadata["goal"]))
    start = tuple(fact for fact in facts if isinstance(fact, Fact))
    return Problem(start, goal) if isinstance(goal, Fact) and len(start) == len(facts) else None


def _parse_rule(clauses: Sequence[str], last: str) -> Rule | None:
    if len(clauses) > 2:
        return None
    facts: list[Fact] = []
    for n, clause in enumerate((*clauses, last)):
        before = next((fact.subject for fact in facts if fact.subject in VARIABLES), None)
        before = before or (facts[0].subject if facts else None)
        shortened = (
            n == 1 < len(clauses) and re.fullmatch(_ADJECTIVE, clause) and " " not in facts[0].predicate
        )
        fact = Fact(str(before), clause) if shortened else _parse_clause(clause, before)
        if fact is None:
            return None
        facts.append(fact)
    variables = [fact.subject for fact in facts if fact.subject in VARIABLES]
    if len(set(variables)) > 1 or (variables and facts[-1:] == [f for f in facts if f.subject in VARIABLES]):
        return None  # two variables, or a variable that no premise binds
    subjects = tuple("" if fact.subject in VARIABLES else fact.subject for fact in facts)
    predicates = [fact.predicate for fact in facts]
    named = subjects if any(subjects) else ()
    return Rule(tuple(predicates[:-1]), predicates[-1], named, variables[0] if variables else "someone")


def _parse_clause(text: str, before: str | None) -> Fact | None:
    """A clause; ``before`` is the subject of a pronoun."""
    if text.startswith("they "):
        fact = _THEY_ARE.fullmatch(text)
        does = _THEY_DO.fullmatch(text)
        predicate = fact.group(1) if fact else f"{does.group(1)}s {does.group(2)}" if does else None
        return Fact(before, predicate) if before and predicate else None
    match = _ATTRIBUTE.fullmatch(text) or _RELATION.fullmatch(text)
    if match is None:
        return None
    subject = match.group(1) if match.group(1) != "it" else before
    return Fact(subject, match.group(2)) if subject else None
