"""BM25 against its formula."""

import math

import pytest

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.data.words import Analyzer
from grls.errors import ConfigError, DataError
from grls.retrieve.bm25 import BM25Retriever

PASSAGES = [
    Passage("empty", "!"),
    Passage("p1", "green frogs eat flies"),
    Passage("p2", "flies live near ponds", title="Insects"),
    Passage("p3", "ponds hold green green water and frogs"),
    Passage("p4", "stone walls"),
    Passage("p5", "stone walls"),
]
CORPUS = Corpus.from_passages(PASSAGES)


def lucene_bm25(query: str, k1: float, b: float) -> dict[str, float]:
    """The formula, word by word (stop words kept)."""
    words = {p.id: [w for w in f"{p.title} {p.text}".lower().split() if len(w) > 1] for p in PASSAGES}
    mean_length = sum(map(len, words.values())) / len(words)
    scores = dict.fromkeys(words, 0.0)
    for word in query.lower().split():
        holders = sum(word in text for text in words.values())
        idf = math.log(1 + (len(words) - holders + 0.5) / (holders + 0.5))
        for passage_id, text in words.items():
            count = text.count(word)
            scores[passage_id] += idf * count / (count + k1 * (1 - b + b * len(text) / mean_length))
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4)])
def test_scores_follow_the_formula(k1, b):
    query = "Green frogs near insects"
    hits = BM25Retriever(CORPUS, k1, b, analyzer=Analyzer("none")).retrieve([Query("q", query)], 10)[0]
    expected = {i: score for i, score in lucene_bm25(query, k1, b).items() if score > 0}
    assert {hit.id: hit.score for hit in hits} == pytest.approx(expected, rel=1e-5)
    assert [hit.id for hit in hits] == sorted(expected, key=lambda i: -expected[i])


def test_the_top_k_is_the_front_of_the_whole_ranking():
    retriever = BM25Retriever(CORPUS)
    queries = [Query("q1", "green ponds frogs flies"), Query("q2", "walls")]
    whole = retriever.retrieve(queries, 100)
    assert [len(hits) for hits in whole] == [3, 2]
    for k in (1, 2, 3):
        assert retriever.retrieve(queries, k) == [hits[:k] for hits in whole]


def test_ties_go_to_the_first_passage_of_the_corpus():
    texts = ("the same words", "other", "some other words that are alike")
    many = Corpus.from_passages(Passage(f"p{n}", texts[n % 3]) for n in range(3000))
    hits = BM25Retriever(many).retrieve([Query("q", "words")], 1500)[0]
    assert [hit.id for hit in hits] == [f"p{n}" for start in (0, 2) for n in range(start, 3000, 3)][:1500]


def test_a_query_without_a_known_word_gets_no_hit():
    queries = [Query("q1", "zebra"), Query("q2", "?"), Query("q3", "the and of"), Query("q4", "stone")]
    assert [len(hits) for hits in BM25Retriever(CORPUS).retrieve(queries, 5)] == [0, 0, 0, 2]
    assert BM25Retriever(CORPUS).retrieve([], 5) == []


def test_stop_words_are_kept_on_request():
    query = [Query("q", "and")]
    assert BM25Retriever(CORPUS, analyzer=Analyzer("en")).retrieve(query, 5) == [[]]
    every = BM25Retriever(CORPUS, analyzer=Analyzer("none"))
    assert [hit.id for hit in every.retrieve(query, 5)[0]] == ["p3"]


def test_what_cannot_work_is_refused():
    with pytest.raises(DataError, match="no word to index"):
        BM25Retriever(Corpus.from_passages([]))
    with pytest.raises(DataError, match="no word to index"):
        BM25Retriever(Corpus.from_passages([Passage("p", "!"), Passage("r", "")]))
    with pytest.raises(ConfigError, match=r"b must be between 0 and 1, got 1\.5"):
        BM25Retriever(CORPUS, b=1.5)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        BM25Retriever(CORPUS).retrieve([Query("q", "frogs")], 0)
