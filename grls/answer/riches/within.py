"""Which passages under a title or a section header are meant: those most like what is asked for.

A title names an article and a header a section of it, so one key stands for several passages. They are told
apart by TF-IDF, as in "From RAG to RICHES" (arXiv 2407.00361, "retrieval keys"). How rare a word is, is
counted over the passages under the key alone, by scikit-learn: what all of them say tells none of them, and
nothing need be known of the rest of the corpus.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.data.words import Analyzer

_ENGLISH = Analyzer("en")
_DIGITS = 9
"""Similarities that differ less than in this digit are equal, so that rounding decides nothing."""


def by_similarity(texts: Sequence[str], wanted: str, analyzer: Analyzer = _ENGLISH) -> list[int]:
    """Places of texts by the cosine of their TF-IDF vectors with those of a text, best first.

    Weights are those of scikit-learn's ``TfidfVectorizer`` with ``sublinear_tf``: ``(1 + ln tf) *
    (1 + ln((1 + n) / (1 + df)))`` over the n texts, of words as an :class:`grls.data.words.Analyzer` splits
    them, function words left out (those that BM25 leaves out; scikit-learn's list has "fire" and "mill").

    Args:
        texts: The texts to order.
        wanted: What they are compared with.
        analyzer: What words are.

    Returns:
        Their places; of equally similar ones (as where no word is shared), the first one first.
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
