"""The programs of demonstrate-search-predict, as a command."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Caplog, Capsys
from run_files import info_of

from grls.answer.dsp.options import CallOptions
from grls.cli import main
from grls.runs.run import Run


@pytest.fixture(scope="module")
def folder(quotes: Path) -> Path:
    pytest.importorskip("dspy", reason="the extra dsp is not installed")
    return quotes


def run(folder: Path, program: str, output: Path, *options: str) -> int:
    base = ["--data", str(folder / "data"), "--model", str(folder / "model"), "--output", str(output)]
    few = ["--device=cpu", "--dsp.calls.max_new_tokens=4", "--dsp.calls.attempts=2"]
    return main(["answer", "dsp", program, *base, *few, *options])


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_program_writes_answers_traces_and_a_run(
    folder: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    output = tmp_path / "runs" / "r"
    assert run(folder, "retrieve-then-read", output, "--retriever=bm25", "--k=1") == 0
    printed = capsys.readouterr().out
    assert "Mill: The mill was built in 1820. Orla Finn owned it. -> a" in printed
    assert "a query cost " in printed
    head, *records = lines(f"{output}.trace.jsonl")
    assert head["settings"]["program"] == "retrieve-then-read"
    assert {record["query_id"] for record in records} == {"q1", "q2"}
    first = next(record for record in records if record["query_id"] == "q1")
    assert [step["kind"] for step in first["trace"]][:2] == ["retrieval", "lm"]
    assert first["found"][0][0] == "a"
    assert first["trace"][1]["signature"] == "Answer"
    calls = [call for step in first["trace"][1:] for call in step["calls"]]
    assert first["cost"]["calls"] == len(calls) >= 1
    assert first["cost"]["tokens_read"] == sum(call["tokens_read"] for call in calls)
    assert first["cost"]["tokens_read"] > 10
    answers = lines(f"{output}.answers.jsonl")
    assert [line["query_id"] for line in answers] == ["q1", "q2"]
    assert answers[0]["retrieved"] == ["a"]
    assert answers[0]["cost"] == first["cost"]
    info = info_of(f"{output}.jsonl")
    assert (info.system, info.name, info.score_mode) == ("bm25", "retrieve-then-read, bm25, k=1", "bm25")
    assert Run.load(f"{output}.jsonl").rankings["q1"][0].id == "a"
    assert main(["evaluate", f"{output}.answers.jsonl", "--data", str(folder / "data")]) == 0
    assert not (tmp_path / "home").exists()  # no cache


def test_how_much_is_written_at_once_is_a_matter_of_the_template(folder: Path, tmp_path: Path) -> None:
    line = ["answer", "dsp", "vanilla", f"--data={folder / 'data'}", f"--model={folder / 'model'}"]
    few = ["--device=cpu", "--limit=1", "--dsp.calls.attempts=1", f"--output={tmp_path / 'x'}"]
    assert main([*line, *few]) == 0
    assert lines(f"{tmp_path}/x.trace.jsonl")[0]["settings"]["max_new_tokens"] == 64
    assert CallOptions("http://localhost:1/v1").filled("m") == ("chat", 512)


def test_it_goes_on_where_it_stopped(folder: Path, tmp_path: Path, capsys: Capsys, caplog: Caplog) -> None:
    output = tmp_path / "x"
    assert run(folder, "vanilla", output, "--limit=1") == 0
    (_, first) = lines(f"{output}.trace.jsonl")
    assert run(folder, "vanilla", output) == 0
    assert "outputs were cut at the length limit" in caplog.text
    _, *records = lines(f"{output}.trace.jsonl")
    assert records[0] == first
    done = [record["query_id"] for record in records if "failed" not in record]
    assert len(done) == len(set(done))
    capsys.readouterr()
    for option, name in (("temperature=0.5", "temperature"), ("queries=3", "written_queries")):
        assert run(folder, "vanilla", output, f"--dsp.{option}") == 1
        assert f"was begun with other settings ({name})" in capsys.readouterr().err


def test_a_query_that_fails_has_no_answer_and_says_why(folder: Path, tmp_path: Path, caplog: Caplog) -> None:
    options = ("--dsp.calls.endpoint=http://127.0.0.1:9/v1", "--retriever=bm25")
    assert run(folder, "openqa", tmp_path / "x", *options) == 0
    answers = lines(f"{tmp_path}/x.answers.jsonl")
    assert [line["answer"] for line in answers] == ["", ""]
    assert all(line["failed"].startswith("LMTransportError") for line in answers)
    assert "2 of 2 queries failed" in caplog.text
