"""The kinds of miss of arXiv 2204.13596 (appendix A.12, on HotpotQA), told by titles.

A query with n gold passages is a miss if its first n retrieved passages are not these (of several accepted
paths, those of the nearest). Its kind is the first that holds of:

=========================== =================================================================================
``miss_later_hop``          the first gold passage was found (any one, where their order is free)
``miss_title_detail``       a passage was found whose title is nearly that of the first gold passage: the same
                            but for brackets, or at least 0.8 alike by difflib
``miss_implicit_first_hop`` the query does not name that title
``miss_distracted``         it does, and what was found belongs to another part of the query
=========================== =================================================================================

The paper told them by reading; the rules are ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from grls.data.corpus import Corpus
from grls.data.types import Query
from grls.data.words import plain_words
from grls.evaluation.metrics import Accepted, Scores
from grls.runs.results import find_passages, known_passages

KINDS = ("miss_later_hop", "miss_title_detail", "miss_implicit_first_hop", "miss_distracted")
ALIKE = 0.8
NOTE = (
    "Missed: the share of the queries with several gold passages whose first passages are not these. Later "
    "hop: the first gold passage was found. Similar title: another passage was found whose title is nearly "
    "that of the first. Not named: the question does not name the title of the first. Named: it does."
)
"""What the rows of a table mean, by their labels (:func:`grls.evaluation.evaluate.measure_label`)."""


def miss_kind(
    question: str, gold: Sequence[str], retrieved: Sequence[str], titles: Mapping[str, str], free: bool
) -> str | None:
    """The kind of a miss; None if the first passages are the gold ones (in any order if ``free``)."""
    found = {*retrieved[: len(gold)]}
    if found >= {*gold}:
        return None
    if not found.isdisjoint(gold if free else gold[:1]):
        return KINDS[0]
    title = _bare(titles[gold[0]])
    others = [_bare(titles[passage]) for passage in found.difference(gold)]
    if any(SequenceMatcher(None, title, other).ratio() >= ALIKE for other in others):
        return KINDS[1]
    return KINDS[3] if f" {title} " in f" {plain_words(question)} " else KINDS[2]


def miss_kinds(
    queries: Sequence[Query],
    found: Mapping[str, Sequence[str]],
    paths: Mapping[str, Accepted],
    corpus: Corpus,
) -> dict[str, Scores]:
    """Query id -> kind -> 1 if it is such a miss, of the queries with a gold path of several passages.

    Queries with gold passages that the corpus lacks are left out; all are if a gold passage has no title.
    """
    cases = {}
    for query in queries:
        path, ids = paths.get(query.id), found[query.id]
        if path is not None and len({*path.paths[0]}) > 1:
            golds = [list(dict.fromkeys(gold)) for gold in path.paths]
            shares = [len({*gold}.intersection(ids[: len(gold)])) / len(gold) for gold in golds]
            cases[query.id] = query.text, golds[shares.index(max(shares))], ids, path.any_order
    known = known_passages(corpus, (name for _, gold, _, _ in cases.values() for name in gold))
    cases = {query: case for query, case in cases.items() if known.keys() >= {*case[1]}}
    names = {name for _, gold, ids, _ in cases.values() for name in (*gold, *ids[: len(gold)])}
    titles = {name: passage.title for name, passage in find_passages(corpus, names).items()}
    if not all(titles[name] for _, gold, _, _ in cases.values() for name in gold):
        return {}
    scores = {}
    for name, (text, gold, ids, free) in cases.items():
        kind = miss_kind(text, gold, ids, titles, free)
        scores[name] = {known: float(known == kind) for known in KINDS}
    return scores


def _bare(title: str) -> str:
    return plain_words(re.sub(r"\(.*?\)", "", title)) or plain_words(title)
