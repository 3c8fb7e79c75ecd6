"""``--limit``: the first queries of a split, and what runs and answers of them are scored on."""

import json
from pathlib import Path

import pytest
from failing import fails
from fixture_types import Capsys
from report_helpers import page_text
from run_files import info_of
from small_data import write_small

from grls.cli import main
from grls.data.dataset import read_split
from grls.evaluation.evaluate import evaluate_run
from grls.runs.portions import fingerprint_queries
from grls.runs.run import Run
from grls.tune.step import DevQueries


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_small(tmp_path / "data")


def retrieved(data: Path, name: str, *options: str) -> str:
    """A run of BM25 for the 12 queries of train, or some of them."""
    output = data.parent / name
    given = [f"--data={data}", f"--output={output}", "--split=train", *options]
    assert main(["retrieve", "bm25", *given]) == 0
    return f"{output}.jsonl"


def test_the_first_queries_of_a_split_come_with_their_judgements(data: Path) -> None:
    every, all_qrels = read_split(data, "train")
    queries, qrels = read_split(data, "train", limit=5)
    assert queries == every[:5]
    assert qrels == {query.id: all_qrels[query.id] for query in every[:5]}
    assert read_split(data, "train", limit=99) == (every, all_qrels)
    assert DevQueries.read(str(data), "train", 5).queries == queries


def test_a_run_of_the_first_queries_is_scored_on_these(data: Path, capsys: Capsys) -> None:
    run, whole = retrieved(data, "part", "--limit=5"), retrieved(data, "whole")
    queries = read_split(data, "train")[0][:5]
    info = info_of(run)
    assert (info.split, info.limit, info.queries) == ("train", 5, fingerprint_queries(queries))
    assert Run.load(run).rankings == {q.id: Run.load(whole).rankings[q.id] for q in queries}
    report = evaluate_run(run, data)
    assert (report["split"], report["limit"], report["queries"]["judged"]) == ("train", 5, 5)
    assert report["queries"]["unanswered"] == 0
    assert "limit" not in evaluate_run(whole, data)
    capsys.readouterr()
    assert main(["evaluate", run, f"--data={data}", "--examples=9"]) == 0
    shown = capsys.readouterr().out
    assert "split train, limit 5" in shown
    assert all((query.text in shown) == (query in queries) for query in read_split(data, "train")[0])


def test_runs_of_other_parts_are_not_compared(data: Path, capsys: Capsys) -> None:
    one, whole = retrieved(data, "one", "--limit=5"), retrieved(data, "whole")
    other = retrieved(data, "other", "--limit=5", "--k=3")
    assert main(["evaluate", one, "--baseline", other, f"--data={data}"]) == 0
    assert f"beside {other}, 5 queries" in capsys.readouterr().out
    for command in (
        ["evaluate", one, "--baseline", whole, f"--data={data}"],
        ["fuse", one, whole, "--output=f"],
    ):
        error = fails(capsys, *command)
        assert "the first 5 of split train) and " in error
        assert "answer different queries: 7 are in" in error
    error = fails(capsys, "experiment", one, whole, f"--output={data.parent / 'page'}")
    assert f"{one} was made with other queries than" in error
    assert "the first 5 of split train); retrieve again" in error


def test_what_is_fused_or_reported_says_the_part(data: Path) -> None:
    one, other = retrieved(data, "one", "--limit=5"), retrieved(data, "other", "--limit=5", "--k=3")
    assert main(["fuse", one, other, f"--output={data.parent / 'fused'}"]) == 0
    info, made_of = info_of(data.parent / "fused"), info_of(one)
    assert (info.limit, info.queries) == (5, made_of.queries)
    every = retrieved(data, "every", "--split=null")  # answers the five as well
    page = data.parent / "page"
    assert main(["experiment", one, f"{data.parent / 'fused'}.jsonl", every, f"--output={page}"]) == 0
    text = page_text(Path(f"{page}.html"))
    assert "data, train, the first 5" in text
    assert "on 5 queries of data, train" in text


def test_a_limit_that_cannot_work_is_refused(data: Path, capsys: Capsys) -> None:
    run = retrieved(data, "run", "--limit=2")
    manifest = data.parent / "run.info.json"
    for wrong, told in (
        (0, "at least 1, got 0"),
        (True, "a whole number, got True"),
        ("2", "a whole number, got '2'"),
    ):
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "limit": wrong}))
        assert f"limit must be {told}" in fails(capsys, "evaluate", run, f"--data={data}")


def test_bm25_over_the_corpus_takes_its_options(data: Path, capsys: Capsys) -> None:
    options = ["--bm25.k1=0.4", "--bm25.b=0.1", "--bm25.method=bm25l"]
    run = retrieved(data, "run", *options)
    folder = data.parent / "folder"
    assert main(["index", "bm25", f"--corpus={data}", f"--output={folder}", *options]) == 0
    same = [str(folder), f"--data={data}", "--split=train", f"--output={data.parent / 'same'}"]
    assert main(["retrieve", *same]) == 0
    assert Run.load(run).rankings == Run.load(data.parent / "same.jsonl").rankings
    assert Run.load(run).rankings != Run.load(retrieved(data, "usual")).rankings
    info = info_of(run)
    assert info.options == {"k": 10, "k1": 0.4, "b": 0.1, "method": "bm25l"}
    assert "--bm25 is for bm25, which counts" in fails(capsys, "retrieve", *same, "--bm25.k1=2")
    assert "--bm25.k1 must be at least 0" in fails(capsys, "retrieve", "bm25", *same[1:], "--bm25.k1=-1")
