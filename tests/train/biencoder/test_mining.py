"""Hard negatives of a hop are found with its evidence."""

from grls.data.corpus import Corpus
from grls.data.types import Passage, Query
from grls.data.words import USUAL
from grls.train.biencoder.examples import miner_of


def test_a_miner_searches_with_the_evidence_of_the_hop() -> None:
    corpus = Corpus.from_passages([Passage("a", "otters eat fish"), Passage("b", "herons live in reeds")])
    mine = miner_of("bm25", corpus, 0, USUAL)
    query = Query("q", "what do otters eat ?")
    alone, after = mine([query, query], [[], [Passage("e", "reeds reeds herons herons live")]], 2)
    assert alone[0] == "a"
    assert after[0] == "b"
