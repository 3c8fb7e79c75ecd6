"""Wrong answers fail by index, search or attribution (table 7 of arXiv 2407.00361)."""

import json
from pathlib import Path

import pytest
from failing import raises
from fixture_types import Capsys

from benchmarks.papers.failures import judge_answers, main
from grls.data.corpus import Corpus
from grls.data.dataset import read_queries, write_dataset
from grls.data.types import Passage, Query
from grls.errors import ConfigError
from grls.evaluation.answers import write_answers
from grls.runs.portions import RunInfo, fingerprint_queries, write_info

GOOSE = Passage("goose", "It has grey wings. The goose is white. A goose flies.", "goose")
ASKED = [
    Query(name, text, ("goose",), answers, json.dumps({"answers": answers}) if answers else "{}")
    for name, text, answers in (
        ("right", "what colour has a goose", ("white",)), ("no key", "what size", ("large",)),
        ("no stand", "what has wings", ("grey",)), ("unquoted", "which colour", ("white",)),
        ("elsewhere", "which colour is it", ("white",)), ("beyond", "and which colour", ("white",)),
        ("yes", "does it fly", ("yes",)), ("unseen", "does it swim", ("no",)), ("no answer", "why", ()),
    )
]  # fmt: skip
WHITE = "The goose is white."
WRITTEN = {  # query -> answer, quoted sentence, failure
    "right": ("White", WHITE, None), "no key": ("small", WHITE, "index"),
    "no stand": ("grey one", "It has grey wings.", "index"), "unquoted": ("blue", None, "search"),
    "elsewhere": ("blue", "A goose flies.", "search"), "beyond": ("blue", WHITE, "attribution"),
    "yes": ("no", "A goose flies.", "attribution"), "unseen": ("yes", None, "search"),
}  # fmt: skip


def test_wrong_answers_fail_by_index_search_or_attribution(tmp_path: Path, capsys: Capsys) -> None:
    data = tmp_path / "data"
    write_dataset(data, [GOOSE], ASKED, {"test": {query.id: {"goose": 1} for query in ASKED}})
    quotes = {q: [] if key is None else [key] for q, (_, key, _) in WRITTEN.items()}
    records = [
        {"query_id": q, "answer": said[0], "ended": True,
         "quotes": [{"text": key, "passages": ["goose"], "closed": True} for key in quotes[q]]}
        for q, said in WRITTEN.items()
    ]  # fmt: skip
    answers = str(tmp_path / "x.answers.jsonl")
    write_answers(answers, records)
    corpus, queries = Corpus.read(data), read_queries(data)
    made = RunInfo("generator", "x", "single", corpus.fingerprint, fingerprint_queries(queries), str(data),
                   "test", "", options={"keys": "sentence"})  # fmt: skip
    write_info(tmp_path / "x", made)
    main(answers, str(tmp_path / "why.json"))  # the manifest names the data
    counts = json.loads((tmp_path / "why.json").read_text())
    assert counts.pop("answers") == {query: why or "right" for query, (_, _, why) in WRITTEN.items()}
    assert counts.pop("shares") == pytest.approx({"index": 2 / 7, "search": 3 / 7, "attribution": 2 / 7})
    assert counts == {"queries": 8, "right": 1, "index": 2, "search": 3, "attribution": 2}
    assert "search             3   42.9%" in capsys.readouterr().out
    raises(ConfigError, "are of the kind sentence", judge_answers, answers, str(data), "x")


@pytest.mark.parametrize(
    ("keys", "quote", "failure"),
    [
        ("title", "It", "attribution"), ("title", None, "search"),
        ("title", "", "index"), (None, "It: A goose is here.", "attribution"),
    ],
)  # fmt: skip
def test_a_title_stands_for_its_passages(
    tmp_path: Path, keys: str | None, quote: str | None, failure: str
) -> None:
    """A film may be called like a pronoun, and an answer may stand in the title alone that was read."""
    answers = ("it",) if keys is None else ("goose",)
    title = "" if quote == "" else "It"
    goose = Passage("goose", "A goose is here.", title)
    query = Query("q", "what is here", ("goose",), answers, json.dumps({"answers": answers}))
    write_dataset(tmp_path / "data", [goose], [query], {"test": {"q": {"goose": 1}}})
    quotes = [{"text": quote, "passages": ["goose"], "closed": True}] if quote else []
    line = {"query_id": "q", "answer": "a swan", "ended": True, "quotes": quotes}
    write_answers(tmp_path / "x.answers.jsonl", [line])
    corpus, options = Corpus.read(tmp_path / "data"), {} if keys is None else {"keys": keys}
    info = RunInfo("generator", "x", "single", corpus.fingerprint, "", "", "test", "", options=options)
    write_info(tmp_path / "x", info)
    judged = judge_answers(str(tmp_path / "x.answers.jsonl"), str(tmp_path / "data"), None)
    assert judged == {"q": failure}
