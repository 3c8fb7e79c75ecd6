"""A theory of RuleTaker-Open: subjects, predicates and rules, drawn at random.

Proofs and questions: :mod:`data_prep.ruletaker`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from math import comb
from typing import Annotated, NamedTuple

from grls.errors import ConfigError
from grls.evaluation.ruletaker import Rule
from grls.io.arguments import Count, NonNegativeInt, Share, options

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

_Several = Annotated[int, "[2, inf)"]


@options("theory")
class TheoryOptions:
    """Options of the facts and rules of the corpus, and of proofs.

    Args:
        subjects: Number of subjects; the corpus has subjects times predicates facts.
        predicates: Number of attributes (``is kind``).
        rules: Number of rules.
        conjunction_rate: Share of the rules with two premises.
        relations: Number of relations (``chases the mouse``), as further predicates. With relations,
            subjects are animals, rules say ``something``, and a subject may be related to itself.
        named_rate: Share of the rules about one named subject (``if the dog is red then the dog …``).
        max_depth: Most rules of a proof.
    """

    subjects: _Several = 39
    predicates: _Several = 20
    rules: NonNegativeInt = 60
    conjunction_rate: Share = 0.0
    relations: NonNegativeInt = 0
    named_rate: Share = 0.0
    max_depth: Count = 4


USUAL_THEORY = TheoryOptions()
MAX_PROOFS = 16
"""The most proofs that a query stores, the shortest first."""


class Theory(NamedTuple):
    """The subjects, predicates and rules of a corpus.

    Attributes:
        subjects: Names, or animals with their article.
        predicates: Attributes and relations; there is a fact of each for each subject.
        rules: Distinct rules.
    """

    subjects: list[str]
    predicates: list[str]
    rules: list[Rule]


def draw_theory(options: TheoryOptions, rng: random.Random) -> Theory:
    """Draw a theory.

    Raises:
        ConfigError: The options ask for more rules or relations than there are.
    """
    subjects = _words(
        ANIMALS if options.relations else NAMES, options.subjects, "subjects", ADJECTIVES.split()
    )
    predicates = _words(ADJECTIVES, options.predicates, "predicates", [*NAMES.split(), *subjects])
    if options.relations:
        subjects = [f"the {noun}" for noun in subjects]
        relations = [f"{verb} {noun}" for verb in VERBS.split() for noun in subjects]
        if options.relations > len(relations):
            raise ConfigError(
                f"{len(subjects)} subjects allow {len(relations)} relations, {options.relations} were asked "
                "for; ask for fewer relations or more subjects."
            )
        predicates += rng.sample(relations, options.relations)
    rules = _rules(predicates, options.rules, options.conjunction_rate, rng, bool(options.relations))
    if options.named_rate:  # a share of the rules is about one subject, drawn for each
        for n in sorted(rng.sample(range(len(rules)), round(options.named_rate * len(rules)))):
            named = (rng.choice(subjects),) * (len(rules[n].premises) + 1)
            rules[n] = Rule(rules[n].premises, rules[n].conclusion, named)
    return Theory(subjects, predicates, rules)


def _words(listed: str, count: int, kind: str, avoid: Iterable[str]) -> list[str]:
    """``count`` words: first from the list, then invented, pronounceable ones."""
    syllables = ["".join(pair) for pair in itertools.product("bdfgklmnprstvz", "aeiou")]
    known = {*listed.split(), *avoid}
    invented = ["".join(word) for word in itertools.product(syllables, syllables)]
    random.Random(kind).shuffle(invented)
    more = itertools.chain(invented, ("".join(word) for word in itertools.product(syllables, repeat=3)))
    return list(itertools.islice(itertools.chain(listed.split(), (w for w in more if w not in known)), count))


def _rules(
    predicates: list[str], count: int, conjunction_rate: float, rng: random.Random, relations: bool = False
) -> list[Rule]:
    """Distinct rules drawn at random, sorted."""
    variable = "something" if relations else "someone"
    n, double = len(predicates), round(conjunction_rate * count)
    rules: set[Rule] = set()
    for premises, share, possible in ((1, count - double, n * (n - 1)), (2, double, comb(n, 2) * (n - 2))):
        if share > possible:
            raise ConfigError(
                f"{n} predicates allow {possible} rules with {premises} premise(s), {share} were asked for; "
                "ask for fewer rules or more predicates."
            )
        size = len(rules) + share
        while len(rules) < size:
            *conditions, conclusion = rng.sample(predicates, premises + 1)
            rules.add(Rule(tuple(sorted(conditions)), conclusion, (), variable))
    return sorted(rules)
