import gzip
import json

import pytest
from prep_helpers import fails, prepared

from data_prep.nq import FILE, prepare
from grls.data.corpus import Corpus


def _record(n, **changes):
    passage = {"title": "Numbers", "text": f"The number {n} is a number.", "isgold": True, "hasanswer": True}
    return {"question": f"what is {n}", "answers": [f"number {n}", str(n)], "ctxs": [passage], **changes}


def _write(file, records):
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        stream.writelines((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw").mkdir()
    _write(tmp_path / "raw" / FILE, [_record(n % 35, question=f"what is {n}") for n in range(40)])
    return tmp_path / "raw"


def test_corpus_is_the_gold_passages(raw, tmp_path):
    texts, splits = prepared(prepare, tmp_path / "out", raw=raw)
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 32, "dev": 2, "test": 6}
    assert len(texts) == 35
    assert {p.title for p in Corpus.read(tmp_path / "out")} == {"Numbers"}
    query = next(q for queries in splits.values() for q in queries if q.id == "nq-4")
    assert query.text == "what is 3"
    assert query.answers == ("number 3", "3")
    assert [texts[p] for p in query.evidence] == ["The number 3 is a number."]


def test_a_question_without_a_gold_passage_is_named(raw, tmp_path, capsys):
    _write(raw / FILE, [_record(1), _record(1, ctxs=[{"title": "t", "text": "x"}])])
    error = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{raw / FILE}, line 2: expected one gold passage in 'ctxs', got 0" in error
