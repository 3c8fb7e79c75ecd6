"""RuleTaker-Open: a generator of facts, rules and questions with proofs, over one shared corpus.

The corpus holds the fact of every (subject, predicate) and the rules. Grammar: ``grls.evaluation.ruletaker``.
Predicates are attributes (``is kind``) and, as an option, relations (``chases the mouse``). Rules have a
variable or, as an option, one named subject (no rule leads from one subject to another). A query names its
start facts and asks why the goal holds. Its evidence is a proof with fewest rules in forward order (facts
before the rule that needs them, the last rule concludes the goal; a statement stands as often as it is used,
as algorithm 3 of arXiv 2204.13596 counts), and its metadata hold the start facts' ids, the goal and other
proofs. Every start fact of a query is needed. The split is by query: a question about one subject
stands in one split, and the same question about another subject may stand in another split (the command
prints the share).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from data_prep import common
from data_prep.theory import MAX_PROOFS, USUAL_THEORY, TheoryOptions, draw_theory
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.evaluation.ruletaker import VARIABLES, Fact, Problem, Rule, Statement
from grls.io.arguments import NonNegativeInt

Goal = tuple[tuple[str, ...], str]
"""The predicates of the start facts, sorted, and the predicate to conclude."""
Proof = tuple[str | Rule, ...]
"""A proof for any subject: predicates stand for the facts."""


class Question(NamedTuple):
    """A goal for one subject."""

    subject: str
    goal: Goal


def prepare(
    out: Path,
    theory: TheoryOptions = USUAL_THEORY,
    train: NonNegativeInt = 588,
    dev: NonNegativeInt = 60,
    test: NonNegativeInt = 150,
    seed: int = 0,
    tokenizer: Path | None = None,
) -> None:
    """Generate RuleTaker-Open.

    Args:
        out: Folder to write; an earlier one is replaced.
        theory: Facts, rules and proofs.
        train: Number of training queries.
        dev: Number of dev queries.
        test: Number of test queries.
        seed: The same seed and options give the same files.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    rng = random.Random(seed)
    subjects, predicates, rules = draw_theory(theory, rng)
    free = proofs_by_goal((rule for rule in rules if rule.free), theory.max_depth, MAX_PROOFS)
    proofs = dict.fromkeys(subjects, free)  # subject -> the goals that rules about it can prove
    for subject in {rule.subjects[0] for rule in rules if not rule.free}:
        about = [rule for rule in rules if rule.free or rule.subjects[0] == subject]
        proofs[subject] = proofs_by_goal(about, theory.max_depth, MAX_PROOFS)
    questions = _sample(proofs, train + dev + test, rng)
    parts = questions[:train], questions[train : train + dev], questions[train + dev :]
    queries = {
        name: [
            _query(f"{name}-{n:05d}", question, proofs[question.subject][question.goal])
            for n, question in enumerate(part, 1)
        ]
        for name, part in zip(common.SPLITS, parts, strict=True)
    }
    facts = [Fact(subject, predicate) for subject in subjects for predicate in predicates]
    statements: list[Statement] = [*facts, *rules]
    passages = [Passage(identifier(statement), render(statement)) for statement in statements]
    common.finish(out, common.dataset(passages, queries), tokenizer)
    print(f"{'known goals':<20} {_known(parts[0], parts[2])}")


def identifier(statement: Statement) -> str:
    """The passage id of a statement, readable in a run file."""
    if isinstance(statement, Fact):
        name = f"fact-{statement.subject}-{statement.predicate}"
    else:
        about = f"{statement.subjects[0]}-" if statement.subjects else ""
        name = f"rule-{about}{'+'.join(statement.premises)}-{statement.conclusion}"
    return name.replace("the ", "").replace(" ", "-")


def proofs_by_goal(rules: Iterable[Rule], max_depth: int, max_proofs: int) -> dict[Goal, list[Proof]]:
    """Every goal that the rules can prove, with only the start facts that are needed.

    Args:
        rules: The rules.
        max_depth: Most rules in a proof.
        max_proofs: Most proofs a goal.

    Returns:
        Goal -> proofs in forward order, those of fewest rules first.
    """
    concluding: dict[str, list[Rule]] = {}
    for rule in rules:
        concluding.setdefault(rule.conclusion, []).append(rule)
    proved: dict[Goal, list[Proof]] = {}
    for depth, predicate in itertools.product(range(1, max_depth + 1), sorted(concluding)):
        for chosen in _derivations((predicate,), {}, frozenset(), concluding, depth):
            proof = _forward(predicate, chosen) if len(chosen) == depth else None
            if proof is None:
                continue
            start = tuple(sorted({step for step in proof if isinstance(step, str)}))
            known = proved.setdefault((start, predicate), [])
            if len(known) < max_proofs:
                known.append(proof)
    return {goal: proofs for goal, proofs in proved.items() if not _superfluous(goal, proved)}


def _derivations(
    unproved: tuple[str, ...],
    chosen: dict[str, Rule],
    start: frozenset[str],
    concluding: Mapping[str, list[Rule]],
    depth: int,
) -> Iterator[dict[str, Rule]]:
    """Every choice of at most ``depth`` rules, a rule for each derived predicate; it may have cycles.

    ``unproved`` need a rule or a start fact, ``start`` are taken as start facts; ``chosen`` and
    ``concluding`` are rules by their conclusions.
    """
    if not unproved:
        yield chosen
        return
    first, rest = unproved[0], unproved[1:]
    if first in chosen or first in start:
        yield from _derivations(rest, chosen, start, concluding, depth)
        return
    if chosen:
        yield from _derivations(rest, chosen, start | {first}, concluding, depth)
    if len(chosen) < depth:
        for rule in concluding.get(first, []):
            yield from _derivations(rest + rule.premises, {**chosen, first: rule}, start, concluding, depth)


def _forward(goal: str, chosen: Mapping[str, Rule], above: tuple[str, ...] = ()) -> Proof | None:
    """The chosen rules and the facts that they need in forward order, as often as used; None for a cycle."""
    if goal in above:
        return None
    rule = chosen.get(goal)
    if rule is None:
        return (goal,)
    steps: list[str | Rule] = []
    for premise in rule.premises:
        proof = _forward(premise, chosen, (*above, goal))
        if proof is None:
            return None
        steps += proof
    return (*steps, rule)


def _superfluous(goal: Goal, proved: Mapping[Goal, object]) -> bool:
    """Whether fewer start facts prove the same predicate."""
    start, predicate = goal
    fewer = (facts for size in range(1, len(start)) for facts in itertools.combinations(start, size))
    return any((facts, predicate) in proved for facts in fewer)


def _sample(proofs: Mapping[str, Mapping[Goal, object]], count: int, rng: random.Random) -> list[Question]:
    """Distinct questions in random order."""
    goals = sorted(set().union(*proofs.values()))
    possible = [Question(subject, goal) for goal in goals for subject in proofs if goal in proofs[subject]]
    if count > len(possible):
        raise ConfigError(
            f"{len(proofs)} subjects and {len(goals)} provable goals give {len(possible)} queries, {count} "
            "were asked for; ask for fewer, or for more subjects, rules or depth."
        )
    return [possible[n] for n in rng.sample(range(len(possible)), count)]


def _query(name: str, question: Question, proofs: list[Proof]) -> Query:
    subject, (start, conclusion) = question.subject, question.goal
    facts, goal = tuple(Fact(subject, predicate) for predicate in start), Fact(subject, conclusion)
    chains = [
        tuple(identifier(Fact(subject, step) if isinstance(step, str) else step) for step in proof)
        for proof in proofs
    ]
    stored = common.metadata(start=[identifier(fact) for fact in facts], goal=render(goal), proofs=chains)
    return Query(name, render_query(Problem(facts, goal)), evidence=chains[0], metadata=stored)


def _known(train: Iterable[Question], test: list[Question]) -> str:
    goals = {question.goal for question in train}
    known = sum(question.goal in goals for question in test)
    share = f"{known / len(test):.1%}" if test else "-"
    return f"{share} of the test queries have premises and goal that training asks about another subject"


def render(statement: Statement) -> str:
    """The text of a statement."""
    if isinstance(statement, Fact):
        return f"{statement.subject} {_says(statement.predicate)} ."
    premises, conclusion = statement.of(statement.variable)
    clauses = [f"{premises[0].subject} {_says(premises[0].predicate)}"]
    # Shortened if possible; a variable's word precedes its pronoun.
    for before, fact in itertools.pairwise(premises):
        same = fact.subject == before.subject
        if same and " " not in fact.predicate + before.predicate:
            clauses.append(fact.predicate)
        elif not same and fact.subject == statement.variable:
            clauses.append(f"{statement.variable} {_says(fact.predicate)}")
        else:
            clauses.append(_clause(fact))
    return f"if {' and '.join(clauses)} then {_clause(conclusion)} ."


def render_query(problem: Problem) -> str:
    """The text of a query."""
    facts = " ".join(render(fact) for fact in problem.start)
    subject, predicate = problem.goal
    verb, _, thing = predicate.partition(" ")
    clause = f"does {subject} {verb.removesuffix('s')} {thing}" if thing else f"is {subject} {predicate}"
    return f"{facts} why {clause} ?"


def _says(predicate: str) -> str:
    return predicate if " " in predicate else f"is {predicate}"


def _clause(fact: Fact) -> str:
    """A later clause of a rule, with the pronoun for the variable."""
    pronoun = VARIABLES.get(fact.subject, fact.subject)
    if pronoun != "they":
        return f"{pronoun} {_says(fact.predicate)}"
    verb, _, thing = fact.predicate.partition(" ")
    return f"they {verb.removesuffix('s')} {thing}" if thing else f"they are {fact.predicate}"
