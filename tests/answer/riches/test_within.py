"""The passages of one key, told apart by TF-IDF."""

import math

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from grls.answer.riches.answerer import by_similarity
from grls.data.words import Analyzer


def test_the_passage_that_shares_rare_words_comes_first() -> None:
    texts = ["The mill has a wheel.", "The mill has a roof and a wheel.", "The mill has a roof."]
    assert by_similarity(texts, "which mill has a roof") == [2, 1, 0]
    assert by_similarity(texts, "the wheel") == [0, 1, 2]
    assert by_similarity(texts, "the wheel and the roof") == [1, 0, 2]


def test_function_words_are_those_of_the_language() -> None:
    texts = ["die Mühle steht nicht", "der Bach und das Wehr"]
    assert by_similarity(texts, "der und das Mühle") == [1, 0]
    assert by_similarity(texts, "der und das Mühle", Analyzer("de")) == [0, 1]


def test_equally_similar_passages_stay_in_their_order() -> None:
    assert by_similarity(["mill roof", "barn roof", "mill roof"], "mill") == [0, 2, 1]
    assert by_similarity(["mill", "barn", "cow"], "nothing of that") == [0, 1, 2]
    assert by_similarity(["the", "of", "a"], "the mill") == [0, 1, 2]  # no word is left
    assert by_similarity(["mill"], "mill") == [0]
    assert by_similarity([], "mill") == []


def test_the_order_is_that_of_the_weights_that_are_documented() -> None:
    """1 + log of the count, by 1 + log of passages by those with the word; cosines."""
    texts, wanted = ["mill mill roof", "roof barn barn barn", "roof cow"], "barn roof"
    words = ("barn", "cow", "mill", "roof")
    idf = np.array([1 + math.log(4 / (1 + sum(word in text.split() for text in texts))) for word in words])

    def vector(text: str) -> np.ndarray:
        counts = np.array([text.split().count(word) for word in words])
        some = np.array([1 + math.log(count) if count else 0.0 for count in counts]) * idf
        return some / np.linalg.norm(some)

    expected = [float(vector(text) @ vector(wanted)) for text in texts]
    rows = TfidfVectorizer(sublinear_tf=True).fit(texts)
    assert (rows.transform(texts) @ rows.transform([wanted]).T).toarray()[:, 0] == pytest.approx(expected)
    assert by_similarity(texts, wanted) == np.argsort([-value for value in expected]).tolist() == [1, 2, 0]
