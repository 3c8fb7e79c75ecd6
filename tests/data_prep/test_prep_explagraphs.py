import json

import pytest
from prep_helpers import fails, load, prepared

from data_prep.explagraphs import prepare


def _row(n, belief=None):
    graph = f"(tea {n}; is a; drink)(drink; capable of; warming)"
    return f"{belief or f'Belief {n} holds.'}\tArgument {n} says so.\tsupport\t{graph}\n"


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "train.tsv").write_text("".join(_row(n, f"Belief {n // 2} holds.") for n in range(40)))
    (folder / "dev.tsv").write_text("".join(_row(n) for n in range(50, 55)))
    return folder


def test_units_are_paths_in_file_order(raw, tmp_path):
    texts, splits = prepared(prepare, tmp_path / "out", raw=raw)
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 36, "dev": 4, "test": 5}
    query = splits["test"][0]
    assert query.text == "Belief 50 holds. Argument 50 says so."
    assert [texts[p] for p in query.evidence] == ["tea 50; is a; drink", "drink; capable of; warming"]
    assert len(texts) == 46


def test_queries_in_the_form_of_the_paper(raw, tmp_path):
    prepare(raw, tmp_path / "out", named=True)
    query = load(tmp_path / "out")[1]["test"][0]
    assert query.text == "belief: Belief 50 holds. argument: Argument 50 says so."


def test_dev_takes_whole_beliefs(raw, tmp_path):
    prepare(raw, tmp_path / "out")
    _, splits = load(tmp_path / "out")
    beliefs = [{json.loads(q.metadata)["belief"] for q in splits[n]} for n in ("train", "dev")]
    assert not beliefs[0] & beliefs[1]
    assert beliefs[1]


@pytest.mark.parametrize(("row", "expected"), [
    ("a\tb\tsupport\n", "expected belief, argument, stance and graph, tab-separated"),
    ("a\tb\tsupport\t(a; b)\n", "expected (subject; relation; object)"),
])  # fmt: skip
def test_malformed_rows_are_named(raw, tmp_path, capsys, row, expected):
    (raw / "dev.tsv").write_text(_row(1) + row)
    error = fails(prepare, capsys, "--raw", raw, "--out", tmp_path / "out")
    assert f"{raw / 'dev.tsv'}, line 2: {expected}" in error
