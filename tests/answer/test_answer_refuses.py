"""What the parts of an answer refuse: the call, and what its error says."""

from collections.abc import Callable
from typing import Any

import pytest
from failing import raises
from ralm_helpers import byte_tokenizer, causal_model

from grls.answer.dsp.options import ProgramOptions
from grls.answer.dsp.programs import program_named
from grls.answer.ralm.options import WindowOptions
from grls.answer.ralm.reader import InContextRalm
from grls.answer.retrievers import open_for_reading
from grls.answer.riches.keys import build_keys
from grls.answer.riches.options import KeyOptions
from grls.data.corpus import Corpus
from grls.data.types import Passage
from grls.errors import GrlsError
from grls.retrieve.hops.options import HopOptions

TOKENIZER = byte_tokenizer()


def keys(text: str = "The mill.", *options: Any, **more: Any) -> Any:
    corpus = Corpus.from_passages([Passage("x", text)])
    return build_keys(corpus, TOKENIZER, KeyOptions(*options), **more)


def windowed(**options: int) -> Any:
    return InContextRalm(
        causal_model(TOKENIZER), TOKENIZER, WindowOptions(documents=0, **options), None, None
    )


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: keys("text", "word"), r"kind must be one of .*'word'"),
    (lambda: keys("text", "proposition"), "go together"),
    (lambda: keys("text", "title"), "no title to quote"),
    (lambda: keys("a » b"), r"'x' holds the marker '»'.*other markers"),
    (lambda: keys(markers=("", "x")), "marker"),
    (lambda: keys(markers=("«", " »")), "marker"),
    (lambda: windowed(stride=0), "stride must be at least 1"),
    (lambda: windowed(window=256), "128 positions"),
    (lambda: program_named("multihop", None, ProgramOptions()), "multihop retrieves"),
    (lambda: open_for_reading("bm25"), r"retriever=.bm25. needs data"),
    (lambda: open_for_reading(None, HopOptions("fixed")), 'give retriever=FOLDER or "bm25"'),
]


@pytest.mark.parametrize(("call", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_it_is_refused(call: Callable[[], Any], says: str) -> None:
    raises(GrlsError, says, call)
