"""A text where a list of texts is meant is a list of one."""

from typing import Any

import pytest
from failing import raises

from grls.errors import ConfigError
from grls.retrieve.hub_names import CardOptions
from grls.retrieve.update import Changes
from grls.serve.options import AccessOptions, AnswerOptions
from grls.train.options import LearnBeside, Rescore
from grls.tune.options import TuneOptions, TuneRuns

FIELDS = [
    (CardOptions, "languages", "en"), (CardOptions, "base_models", "user/model"),
    (CardOptions, "datasets", "user/data"), (Changes, "remove", "p1"),
    (AccessOptions, "origins", "https://example.org"),
    (AccessOptions, "allowed_hosts", "search.example.org"), (AnswerOptions, "methods", "direct"),
    (TuneOptions, "choose", "likeliest"), (TuneRuns, "runs", "runs/a"),
    (LearnBeside, "retrievers", "bm25"), (Rescore, "retrievers", "runs/dense"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "name", "text"), FIELDS)
def test_a_text_is_a_list_of_one(options: Any, name: str, text: str) -> None:
    for value in (text, [text], (text,)):
        assert list(getattr(options(**{name: value}), name)) == [text]


@pytest.mark.parametrize(("options", "name", "text"), FIELDS)
def test_what_holds_no_texts_is_refused(options: Any, name: str, text: str) -> None:
    for value in ([text, 1], 3, {text: text}):
        raises(ConfigError, f"{name}: expected a text or a list of texts", options, **{name: value})
