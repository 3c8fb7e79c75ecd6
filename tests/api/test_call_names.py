"""Errors name the call and the arguments, not temporary folders and options of the shell."""

from collections.abc import Callable
from pathlib import Path

import pytest

import grls
from grls.api.searcher import Searcher
from grls.data.words import Analyzer
from grls.errors import GrlsError

TEXTS = ["otters eat fish", "herons eat frogs", "a lynx is quick"]
GOLD = ({"q": "otters"}, {"q": ["9"]})
CALLS: list[tuple[Callable[[Searcher, Searcher], object], str]] = [
    (
        lambda a, b: a.hops(steps="dynamic"),
        'hops: bm25 never writes DONE: choose steps="fixed", or a single step.',
    ),
    (
        lambda a, b: a.hops(steps="odd"),
        "hops: steps must be one of single, fixed, dynamic, ranked, got 'odd'.",
    ),  # type: ignore[arg-type]
    (lambda a, b: a.hops(temperature=2.0, steps="fixed"), 'done and onward are for steps="ranked".'),
    (lambda a, b: a.with_priors(b), "with_priors: priors look ahead for a generator: give the folder of"),
    (lambda a, b: grls.fuse([a, "gone"]), "fuse: members[1] names gone, but there is no retriever at gone:"),
    (
        lambda a, b: grls.fuse([b, a.hops(), grls.BM25(TEXTS[:2])]),
        "is over kept/corpus.jsonl (3 passages) and members[2] BM25Retriever over the corpus of searchers[2]",
    ),
    (lambda a, b: a.rescored("no/such/model"), "no such folder: no/such/model. Run"),
    (lambda a, b: a.rescored("kept"), "rescored: cannot load a cross-encoder from 'kept': "),
    (lambda a, b: a.tune({"q": "otters"}, {"q": ["0"]}), "this retriever has nothing to tune: "),
    (
        lambda a, b: grls.fuse([a, b]).tune(*GOLD),
        "the passage id '9' is not in the corpus of a member of this",
    ),
    (lambda a, b: a.explain("otters"), "with queries in this retriever or beside it"),
    (
        lambda a, b: a.hops().search("otters", where="yaer>1"),
        "no passage of the corpus of a member of this ret",
    ),
    (lambda a, b: list(a.hops().stream("otters", allow=["9"])), "not in the corpus of a member of this ret"),
    (
        lambda a, b: grls.BM25(["1 2", "3 4"], analyzer=Analyzer(stem=True)),
        "the language of the corpus cannot be guessed: give analyzer=Analyzer(language=…).",
    ),
]


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_errors_name_what_was_written(
    call: Callable[[Searcher, Searcher], object],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GrlsError) as caught:
        call(grls.BM25(TEXTS), grls.BM25(TEXTS, output="kept"))
    assert expected in str(caught.value)
    assert not any(part in str(caught.value) for part in ("--", "/tmp", ".grls.", "../"))
