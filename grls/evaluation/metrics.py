"""Metrics: each is a plain function of one query, whose docstring states its convention.

``ids`` are the passages that were retrieved, best first (those of a chain in hop order, without DONE),
``gold`` the gold passages, ``ks`` cut-offs. A metric gives names and values in [0, 1]; a name is left out,
or NaN, where it does not apply to the query. A query without an answer scores 0 and is never skipped.

:func:`score_table` makes a table of them, query x metric, and :func:`averages` its means; :func:`means`
does both for lists. ``hugging_face`` has them for ``evaluate.load``.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import regex

from grls.data.words import UNSPACED, function_words, pieces
from grls.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd  # late below: it takes a third of a second

KS = (1, 5, 10, 20)
"""The default cut-offs."""

Scores = dict[str, float]
"""Metric -> value of one query."""


def score_table(metric: Callable[..., Scores], *inputs: Mapping[str, Any], **options: Any) -> pd.DataFrame:
    """The scores of each query that all inputs (query id -> value) have: a table query x metric."""
    import pandas as pd

    first, *others = inputs
    queries = [query for query in first if all(query in values for values in others)]
    rows = [metric(*(values[query] for values in inputs), **options) for query in queries]
    return pd.DataFrame(rows, index=queries, dtype=float)


def averages(table: pd.DataFrame) -> dict[str, Any]:
    """The mean of each metric over the queries to which it applies; None: there is none.

    What is called ``queries``, or ends so, is their number: a sum.
    """
    if not len(table):
        raise DataError("there is no query to average over; give at least one query with its gold.")
    sums, values = table.sum(), table.mean()
    return {
        name: int(sums[name]) if name.endswith("queries") else None if math.isnan(value) else float(value)
        for name, value in values.items()
    }


def means(metric: Callable[..., Scores], *inputs: Sequence[Any], **options: Any) -> dict[str, Any]:
    """The averages of a metric over queries; each input has one item a query, in the same order."""
    import pandas as pd

    rows = [metric(*row, **options) for row in zip(*inputs, strict=True)]
    return averages(pd.DataFrame(rows, dtype=float))


def cutoffs(ks: Sequence[int]) -> list[int]:
    """The cut-offs, ascending and without repeats; there must be one, and none below 1 (ConfigError)."""
    if not ks or min(ks) < 1:
        raise ConfigError(f"expected cut-offs k of at least 1, got {list(ks)}.")
    return sorted(set(ks))


def recall_at(ids: Sequence[str], gold: Collection[str], k: int) -> float:
    """Recall@k of one query; 0 if it has no gold passage."""
    return len(set(ids[:k]) & set(gold)) / len(set(gold)) if gold else 0.0


def sequence_recall(ids: Sequence[str], gold: Collection[str], ks: Sequence[int] = KS) -> Scores:
    """Sequence recall, ``recall@k``: (gold passages among the first k) / (all gold passages).

    This is trec_eval's ``recall_k`` and ir_measures' ``R@k``. With more than k gold passages it cannot
    reach 1. The order of the gold passages does not count. A passage retrieved twice takes two ranks and
    counts once.
    """
    return {f"recall@{k}": recall_at(ids, gold, k) for k in cutoffs(ks)}


def complete_recall(ids: Sequence[str], gold: Collection[str], ks: Sequence[int] = KS) -> Scores:
    """``complete_recall@k``: 1 if all gold passages are among the first k, in any order.

    For HotpotQA's two gold passages this is multi-hop dense retrieval's passage exact match and path
    recall@k (arXiv 2009.12756, tables 2 and 3), elsewhere "all evidence found". It is at most the sequence
    recall, and equal if there is one gold passage. A query without gold passages scores 0.
    """
    return {f"complete_recall@{k}": float(bool(gold) and set(gold) <= set(ids[:k])) for k in cutoffs(ks)}


def hits(ids: Sequence[str], gold: Collection[str], ks: Sequence[int] = KS) -> Scores:
    """``hits@k``: 1 if a gold passage is among the first k; one that is listed twice takes two ranks."""
    return {f"hits@{k}": float(not set(gold).isdisjoint(ids[:k])) for k in cutoffs(ks)}


def seen_unseen(
    ids: Sequence[str], gold: Collection[str], seen: Collection[str], ks: Sequence[int] = KS
) -> Scores:
    """Recall of gold passages that are gold of a training query (``seen``), and of the others.

    ``seen_recall@k`` is (seen gold passages in the first k) / (its seen gold passages), ``unseen_recall@k``
    likewise: each of the queries with such gold passages, so the two means rest on different queries, whose
    numbers are ``seen_queries``, ``unseen_queries``, and ``all_unseen_queries`` with unseen ones only
    (their share of all queries is the unseen rate of arXiv 2204.13596, table 1). Memorising a passage does
    not make it seen. Ranks count in the whole list: a seen passage above an unseen one takes a rank.
    """
    scores: Scores = {}
    parts = {"seen": {*gold} & {*seen}, "unseen": {*gold} - {*seen}}
    for kind, part in parts.items():
        scores |= {f"{kind}_recall@{k}": recall_at(ids, part, k) if part else math.nan for k in cutoffs(ks)}
        scores[f"{kind}_queries"] = bool(part)
    return scores | {"all_unseen_queries": bool(parts["unseen"]) and not parts["seen"]}


def set_f1(ids: Collection[str], gold: Collection[str]) -> Scores:
    """``precision``, ``recall`` and ``f1`` of a chain as a set: with R its distinct passages and G the gold
    ones, |R ∩ G| / |R|, |R ∩ G| / |G| and 2|R ∩ G| / (|R| + |G|).

    These are trec_eval's ``set_P``, ``set_recall``, ``set_F`` and ir_measures' ``SetP``, ``SetR``,
    ``SetF``: a division by 0 gives 0, so an empty chain scores 0, also if there is no gold passage. The
    mean F1 is not the F1 of the means.
    """
    found, relevant = set(ids), set(gold)
    common = len(found & relevant)
    if not common:
        return {"precision": 0.0, "recall": 0.0, "f1": 0.0}
    f1 = 2 * common / (len(found) + len(relevant))
    return {"precision": common / len(found), "recall": common / len(relevant), "f1": f1}


def known_number(ids: Sequence[str], gold: Collection[str]) -> Scores:
    """``f1_known_number``: set F1 of the first n distinct passages, for n gold passages.

    If there are n of them, it is their precision and recall as well, trec_eval's ``Rprec``. A chain that
    ended earlier stays short, so of a run that ends by itself this is a lower bound.
    """
    return {"f1_known_number": set_f1(list(dict.fromkeys(ids))[: len(set(gold))], gold)["f1"]}


def hop_hits(ids: Sequence[str], evidence: Sequence[str], limit: int | None = None) -> Scores:
    """``H1``, ``H2``, …: whether the h-th passage of a chain is a gold one, for each hop that has a gold
    passage.

    ``evidence`` names a passage as often as it is used. A passage counts as often; its place in the gold
    order does not count (:func:`path_match` says whether it was right). A chain that ends before its h-th
    hop scores 0 there. ``limit``: the largest number of hops.
    """
    hops = len(evidence) if limit is None else min(len(evidence), limit)
    return {
        f"H{hop + 1}": float(
            hop < len(ids) and list(ids[: hop + 1]).count(ids[hop]) <= list(evidence).count(ids[hop])
        )
        for hop in range(hops)
    }


class Accepted(NamedTuple):
    """The accepted paths of one query.

    Attributes:
        paths: Equally good paths, each the ids of gold passages in retrieval order.
        any_order: Whether a path's passages may come in any order.
    """

    paths: Sequence[Sequence[str]]
    any_order: bool = False


def path_match(ids: Sequence[str], accepted: Accepted) -> Scores:
    """``path_match``: 1 if the first passages are an accepted path, passage by passage (or in any order, if
    the data allow any order).

    Passages behind it do not count: :func:`set_f1` measures whether a chain ends in time. A passage
    retrieved twice takes two places, so the path is not matched. A query without a path scores 0.
    """
    for path in map(list, accepted.paths):
        first = list(ids[: len(path)])
        if path and (first == path or (accepted.any_order and sorted(first) == sorted(path))):
            return {"path_match": 1.0}
    return {"path_match": 0.0}


def exact_chain(ids: Sequence[str], gold: Collection[str], accepted: Accepted | None = None) -> Scores:
    """``exact_set``: 1 if the distinct passages are the gold ones, in any order (passage exact match of
    arXiv 2009.12756, where the chain has to end at the right place as well); ``exact_chain``: 1 if the
    chain is an accepted path, passage by passage.

    Both ask for the right end as well, unlike complete recall and path match. ``accepted``: None without a
    known order, which leaves out ``exact_chain``.
    """
    scores = {"exact_set": float(bool(gold) and set(ids) == set(gold))}
    if accepted is not None:
        whole = accepted._replace(paths=[path for path in accepted.paths if len(path) == len(ids)])
        scores["exact_chain"] = path_match(ids, whole)["path_match"]
    return scores


def done_missing(done: bool) -> Scores:
    """``done_missing``: 1 if a dynamic chain ends without DONE, at the hop limit or without passages. Lower
    is better.

    It says whether the model stops, not whether it stops at the right place: :func:`set_f1` measures that.
    A query without a chain counts as a chain without DONE. Chains of a fixed number of hops have no DONE to
    miss.
    """
    return {"done_missing": float(not done)}


_TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")  # DPR's


@lru_cache(10_000)
def padded_tokens(text: str) -> str:
    """The tokens of a text with one space before and after each; a single space for a text without tokens."""
    return " ".join(["", *_TOKEN.findall(unicodedata.normalize("NFD", text).lower()), ""])


def contains_answer(text: str, answers: Iterable[str]) -> bool:
    """Whether a text contains one of the answers, as DPR's ``has_answer`` tells it.

    A token is a run of letters, digits and marks, or any other single character that is neither space nor
    control, in Unicode NFD and lower case. The text must have the tokens of the answer in the same order
    without a gap: "cat" is not in "catalogue", and "U.S." is not in "us". Articles and punctuation stay. An
    answer without a token is never contained.
    """
    return any(answer in padded_tokens(text) for answer in map(padded_tokens, answers) if answer.strip())


def answer_recall(texts: Sequence[str], answers: Sequence[str], ks: Sequence[int] = KS) -> Scores:
    """``answer_recall@k``: 1 if the text of one of the first k passages contains an accepted answer.

    A query without an accepted answer scores 0.
    """
    limits = cutoffs(ks)
    first = texts[: limits[-1]]
    rank = next((n for n, text in enumerate(first, 1) if contains_answer(text, answers)), limits[-1] + 1)
    return {f"answer_recall@{k}": float(rank <= k) for k in limits}


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_UNSPACED = regex.compile(f"[{UNSPACED}]")
_SIGNS = regex.compile(r"\p{P}")


def normalise_answer(answer: str) -> str:
    """An answer in the form in which answers are compared, as SQuAD's evaluation does it.

    It is lower-cased, ASCII punctuation and the articles a, an, the are removed, white space becomes
    single. If it has a character of a script without spaces between words (Chinese, Japanese, Thai, …; also
    Korean), all punctuation and no article is removed, and each such character is a word, as in the
    evaluation scripts of CMRC 2018 and MLQA for Chinese and of KorQuAD for Korean; white space between such
    characters does not count.
    """
    text = answer.lower().translate(_PUNCTUATION)
    if not text.isascii() and _UNSPACED.search(text):
        return " ".join(piece.strip() for piece in pieces(_SIGNS.sub("", text)))
    return " ".join(_ARTICLES.sub(" ", text).split())


def answer_f1(answer: str, accepted: Sequence[str]) -> Scores:
    """``exact_match`` and ``f1`` of a short answer, normalised, as SQuAD's evaluation defines them.

    F1 compares the bags of words (1 if both are empty, 0 if one is). The best of several accepted answers
    counts. An answer of white space only scores 0. Without an accepted answer no answer could be right, so
    that is refused.
    """
    if not accepted:
        raise ValueError("a query without accepted answers cannot be scored")
    if not answer.strip():  # even if an accepted answer is only an article
        return {"exact_match": 0.0, "f1": 0.0}
    normalised, others = normalise_answer(answer), [normalise_answer(other) for other in accepted]
    f1 = max(_bag_f1(normalised.split(), other.split()) for other in others)
    return {"exact_match": float(normalised in others), "f1": f1}


def novel_f1(answer: str, accepted: Sequence[str], questions: Sequence[str]) -> Scores:
    """``novel_f1``: F1 over the words that the conversation has not said already (nF1 of arXiv 2212.14024,
    section 4).

    As F1, but the function words of English and all words of ``questions``, those of the conversation with
    the last one, are removed from the answer and from the accepted one.
    """
    if not accepted:
        raise ValueError("a query without accepted answers cannot be scored")
    known = _function_words().union(*(normalise_answer(question).split() for question in questions))

    def novel(text: str) -> list[str]:
        return [word for word in normalise_answer(text).split() if word not in known]

    best = max(_bag_f1(novel(answer), novel(right)) for right in accepted)
    return {"novel_f1": best if answer.strip() else 0.0}


@lru_cache(1)
def _function_words() -> frozenset[str]:
    return frozenset(normalise_answer(word) for word in function_words("en"))


def _bag_f1(words: Sequence[str], accepted: Sequence[str]) -> float:
    if not words or not accepted:
        return float(not words and not accepted)
    return 2 * _common(words, accepted) / (len(words) + len(accepted))


def share_within(answer: str, text: str) -> float:
    """The share of an answer's words that a text has, both normalised: the precision of the answer in the
    text.

    A word that the answer has twice must be twice in the text. An answer without words has the share 0.
    """
    words = normalise_answer(answer).split()
    return _common(words, normalise_answer(text).split()) / len(words) if words else 0.0


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    return sum((Counter(first) & Counter(second)).values())
