"""Which runs may stand on one page, and what they are called."""

import json
import re

import pytest
from report_helpers import GOOD, PASSAGES, POOR, QUERIES, dataset, write

from grls.errors import ConfigError, DataError, MismatchError
from grls.report.runs import load_groups


@pytest.fixture
def data(tmp_path):
    return dataset(tmp_path / "small")


def test_manifests_name_data_set_steps_and_run(data, tmp_path):
    one = write(tmp_path / "one", data, GOOD, "ours", steps="fixed")
    two = write(tmp_path / "two", data, POOR, "theirs", "biencoder", "single")
    (group,) = load_groups([one, two])
    assert (group.name, group.split, group.seen) == ("small", "test", {"f1"})
    assert [(e.label, e.system, e.steps) for e in group.entries] == [
        ("theirs", "biencoder", "single"),  # bi-encoders come first
        ("ours", "generator", "fixed"),
    ]


def test_several_data_sets_are_several_groups(data, tmp_path):
    other = dataset(tmp_path / "other")
    files = [write(tmp_path / f"run{n}", folder, GOOD) for n, folder in enumerate((other, data, other))]
    assert [(g.name, len(g.entries)) for g in load_groups(files)] == [("other", 2), ("small", 1)]


def test_without_a_manifest_the_data_set_must_be_named(data, tmp_path):
    chains = write(tmp_path / "chains", data, GOOD, manifest=False)
    ranking = write(tmp_path / "ranking", data, GOOD, steps="single", manifest=False)
    with pytest.raises(ConfigError, match=r"chains.jsonl: which data set .* no manifest; give data=FOLDER"):
        load_groups([chains])
    (group,) = load_groups([chains, ranking], str(data))
    assert [(e.label, e.system, e.steps) for e in group.entries] == [
        ("chains", "", "dynamic"),
        ("ranking", "", None),
    ]


def test_a_data_set_that_has_moved_is_found_by_option(data, tmp_path):
    run = write(tmp_path / "run", data, GOOD, data=str(tmp_path / "gone" / "small"))
    with pytest.raises(ConfigError, match=r"names '.*gone/small', which is no folder here; give data=FOLDER"):
        load_groups([run])
    assert load_groups([run], str(data))[0].name == "small"
    with pytest.raises(DataError, match=r"nowhere: no such folder"):
        load_groups([run], str(tmp_path / "nowhere"))


def test_a_manifest_that_knows_no_data_set_is_not_of_the_working_folder(data, tmp_path):
    run = write(tmp_path / "run", data, GOOD, data="", corpus="", queries="")
    with pytest.raises(ConfigError, match=r"which data set"):
        load_groups([run])
    assert load_groups([run], str(data))[0].entries[0].label == "run"


def test_no_run_and_the_same_run_twice_are_refused(data, tmp_path):
    with pytest.raises(ConfigError, match=r"no run is given"):
        load_groups([])
    run = write(tmp_path / "run", data, GOOD)
    with pytest.raises(ConfigError, match=r"run.jsonl and .*run.trec are the same run"):
        load_groups([run, str(tmp_path / "run.trec")])
    with pytest.raises(DataError, match=r"missing.trec: no such file"):
        load_groups([str(tmp_path / "missing.trec")], str(data))


def test_another_corpus_names_both_runs(data, tmp_path):
    changed = dataset(tmp_path / "x" / "small", [*PASSAGES, PASSAGES[0]._replace(id="new")])
    one, two = write(tmp_path / "one", data, GOOD), write(tmp_path / "two", changed, GOOD)
    with pytest.raises(
        MismatchError, match=r"one.jsonl and .*two.jsonl are both of small, .* different corpora"
    ):
        load_groups([one, two])
    with pytest.raises(MismatchError, match=r"one.jsonl was made with another corpus than .*x/small holds"):
        load_groups([write(tmp_path / "one", data, GOOD, data=str(changed))])


def test_other_queries_name_both_runs(data, tmp_path):
    one = write(tmp_path / "one", data, GOOD)
    two = write(tmp_path / "two", data, GOOD, queries="0" * 64)
    with pytest.raises(MismatchError, match=r"one.jsonl and .*two.jsonl .* different sets of queries"):
        load_groups([one, two])
    with pytest.raises(MismatchError, match=r"two.jsonl was made with other queries than"):
        load_groups([two])


def test_splits_are_not_mixed(data, tmp_path):
    one, two = write(tmp_path / "one", data, GOOD), write(tmp_path / "two", data, GOOD, split="train")
    with pytest.raises(MismatchError, match=r"one.jsonl is of the split test, .*two.jsonl of train"):
        load_groups([two, one])
    with pytest.raises(MismatchError, match=r"one.jsonl is of the split test, and split asks for train"):
        load_groups([one], split="train")
    with pytest.raises(DataError, match=r"qrels/dev.tsv: no such file"):
        load_groups([write(tmp_path / "old", data, GOOD, manifest=False)], str(data), "dev")


def test_ids_and_texts_of_other_data_are_refused(data, tmp_path):
    file = tmp_path / "old.jsonl"
    write(tmp_path / "old", data, GOOD, manifest=False)
    text = file.read_text()
    for old, new, message in (
        ('"f1"', '"f9"', "old.jsonl: the passage id 'f9'"),
        ('"query_id": "q1"', '"query_id": "q9"', "old.jsonl: the query id 'q9'"),
        ("anna is kind . why", "anna is cold . why", "old.jsonl, line 1: query 'q1' is 'anna is cold"),
    ):
        file.write_text(text.replace(old, new))
        with pytest.raises(DataError, match=re.escape(message)):
            load_groups([str(file)], str(data))
    file.write_text("")
    with pytest.raises(DataError, match=r"old.jsonl: the run has no line"):
        load_groups([str(file)], str(data))


def test_two_folders_of_one_name_are_not_mixed(data, tmp_path):
    elsewhere = dataset(tmp_path / "x" / "small")
    one, two = write(tmp_path / "one", data, GOOD), write(tmp_path / "two", data, GOOD, manifest=False)
    with pytest.raises(MismatchError, match=r"two data sets of one name"):
        load_groups([one, two], str(elsewhere))


def test_equal_names_are_told_apart_by_file(data, tmp_path):
    files = [write(tmp_path / n, data, GOOD, name) for n, name in (("a", "g"), ("b", "g"), ("c", "h"))]
    assert [e.label for e in load_groups(files)[0].entries] == ["g (a)", "g (b)", "h"]
    (tmp_path / "x").mkdir()
    same = [files[0], write(tmp_path / "x" / "a", data, GOOD, "g")]
    assert [e.label for e in load_groups(same)[0].entries] == [f"g ({file})" for file in same]


def test_a_run_over_all_queries_stands_beside_one_of_a_split(data, tmp_path):
    from grls.data.dataset import read_queries
    from grls.runs.manifest import fingerprint_queries

    everything = fingerprint_queries(read_queries(data))
    wide = write(tmp_path / "wide", data, GOOD, split=None, queries=everything)
    (group,) = load_groups([wide, write(tmp_path / "narrow", data, GOOD, "narrow")])
    assert (group.split, [q.id for q in group.queries]) == ("test", ["q1", "q2"])
    assert json.loads((tmp_path / "wide.info.json").read_text())["split"] is None
    assert len(QUERIES) == 3
