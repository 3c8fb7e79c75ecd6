"""Manifests: what is written comes back, and one that is stale or malformed is refused."""

import json

import pytest

from grls.data.types import Query
from grls.errors import DataError
from grls.runs.manifest import RunInfo, fingerprint_queries, info_file, read_info, write_info

INFO = RunInfo(
    system="generator",
    name="ours",
    steps="single",
    corpus="c" * 64,
    queries="q" * 64,
    data="data/x",
    split="test",
    score_mode="full",
    stages=("memorise", "retrieve"),
    members=("one", "two"),
    seconds=1.5,
    options={"k": 3},
)


@pytest.fixture
def run(tmp_path):
    """NAME of a run with both files and a manifest."""
    (tmp_path / "run.trec").write_text("q Q0 a 1 0.5 t\n")
    (tmp_path / "run.jsonl").write_text("{}\n")
    write_info(tmp_path / "run", INFO)
    return tmp_path / "run"


def edit(run, **changes):
    file = info_file(run)
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_manifest_comes_back_for_either_file_and_for_the_name(run):
    infos = [read_info(f"{run}{ending}") for ending in ("", ".trec", ".jsonl")]
    assert infos[0] == infos[1] == infos[2]
    assert {**vars(infos[0]), "files": {}} == vars(INFO)
    assert set(infos[0].files) == {".trec", ".jsonl"}


def test_a_run_without_a_manifest_has_none(tmp_path):
    assert read_info(tmp_path / "foreign.trec") is None


def test_the_manifest_stands_beside_the_run():
    names = ("runs/a.trec", "runs/a.jsonl", "runs/a")
    assert {str(info_file(name)) for name in names} == {"runs/a.info.json"}
    assert str(info_file("runs/a-0.5")) == "runs/a-0.5.info.json"


@pytest.mark.parametrize("ending", [".trec", ".jsonl"])
def test_a_manifest_of_other_files_is_refused(run, ending):
    run.with_suffix(ending).write_text("other\n")
    with pytest.raises(DataError, match=rf"run\.info\.json: .*run\{ending} has changed since"):
        read_info(f"{run}{ending}")
    assert read_info(f"{run}{'.jsonl' if ending == '.trec' else '.trec'}") is not None


def test_a_file_that_was_not_written_with_it_is_unknown_to_the_manifest(run):
    write_info(run, INFO, endings=[".trec"])
    assert read_info(f"{run}.trec") is not None
    with pytest.raises(DataError, match="has changed since"):
        read_info(f"{run}.jsonl")


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"system": 3},
        {"steps": "double"},
        {"corpus": None},
        {"name": 3},
        {"split": 1},
        {"stages": [1]},
        {"stages": None},
        {"seconds": "long"},
        {"seconds": True},
        {"options": []},
        {"files": [".trec"]},
        {"unknown": 1},
    ],
)
def test_a_malformed_manifest_is_refused_with_its_name(run, changes):
    edit(run, **changes)
    with pytest.raises(DataError, match=r"run\.info\.json: expected the manifest of a run"):
        read_info(run)


@pytest.mark.parametrize("text", ["[]", "3", '"format"', "{}", '{"format": 1}'])
def test_another_json_document_is_refused(run, text):
    info_file(run).write_text(text)
    with pytest.raises(DataError, match="expected the manifest of a run"):
        read_info(run)


def test_the_fingerprint_of_queries_heeds_ids_and_texts_and_no_order():
    one, two = Query("a", "x"), Query("b", "y")
    assert fingerprint_queries([one, two]) == fingerprint_queries([two, one])
    assert fingerprint_queries([one, two._replace(evidence=("p",))]) == fingerprint_queries([one, two])
    others = ([one], [one, Query("b", "z")], [one, Query("c", "y")], [Query("a", "y"), Query("b", "x")])
    assert fingerprint_queries([one, two]) not in {fingerprint_queries(other) for other in others}
