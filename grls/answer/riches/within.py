"""Ranks the passages under a title or a section header by similarity to the query.

A title names an article and a header a section of it, so one key stands for several passages. TF-IDF ranks
them, as in "From RAG to RICHES" (arXiv 2407.00361, "retrieval keys"). scikit-learn counts document
frequencies over the passages under the key only: a word of all of them distinguishes none, and the rest of
the corpus is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.data.words import Analyzer

_ENGLISH = Analyzer("en")
_DIGITS = 9
"""Similarities are compared at this many digits, so that rounding errors do not matter."""


def by_similarity(texts: Sequence[str], wanted: str, analyzer: Analyzer = _ENGLISH) -> list[int]:
    """Places of texts by the cosine of their TF-IDF vectors with that of a text, best first.

    Weights are those of scikit-learn's ``TfidfVectorizer`` with ``sublinear_tf``: ``(1 + ln tf) *
    (1 + ln((1 + n) / (1 + df)))`` over the n texts, of words as an :class:`grls.data.words.Analyzer` splits
    them, function words left out (those that BM25 leaves out; scikit-learn's list has "fire" and "mill").

    Args:
        texts: The texts to order.
        wanted: The text to compare them with.
        analyzer: Splits texts into words.

    Returns:
        The places of the texts; equally similar texts (such as those without a shared word) keep their order.
    """
    if len(texts) < 2:
        return list(range(len(texts)))
    vectorizer = TfidfVectorizer(analyzer=analyzer.words, sublinear_tf=True)
    if not any(map(vectorizer.build_analyzer(), texts)):
        return list(range(len(texts)))
    rows = vectorizer.fit_transform(texts)
    similarity = (rows @ vectorizer.transform([wanted]).T).toarray()[:, 0]
    order: list[int] = np.argsort(-similarity.round(_DIGITS), kind="stable").tolist()
    return order
