"""RuleTaker-Open from the release of RuleTaker (``meta-*.jsonl``): a statement -> a proof over all theories.

As arXiv 2204.13596 (A.6) makes it from the depth-5 data: the corpus is the facts and rules of all theories
of all files, the queries are the statements that the questions ask about, each once, and a proof that uses
negation as failure (NAF) or a failure (FAIL) is left out, as is one with fewer than two or more than ten
different statements. The paper has 1,621 queries, split at random 1,300 / 121 / 200.

The paper does not show the text of a query; here it is the statement in question. A question about a negated
statement ("the cow is not big") that the theory refutes has the proof of the statement itself. A statement
that several theories prove has their shortest proof as evidence, and further ones as ``proofs``. The facts of
all of them are its ``start``.

Statements are written in the language of :mod:`grls.evaluation.ruletaker`, which the graph checks read: "Blue
people are furry." becomes "if someone is blue then they are furry ." Statements outside that language
(negated ones, rules with more than two premises) keep the release's words, and proofs with such a statement
are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep import common
from data_prep.raw import find_raw, read_json_lines
from data_prep.ruletaker import render
from data_prep.theory import MAX_PROOFS
from grls.data.types import Query
from grls.errors import DataError
from grls.evaluation.ruletaker import VARIABLES, Fact, Rule, Statement, parse_statement

FILES = {split: f"meta-{split}.jsonl" for split in common.SPLITS}
NODES = range(2, 11)
"""The number of different statements of a proof."""
PUBLISHED = {"queries": 1_621}

_TRIPLE = re.compile(r'\("([^"]+)" "([^"]+)" "([^"]+)" "([-+~])"\)')
_NODE = re.compile(r"(?:triple|rule)\d+")
_FAILS = re.compile(r"NAF|FAIL|CWA")

Proof = tuple[str, ...]
"""The texts of the statements in forward order, each as often as it is used."""


def prepare(
    raw: Path,
    out: Path,
    seed: int = 0,
    ratios: Sequence[float] = (0.802, 0.0746, 0.1234),
) -> None:
    """Prepare RuleTaker-Open from RuleTaker's own files.

    Args:
        raw: Folder with meta-train.jsonl, meta-dev.jsonl and meta-test.jsonl, such as original/depth-5.
        out: Folder to write; an earlier one is replaced.
        seed: Seed of the split.
        ratios: Shares of train, dev and test; they add up to 1.
    """
    common.refuse_other_than_three(ratios)
    pool = common.PassagePool()
    proofs: dict[tuple[str, str], set[Proof]] = {}
    left_out = Counter[str]()
    for name in FILES.values():
        file = find_raw(raw, name)
        for line, record in read_json_lines(file):
            texts = dict(_statements(record, file, line))
            pool.update(texts.values())
            for text, goal, proof in _proofs(record, texts, left_out, file, line):
                proofs.setdefault((text, goal), set()).add(proof)
    ids = {passage.text: passage.id for passage in pool.passages()}
    queries = []
    for n, ((text, goal), found) in enumerate(sorted(proofs.items()), 1):
        shortest = sorted(found, key=lambda proof: (len(proof), proof))[:MAX_PROOFS]
        chains = [tuple(ids[s] for s in proof) for proof in shortest]
        facts = [s for proof in shortest for s in proof if isinstance(parse_statement(s), Fact)]
        stored = common.metadata(start=[ids[fact] for fact in dict.fromkeys(facts)], goal=goal, proofs=chains)
        queries.append(Query(f"q{n:05d}", text, chains[0], metadata=stored))
    if not queries:
        raise DataError("no question here has a proof to take.", raw)
    splits = common.three_splits(queries, ratios, seed)
    numbers = common.finish(out, common.dataset(pool.passages(), splits))
    for reason, count in left_out.items():
        print(f"{'left out':<20} {count:,} proofs {reason}")
    common.compare(numbers, PUBLISHED, queries=len(queries))


def _statements(record: dict[str, Any], file: Path, line: int) -> Iterator[tuple[str, str]]:
    """(name in proofs, text) of the facts and rules of a theory."""
    for key in ("triples", "rules"):
        entries = record.get(key)
        if not isinstance(entries, dict):
            raise DataError(f"expected {key!r} to be an object, got {entries!r:.80}.", file, line)
        for name, entry in entries.items():
            text, form = (common.field(entry, k, str, file, line) for k in ("text", "representation"))
            statement = _statement(text, form)
            spoken = "" if statement is None else render(statement)
            yield name, spoken if spoken and parse_statement(spoken) == statement else _plain(text)


def _proofs(
    record: dict[str, Any], texts: dict[str, str], left_out: Counter[str], file: Path, line: int
) -> Iterator[tuple[str, str, Proof]]:
    """(text of the query, goal, proof) of every proof of every proved question."""
    for entry in common.field(record, "questions", dict, file, line).values():
        keys = ("question", "representation", "strategy", "proofs")
        text, form, strategy, listed = (common.field(entry, key, str, file, line) for key in keys)
        sign = (_TRIPLE.findall(form) or [("", "", "", "?")])[0][3]
        if (strategy, sign) not in (("proof", "+"), ("inv-proof", "-")):
            continue
        goal = _statement(text, form.replace('"-"', '"+"'))
        for proof in listed.split("OR"):
            names = _NODE.findall(proof)
            if unknown := [name for name in names if name not in texts]:
                raise DataError(f"the proof names {unknown[0]!r}, which the theory lacks.", file, line)
            chain = tuple(texts[name] for name in names)
            if _FAILS.search(proof):
                left_out["with NAF or FAIL"] += 1
            elif len(set(chain)) not in NODES:
                left_out[f"without {NODES[0]} to {NODES[-1]} statements"] += 1
            elif not isinstance(goal, Fact) or not all(map(parse_statement, chain)):
                left_out["with a statement outside the language"] += 1
            else:
                yield _plain(text), render(goal), chain


def _statement(text: str, form: str) -> Statement | None:
    """The statement of a representation; None for a negated one. Articles stand in the text alone."""
    words = text.lower()
    triples = _TRIPLE.findall(form.lower())
    if not triples or any(sign != "+" for *_, sign in triples):
        return None
    facts = [
        Fact(_noun(subject, words), attribute if verb == "is" else f"{verb} {_noun(attribute, words)}")
        for subject, verb, attribute, _ in triples
    ]
    if "->" not in form:
        return facts[0]
    variables = {fact.subject for fact in facts} & VARIABLES.keys()
    names = tuple("" if fact.subject in VARIABLES else fact.subject for fact in facts)
    predicates = [fact.predicate for fact in facts]
    subjects = names if any(names) else ()
    return Rule(tuple(predicates[:-1]), predicates[-1], subjects, next(iter(variables), "someone"))


def _noun(name: str, words: str) -> str:
    return f"the {name}" if re.search(rf"\bthe {re.escape(name)}\b", words) else name


def _plain(text: str) -> str:
    """A sentence in lower case, with its full stop as a word, as the language writes it."""
    return " ".join(re.sub(r"\s*\.\s*$", " .", text.lower()).split())
