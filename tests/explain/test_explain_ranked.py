"""The command on retrievers that are not explained step by step: ranks of gold passages."""

import json
import shutil
from pathlib import Path

import pytest
from composite_specs import COMPOSITES, write_kinds, written
from failing import fails

import grls
from grls.cli import main
from grls.explain.standing import format_ranks

TEXT = "is the otter calm ?"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = write_kinds(tmp_path_factory.mktemp("ranked"))
    written(place / "fusion", COMPOSITES["fusion"])
    written(place / "rescored", COMPOSITES["rescored"])
    written(place / "sparse", {"kind": "sparse"})
    written(
        place / "chains", {"kind": "hops", "retriever": "../dense", "hops": {"steps": "ranked", "max": 2}}
    )
    onward = {"steps": "ranked", "max": 2, "onward": [-1.0, 0.0, 0.5, 0.0, 0.1, 0.0, 1.0]}
    written(place / "onward", {"kind": "hops", "retriever": "../bm25", "hops": {**onward, "temperature": 1}})
    return place


def printed(capsys: pytest.CaptureFixture[str], kinds: Path, name: str, *arguments: str) -> str:
    capsys.readouterr()
    assert main(["explain", *arguments, f"--retriever={kinds / name}", "--device=cpu"]) == 0
    return capsys.readouterr().out.strip()


@pytest.mark.parametrize("name", ["bm25", "dense", "fusion", "rescored", "chains", "onward"])
def test_the_command_prints_what_python_says(
    kinds: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = grls.load(kinds / name, device="cpu").explain(TEXT, ["otter-calm", "r1"])
    assert printed(capsys, kinds, name, TEXT, "--case.gold=otter-calm,r1") == str(expected)


def test_bm25_needs_no_folder(kinds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = f"--data={kinds / 'data'}"
    folder = printed(capsys, kinds, "bm25", "all", data)
    assert main(["explain", "all", "--retriever=bm25", data]) == 0
    assert capsys.readouterr().out.strip() == folder
    error = fails(capsys, "explain", TEXT, "--retriever=bm25", "--case.gold=r1")
    assert "bm25 retrieves from the corpus of a data set folder (--data)" in error


def test_bm25_shows_words_and_a_query_of_the_data_set(
    kinds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, kinds, "bm25", "q-lynx-kind", f"--data={kinds / 'data'}", "--k=1")
    assert out.count("query    q-lynx-kind: ") == 2
    assert "words    " in out
    assert "NOT FOUND: it is not among the 1 ranked" in out


def test_the_data_set_of_the_fit_that_made_a_retriever_is_found(
    kinds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = printed(capsys, kinds, "dense", "q-lynx-kind", f"--data={kinds / 'data'}")
    assert printed(capsys, kinds, "dense", "q-lynx-kind") == named


@pytest.mark.parametrize("name", ["bm25", "dense"])
def test_all_gives_a_line_a_query_and_counts(
    kinds: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = printed(capsys, kinds, name, "all", f"--data={kinds / 'data'}", "--limit=2", "--k=10")
    lines, summary = out.split("\n\n")
    assert len(lines.splitlines()) == 2
    assert "gold passages, 10 passages ranked for each query" in summary


def test_ranks_are_written_as_json(kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, output = f"--data={kinds / 'data'}", f"--output={tmp_path / 'out'}"
    file = tmp_path / "out.json"
    for name in ("bm25", "dense"):
        out = printed(capsys, kinds, name, "all", data, "--k=3", output)
        assert out.endswith(f"wrote {file}")
        facts = json.loads(file.read_text())
        lines = out.split("\n\n")[0].splitlines()
        assert [one["query_id"] for one in facts["queries"]] == [line.split(":")[0] for line in lines]
        gold = [one for query in facts["queries"] for one in query["gold"]]
        ranks = [one["rank"] for one in gold]
        assert facts["gold_passages"] == len(ranks)
        assert facts["not_found"] == ranks.count(None)
        assert facts["found_to"] == {"1": ranks.count(1), "3": len(ranks) - ranks.count(None)}
        printed(capsys, kinds, name, TEXT, "--case.gold=r1,r0", output)
        for fact in json.loads(file.read_text()):
            assert (fact["query"], fact["depth"]) == (TEXT, 100)
            assert fact["rank"] is None or fact["score"] is not None
            assert [one["rank"] for one in fact["above"]] == list(range(1, len(fact["above"]) + 1))


def test_the_summary_counts_ranks() -> None:
    rows = [line.split() for line in format_ranks([1, 4, None, 5], 5).splitlines()]
    assert rows[1:] == [
        ["rank", "1", "1", "25.0%"],
        ["rank", "1", "to", "5", "3", "75.0%"],
        ["not", "found", "1", "25.0%"],
    ]


@pytest.mark.parametrize(
    "option",
    [
        "--case.widest=4",
        "--case.exhaustive=true",
        "--case.hop=1",
        "--search.beams=3",
        "--hops.steps=fixed",
    ],
)
def test_options_without_meaning_are_refused(
    kinds: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bm25", "dense"):
        where = (f"--retriever={kinds / name}", "--device=cpu", "--case.gold=r1")
        error = fails(capsys, "explain", TEXT, *where, option)
        assert f"is a {name} retriever" in error
        assert f"{option.split('=')[0]} has no meaning there; leave it out" in error
    if not option.startswith("--search"):
        return
    assert "otter" in printed(capsys, kinds, "dense", TEXT, "--case.gold=r1", "--search.batch_size=2")


def test_a_count_below_one_and_all_without_data_are_refused(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bm25 = f"--retriever={kinds / 'bm25'}"
    assert "--k must be at least 1" in fails(capsys, "explain", TEXT, bm25, "--case.gold=r1", "--k=0")
    alone = shutil.copytree(kinds / "bm25", tmp_path / "deep" / "er" / "bm25")
    assert "give --data DIR" in fails(capsys, "explain", "all", f"--retriever={alone}")


def test_a_removed_passage_is_called_removed(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").write_text("r0\n")
    made = (f"--output={tmp_path / 'r'}", f"--remove={tmp_path / 'gone'}")
    assert main(["index", "update", str(kinds / "generative"), *made]) == 0
    out = printed(capsys, tmp_path, "r", TEXT, "--case.gold=r0,otter-calm")
    assert "REMOVED: the passage was removed from the retriever" in out
    assert "NOT FOUND" not in out
    assert "RANK" in out
    everything = printed(capsys, tmp_path, "r", "all", f"--data={kinds / 'data'}")
    assert "r0 removed" in everything
