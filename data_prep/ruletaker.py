"""RuleTaker-Open: a generator of facts, rules and questions with proofs, over one shared corpus.

The corpus holds the fact of every (subject, predicate) and the rules; the grammar is
``grls.evaluation.ruletaker``'s. Predicates are attributes (``is kind``) and, where asked for, relations
(``chases the mouse``); rules are about anyone and, where asked for, about one subject (none leads from one
subject to another). A query names its start facts and asks why the goal holds; its evidence is
a shortest proof in forward order (facts before the rule that needs them, the last rule concludes the
goal), and its metadata holds the start facts' ids, the goal and other proofs. No start fact of a query
is superfluous. The split is by query: a question about one subject stands in one split, and the same
question about another subject may stand in another one (the share is printed).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from math import comb
from pathlib import Path
from typing import NamedTuple

from data_prep import common
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.evaluation.ruletaker import Fact, Problem, Rule, Statement, render, render_query

NAMES = (
    "anna ben carla david emma felix greta hugo iris jonas kate leo maria nils olga paul rosa simon tina "
    "uwe vera walter yara zoe adam bella carl dora erik fiona georg hanna ivan julia karl lena mark nora "
    "oscar petra ralf sara tom ursula victor wanda"
)
ADJECTIVES = (
    "big small kind calm round cold warm quick slow young old bright dark loud quiet brave shy strong "
    "weak rich poor tall short happy sad clean rough smooth sharp blunt green blue red white black proud "
    "clever honest gentle lazy busy hungry tired careful famous lucky polite rude"
)
ANIMALS = (
    "cat dog mouse bear lion tiger rabbit squirrel cow eagle wolf fox horse sheep goat duck hen frog toad "
    "otter seal whale swan crow owl hawk deer moose mole hare pig donkey camel monkey snake lizard turtle "
    "beaver badger"
)
VERBS = "chases eats likes needs sees visits"

Goal = tuple[tuple[str, ...], str]
"""The predicates of the start facts, sorted, and the predicate to conclude."""
Proof = tuple[str | Rule, ...]
"""A proof of every subject: predicates stand for the facts."""


class Question(NamedTuple):
    """A goal asked about one subject."""

    subject: str
    goal: Goal


def prepare(
    out: Path,
    subjects: int = 39,
    predicates: int = 20,
    rules: int = 60,
    conjunction_rate: float = 0.0,
    relations: int = 0,
    named_rate: float = 0.0,
    max_depth: int = 4,
    max_proofs: int = 16,
    train: int = 588,
    dev: int = 60,
    test: int = 150,
    seed: int = 0,
    tokenizer: Path | None = None,
) -> None:
    """Generate RuleTaker-Open.

    Args:
        out: Folder to write; an earlier one is replaced.
        subjects: Number of subjects; the corpus has subjects times predicates facts.
        predicates: Number of attributes (``is kind``).
        rules: Number of rules.
        conjunction_rate: Share of the rules that have two premises.
        relations: Number of relations (``chases the mouse``), predicates as well; with any, subjects are
            animals, rules say ``something`` and a subject may stand in a relation to itself.
        named_rate: Share of the rules that are about one subject (``if the dog is red then the dog …``).
        max_depth: Most rules a proof may have.
        max_proofs: Most proofs to store with a query, the shortest first.
        train: Number of training queries.
        dev: Number of dev queries.
        test: Number of test queries.
        seed: The same seed and options give the same files.
        tokenizer: Folder of a tokenizer to count passage tokens with (default: whitespace tokens).
    """
    if min(train, dev, test) < 0:
        raise ConfigError(f"expected 0 or more queries a split, got {train}, {dev} and {test}.")
    rng = random.Random(seed)
    subject_words = _words(ANIMALS if relations else NAMES, subjects, "subjects", avoid=ADJECTIVES.split())
    predicate_words = _words(ADJECTIVES, predicates, "predicates", avoid=[*NAMES.split(), *subject_words])
    if relations:
        subject_words = [f"the {noun}" for noun in subject_words]
        predicate_words += _relations(subject_words, relations, rng)
    drawn = _rules(predicate_words, rules, conjunction_rate, rng, bool(relations))
    drawn = _named(drawn, subject_words, named_rate, rng)
    proofs = _proofs_by_subject(drawn, subject_words, max_depth, max_proofs)
    questions = _sample(proofs, train + dev + test, rng)
    parts = questions[:train], questions[train : train + dev], questions[train + dev :]
    queries = {
        name: [
            _query(f"{name}-{n:05d}", question, proofs[question.subject][question.goal])
            for n, question in enumerate(part, 1)
        ]
        for name, part in zip(common.SPLITS, parts, strict=True)
    }
    facts = [Fact(subject, predicate) for subject in subject_words for predicate in predicate_words]
    statements: list[Statement] = [*facts, *drawn]
    passages = [Passage(identifier(statement), render(statement)) for statement in statements]
    common.finish(out, common.dataset(passages, queries), tokenizer)
    print(f"{'known goals':<20} {_known(parts[0], parts[2])}")


def identifier(statement: Statement) -> str:
    """The passage id of a statement, one a person can read in a run file."""
    if isinstance(statement, Fact):
        name = f"fact-{statement.subject}-{statement.predicate}"
    else:
        about = f"{statement.subjects[0]}-" if statement.subjects else ""
        name = f"rule-{about}{'+'.join(statement.premises)}-{statement.conclusion}"
    return name.replace("the ", "").replace(" ", "-")


def _words(own: str, count: int, what: str, avoid: Iterable[str]) -> list[str]:
    """``count`` words: our own list first, then pronounceable ones."""
    if count < 2:
        raise ConfigError(f"expected at least two {what}, got {count}.")
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    known = {*own.split(), *avoid}
    invented = ["".join(word) for word in itertools.product(syllables, syllables)]
    random.Random(what).shuffle(invented)
    more = itertools.chain(invented, ("".join(word) for word in itertools.product(syllables, repeat=3)))
    return list(itertools.islice(itertools.chain(own.split(), (w for w in more if w not in known)), count))


def _relations(subjects: list[str], count: int, rng: random.Random) -> list[str]:
    """Distinct relations drawn at random: verb and object."""
    possible = [f"{verb} {thing}" for verb in VERBS.split() for thing in subjects]
    if not 0 < count <= len(possible):
        raise ConfigError(
            f"{len(subjects)} subjects allow {len(possible)} relations, {count} were asked for; ask for "
            "fewer relations or more subjects."
        )
    return rng.sample(possible, count)


def _named(rules: list[Rule], subjects: list[str], rate: float, rng: random.Random) -> list[Rule]:
    """The rules, a share of them about one subject, which is drawn for each."""
    if not 0 <= rate <= 1:
        raise ConfigError(f"expected named_rate between 0 and 1, got {rate}.")
    chosen = set(rng.sample(range(len(rules)), round(rate * len(rules)))) if rate else set()
    return [_about(rule, rng.choice(subjects)) if n in chosen else rule for n, rule in enumerate(rules)]


def _about(rule: Rule, subject: str) -> Rule:
    return Rule(rule.premises, rule.conclusion, (subject,) * (len(rule.premises) + 1))


def _proofs_by_subject(
    rules: list[Rule], subjects: list[str], max_depth: int, max_proofs: int
) -> dict[str, dict[Goal, list[Proof]]]:
    """Of every subject what the rules about anyone and about it can prove."""
    free = [rule for rule in rules if rule.free]
    of_anyone = proofs_by_goal(free, max_depth, max_proofs)
    own = {rule.subjects[0] for rule in rules if not rule.free}
    return {
        subject: proofs_by_goal(
            [rule for rule in rules if rule.free or rule.subjects[0] == subject], max_depth, max_proofs
        )
        if subject in own
        else of_anyone
        for subject in subjects
    }


def _rules(
    predicates: list[str], count: int, conjunction_rate: float, rng: random.Random, relations: bool = False
) -> list[Rule]:
    """Distinct rules drawn at random, sorted."""
    variable = "something" if relations else "someone"
    if not 0 <= conjunction_rate <= 1:
        raise ConfigError(f"expected conjunction_rate between 0 and 1, got {conjunction_rate}.")
    n, double = len(predicates), round(conjunction_rate * count)
    rules: set[Rule] = set()
    for premises, wanted, possible in ((1, count - double, n * (n - 1)), (2, double, comb(n, 2) * (n - 2))):
        if wanted > possible:
            raise ConfigError(
                f"{n} predicates allow {possible} rules with {premises} premise(s), {wanted} were asked for; "
                "ask for fewer rules or more predicates."
            )
        size = len(rules) + wanted
        while len(rules) < size:
            *some, conclusion = rng.sample(predicates, premises + 1)
            rules.add(Rule(tuple(sorted(some)), conclusion, (), variable))
    return sorted(rules)


def proofs_by_goal(rules: Iterable[Rule], max_depth: int, max_proofs: int) -> dict[Goal, list[Proof]]:
    """Every goal that the rules can prove from start facts all of which are needed.

    Args:
        rules: The rules.
        max_depth: Most rules in a proof.
        max_proofs: Most proofs a goal.

    Returns:
        Goal -> proofs in forward order, the shortest first.
    """
    if max_depth < 1 or max_proofs < 1:
        raise ConfigError(
            f"expected max_depth and max_proofs of 1 or more, got {max_depth} and {max_proofs}."
        )
    concluding: dict[str, list[Rule]] = {}
    for rule in rules:
        concluding.setdefault(rule.conclusion, []).append(rule)
    found: dict[Goal, list[Proof]] = {}
    for depth, predicate in itertools.product(range(1, max_depth + 1), sorted(concluding)):
        for chosen in _derivations((predicate,), {}, frozenset(), concluding, depth):
            proof = _forward(predicate, chosen) if len(chosen) == depth else None
            if proof is None:
                continue
            start = tuple(sorted(step for step in proof if isinstance(step, str)))
            known = found.setdefault((start, predicate), [])
            if len(known) < max_proofs:
                known.append(proof)
    return {goal: proofs for goal, proofs in found.items() if not _superfluous(goal, found)}


def _derivations(
    unproved: tuple[str, ...],
    chosen: dict[str, Rule],
    start: frozenset[str],
    concluding: Mapping[str, list[Rule]],
    depth: int,
) -> Iterator[dict[str, Rule]]:
    """Every choice of at most ``depth`` rules, one a derived predicate; cycles are not ruled out.

    Args:
        unproved: Predicates that need a rule or a start fact; the first call passes the goal.
        chosen: Predicate -> the rule that concludes it, so far.
        start: Predicates taken as start facts, so far.
        concluding: Predicate -> the rules that conclude it.
        depth: Most rules.
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


def _forward(goal: str, chosen: Mapping[str, Rule]) -> Proof | None:
    """The chosen rules and the facts they need in forward order; None where they run in a circle."""
    steps: list[str | Rule] = []
    done: set[str] = set()

    def write(predicate: str, above: tuple[str, ...]) -> bool:
        if predicate in above:
            return False
        if predicate in done:
            return True
        rule = chosen.get(predicate)
        if rule and not all(write(premise, (*above, predicate)) for premise in rule.premises):
            return False
        steps.append(rule or predicate)
        done.add(predicate)
        return True

    return tuple(steps) if write(goal, ()) else None


def _superfluous(goal: Goal, found: Mapping[Goal, object]) -> bool:
    """True where fewer start facts prove the same."""
    start, predicate = goal
    fewer = (some for size in range(1, len(start)) for some in itertools.combinations(start, size))
    return any((some, predicate) in found for some in fewer)


def _sample(proofs: Mapping[str, Mapping[Goal, object]], count: int, rng: random.Random) -> list[Question]:
    """Distinct questions in random order."""
    goals = sorted(set().union(*proofs.values()))
    possible = [Question(subject, goal) for goal in goals for subject in proofs if goal in proofs[subject]]
    if count > len(possible):
        raise ConfigError(
            f"{len(proofs)} subjects and {len(goals)} provable goals give {len(possible)} queries, {count} "
            "were asked for; ask for fewer, or for more subjects, rules or depth."
        )
    return [possible[place] for place in rng.sample(range(len(possible)), count)]


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


if __name__ == "__main__":
    common.run(prepare)
