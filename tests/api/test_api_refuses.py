"""What the calls of the library refuse, and what its errors say; wrong types: ``test_wrong_calls.py``."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ir_measures
import pandas as pd
import pytest

import grls
from grls import Query
from grls.api.searcher import Searcher
from grls.data.words import Analyzer
from grls.errors import GrlsError

THREE = ["otters eat fish", "herons eat frogs", "a lynx is quick"]
QUERIES = {f"q{n}": f"question {n}" for n in range(4)}
GOLD = {"q0": ["a"], "q1": ["b", "c"], "q2": {"a", "c"}, "q3": {"b": 2, "c": 1, "a": 0}}


def load(place: Path) -> Searcher:
    return grls.load(place, device="cpu")


class Fixed:
    """A system with fixed hits; without any it must not be asked."""

    def __init__(self, hits: Any = None):
        self.hits = hits

    def search(self, queries: list[str], k: int) -> Any:
        assert self.hits is not None, "searched before all was checked"
        return [self.hits[int(query[-1])] for query in queries]


def compared(**options: Any) -> Callable[[Searcher, Path], object]:
    """An experiment with one argument that is wrong."""
    given = {"systems": {"one": Fixed()}, "queries": QUERIES, "gold": GOLD, **options}
    return lambda words, kinds: grls.experiment(**given)


def ranked(first: Any, second: Any = ()) -> Callable[[Searcher, Path], object]:
    """An experiment whose system gives these hits to its first queries."""
    return compared(systems={"one": Fixed([first, second, [], []])})


REFUSED: list[tuple[Callable[[Searcher, Path], object], str]] = [
    # search
    (lambda a, kinds: a.search(""), "query 0: its text is empty"),
    (lambda a, kinds: a.search(["otter", " \n"]), "query 1: its text is empty"),
    (lambda a, kinds: a.search({"id": "q1", "text": "otter"}), "this is a single query; put it in a list"),
    (lambda a, kinds: a.search(5), "queries: expected a list of texts or objects"),
    (lambda a, kinds: a.search([Query("q7", None)]), "query 0 ('q7'): its text must be a text, got None"),  # type: ignore[arg-type]
    (lambda a, kinds: a.search([Query(pd.NA, "otters")]), "query 0"),  # type: ignore[arg-type]
    (lambda a, kinds: a.search(["\ud800"]), "without half characters"),
    (lambda a, kinds: a.search("otter", 0), "k must be at least 1, got 0"),
    (lambda a, kinds: a.search("otter", allow="1"), "allow must be a list of texts or whole numbers"),
    (lambda a, kinds: a.hops().search("otters", where="yaer>1"), "has the metadata field 'yaer'"),
    (lambda a, kinds: list(a.hops().stream("otters", allow=["9"])), "a filter names the passage id '9'"),
    (lambda a, kinds: load(kinds / "dense").search("otter " * 900), "grls.load(FOLDER, truncate_queries=Tr"),
    (
        lambda a, kinds: grls.load("https://huggingface.co/user/name/tree/main"),
        "its name on the hub, user/na",
    ),
    # composites
    (lambda a, kinds: a.hops(steps="dynamic"), 'hops: bm25 never writes DONE: choose steps="fixed", or a'),
    (lambda a, kinds: a.hops(steps="odd"), "hops: steps must be one of single, fixed, dynamic, ranked, got"),  # type: ignore[arg-type]
    (lambda a, kinds: a.hops(steps="single"), "a single step has no hops"),
    (lambda a, kinds: a.hops(temperature=2.0, steps="fixed"), "temperature is of other hops: choose steps="),
    (lambda a, kinds: a.hops(output=kinds), "exists and holds no grls.json"),
    (
        lambda a, kinds: a.with_priors("kept"),
        "with_priors: priors look ahead for a generator: give the folder",
    ),
    (
        lambda a, kinds: load(kinds / "generative").with_priors(a, weights=[1, 2]),
        "2 weights for 1 prior: give one for each prior.",
    ),
    (
        lambda a, kinds: load(kinds / "generative").with_priors(load(kinds / "dense").hops()),
        "does not score all passages",
    ),
    (lambda a, kinds: a.with_priors(a, weigth=1), "no argument 'weigth'; did you mean weight"),
    (lambda a, kinds: grls.fuse(["bm25", "bm25"]), "at least two retrievers, one of them a searcher"),
    (lambda a, kinds: grls.fuse([a, "bm25"], method="best"), "one of interleave, rrf, sum, got 'best'"),  # type: ignore[arg-type]
    (
        lambda a, kinds: grls.fuse([a, "gone"]),
        "fuse: members[1] names gone, but there is no retriever at gone",
    ),
    (
        lambda a, kinds: grls.fuse([a, a.hops(), grls.BM25(THREE[:2])]),
        "members[0] BM25Retriever is over corpus (3 passages) and members[2] BM25Retriever over corpus (2 pa",
    ),
    (lambda a, kinds: a.rescored("no/such/model"), "no such folder: no/such/model. Correct"),
    (lambda a, kinds: a.rescored("kept"), "rescored: cannot load a cross-encoder from 'kept': "),
    (lambda a, kinds: a.rescored(kinds / "encoder", weight=-1), "weight must be at least 0"),
    (
        lambda a, kinds: grls.BM25(["1 2", "3 4"], analyzer=Analyzer(stem=True)),
        "the language of the corpus cannot be guessed: give analyzer=Analyzer(language=…).",
    ),
    # tune and explain
    (lambda a, kinds: a.tune({"q": "otters"}, {"q": ["0"]}), "this retriever has nothing to tune: "),
    (lambda a, kinds: a.tune({"q": "otters"}, {"q": ["0"]}, beams=3), "tune has no argument 'beams'"),
    (
        lambda a, kinds: grls.fuse([a, "kept"]).tune({"q": "otters"}, {"q": ["9"]}),
        "gold: query 'q': the passage id '9' is not in corpus, nor is any other",
    ),
    (
        lambda a, kinds: a.explain("otters"),
        "no data set with queries is known (data, or what `grls fit` leaves)",
    ),
    (lambda a, kinds: a.explain(Query("q", "otters")), "has no evidence; name its gold passages: gold=[…]"),
    (lambda a, kinds: a.explain("otters", "z"), "gold: the passage id 'z' is not in the retriever's corpus"),
    (lambda a, kinds: a.explain("otters", []), "gold names no passage"),
    # experiments: all is checked before the first search
    (compared(systems={}), "systems: expected a dict of at least one system"),
    (compared(systems={"one": "runs/mine"}), "got 'runs/mine'; open a retriever folder with"),
    (compared(baseline="two"), "baseline: 'two' is none of the systems 'one'"),
    (compared(measures=[]), "expected at least one measure, such as 'nDCG@10'"),
    (compared(measures=["recall@5"]), "measures: 'recall@5' is no measure"),
    (compared(measures=["R@5"], k=4), "a measure reads 5 hits, and k is 4"),
    (compared(queries=[]), "there is no query"),
    (compared(queries={**QUERIES, "q4": "question 4"}), "1 query has no gold passage: 'q4'"),
    (compared(gold=None), "4 queries have no gold passage"),
    (compared(systems={"known": grls.BM25({"z": "otters"}), "one": Fixed()}), "is not in corpus, nor is any"),
    (ranked(["a", "a"]), "'one', query 'q0': a passage is listed twice"),
    (ranked(["a"], None), "'one', query 'q1': expected a list of hits, got None"),
    (ranked(["a"], [None]), "'one', query 'q1', a hit: expected an id"),
    (ranked([("a", 0.1), ("b", 0.2)]), "'q0': the scores rise, from 0.1 to 0.2 at passage 'b'"),
    (ranked({"a": {"score": 1}}), "such as {'p7': 3.2}"),
    (ranked(ir_measures.ScoredDoc("q", "a", 1)), "expected a list of hits"),
]


@pytest.mark.parametrize(("call", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_it_is_refused(
    call: Callable[[Searcher, Path], object], says: str, kinds: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Errors name what was written, and no option as a shell does."""
    monkeypatch.chdir(tmp_path)
    grls.BM25(THREE, output="kept")
    with pytest.raises(GrlsError) as caught:
        call(grls.BM25(THREE), kinds)
    assert says in str(caught.value)
    assert not re.search(r"--|\.grls\.|\.\./", str(caught.value))
