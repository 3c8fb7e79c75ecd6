"""Answers from what was retrieved, as a command."""

import json
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Patch
from quoting_model import QUERIES
from run_files import info_of, write_jsonl_run

from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.types import Hit
from grls.runs.portions import RunInfo, fingerprint_queries, write_info
from grls.runs.run import Run


def read(quotes: Path, output: Path, *options: str, verb: str = "direct") -> int:
    base = ["--data", str(quotes / "data"), "--model", str(quotes / "model"), "--output", str(output)]
    return main(["answer", verb, *base, "--device", "cpu", "--reader.max_new_tokens", "4", *options])


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"{output}.answers.jsonl").read_text().splitlines()]


def test_from_bm25(quotes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "runs" / "bm25"
    assert read(quotes, output, "--retriever", "bm25", "--k", "1") == 0
    printed = capsys.readouterr().out
    assert "Mill: The mill was built in 1820. Orla Finn owned it. -> a" in printed
    assert "passages: hits@1 100.0" in printed
    first = lines(output)[0]
    assert [quote["passages"] for quote in first["quotes"]] == [["a"]]
    assert first["quotes"][0]["text"].startswith("Mill: The mill")
    assert first["pieces"][0]["kind"] == "quote"
    assert first["retrieved"] == [hit.id for hit in Run.load(f"{output}.jsonl").rankings["q1"]]
    info = info_of(f"{output}.jsonl")
    assert (info.system, info.name, info.score_mode) == ("bm25", "direct, bm25, k=1", "bm25")
    assert info.options["method"] == "direct"
    assert (info.options["k"], info.options["prompts"], info.options["calls"]) == (1, 2, 1)
    assert main(["evaluate", f"{output}.answers.jsonl", "--data", str(quotes / "data")]) == 0
    assert "| direct, bm25, k=1" in capsys.readouterr().out


def test_the_ranking_is_deeper_than_what_is_read(quotes: Path, tmp_path: Path) -> None:
    retrieved = {"q1": [Hit("c", 3.0), Hit("a", 2.0), Hit("b", 1.0)], "q2": [Hit("b", 1.0)]}
    corpus = Corpus.read(quotes / "data")
    write_jsonl_run(tmp_path / "r.jsonl", QUERIES, corpus, "bm25", retrieved)
    info = RunInfo("bm25", "the run", "single", corpus.fingerprint, "", "", None, "bm25")
    write_info(tmp_path / "r", info)
    run = ("--run", str(tmp_path / "r.jsonl"))
    assert read(quotes, tmp_path / "x", *run, "--k", "1", "--reader.depth", "2") == 0
    assert Run.load(tmp_path / "x.jsonl").rankings == {name: hits[:2] for name, hits in retrieved.items()}
    first = lines(tmp_path / "x")[0]
    assert first["retrieved"] == ["c", "a"]
    assert [quote["passages"] for quote in first["quotes"]] == [["c"]]
    assert read(quotes, tmp_path / "y", *run, "--k", "3", "--reader.depth", "2") == 0
    assert len(lines(tmp_path / "y")[0]["quotes"]) == 3
    found = info_of(tmp_path / "x.jsonl")
    assert (found.system, found.options["run"]) == ("bm25", "the run")


def test_closed_book_reads_nothing(quotes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert read(quotes, tmp_path / "x", "--limit", "1") == 0
    assert "hits@1 0.0" in capsys.readouterr().out
    only = lines(tmp_path / "x")
    assert [(line["query_id"], line["quotes"], line["retrieved"]) for line in only] == [("q1", [], [])]
    info = info_of(tmp_path / "x.jsonl")
    assert "k" not in info.options


def test_iterative(quotes: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    from grls.answer.writer import Continuation, TextWriter

    def write(self: TextWriter, prompts: Any, decided: Any = None) -> list[Continuation]:
        shown = ["burned" in self.tokenizer.decode(row)[-200:] for row in prompts]
        return [Continuation("answer: red" if s else "follow-up: which barn burned", 3, True) for s in shown]

    monkeypatch.setattr(TextWriter, "write", write)
    options = ("--retriever", "bm25", "--reader.questions", "2")
    assert read(quotes, tmp_path / "x", *options, verb="follow-up") == 0
    first = lines(tmp_path / "x")[0]
    assert [(piece["kind"], piece["quote"]) for piece in first["pieces"]] == [
        ("thought", None), ("quote", 0), ("answer", None)
    ]  # fmt: skip
    assert first["pieces"][0]["text"] == "which barn burned"
    assert (first["retrieved"], first["answer"]) == (["b"], "red")
    info = info_of(tmp_path / "x.jsonl")
    assert (info.name, info.score_mode, info.options["questions"]) == ("follow-up, bm25, k=1", "rank", 2)


def test_a_killed_run_goes_on_where_it_stopped(
    quotes: Path, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    from grls.answer.writer import TextWriter
    from grls.io.work import GrowingFile

    asked: list[int] = []
    whole = TextWriter.write

    def counted(self: TextWriter, prompts: Any, decided: Any = None, *_: Any) -> Any:
        asked.append(len(prompts))
        return whole(self, prompts, decided)

    monkeypatch.setattr(TextWriter, "write", counted)
    options = ("--retriever", "bm25", "--k", "2", "--reader.batch_size", "1")
    assert read(quotes, tmp_path / "whole", *options) == 0
    monkeypatch.setattr("grls.answer.kept.BATCHES", 1)  # kept after each query
    add = GrowingFile.add

    def killed(self: Any, records: Any) -> None:
        add(self, records)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GrowingFile, "add", killed)
        assert read(quotes, tmp_path / "cut", *options) == 130
    assert not Path(f"{tmp_path}/cut.answers.jsonl").exists()
    asked.clear()
    assert read(quotes, tmp_path / "cut", *options) == 0
    assert asked == [1]  # the second query alone
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    one, other = (info_of(tmp_path / name) for name in ("whole", "cut"))
    assert one.options == other.options  # what was spent before counts
    assert other.seconds > 0
    asked.clear()
    assert read(quotes, tmp_path / "cut", *options) == 0
    assert asked == []
    assert read(quotes, tmp_path / "cut", *options, "--reader.depth", "4") == 1
    assert "was begun with other settings (depth); give" in capsys.readouterr().err


def test_a_batch_that_a_kill_has_parted_costs_what_it_costs(quotes: Path, tmp_path: Path) -> None:
    options = ("--retriever", "bm25", "--k", "2", "--reader.batch_size", "2")
    assert read(quotes, tmp_path / "whole", *options) == 0
    whole = (tmp_path / "whole.written.jsonl").read_text().splitlines(keepends=True)
    assert len(whole) == 3
    (tmp_path / "cut.written.jsonl").write_text("".join(whole[:2]))
    assert read(quotes, tmp_path / "cut", *options) == 0
    one, other = (info_of(tmp_path / name) for name in ("whole", "cut"))
    assert one.options == other.options
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    (tmp_path / "cut.written.jsonl").write_text("".join([*whole, *whole[1:]]))  # two runs at once
    assert read(quotes, tmp_path / "cut", *options) == 1


def test_follow_ups_are_kept_with_their_passages(quotes: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    from grls.answer.writer import Continuation, TextWriter

    said = ["follow-up: which barn burned", "answer: red"]
    options = ("--retriever", "bm25", "--reader.questions", "1", "--limit", "1")
    with monkeypatch.context() as patch:
        patch.setattr(TextWriter, "write", lambda *_: [Continuation(said.pop(0), 3, bool(said))])
        assert read(quotes, tmp_path / "x", *options, verb="follow-up") == 0
    first = lines(tmp_path / "x")
    assert (first[0]["pieces"][0]["text"], first[0]["ended"]) == ("which barn burned", False)
    assert (
        read(quotes, tmp_path / "x", *options, verb="follow-up") == 0
    )  # the model would write something else
    assert lines(tmp_path / "x") == first


def test_a_run_of_other_queries_and_an_output_over_the_run_are_refused(
    quotes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = Corpus.read(quotes / "data")
    other = [query._replace(id=f"other-{query.id}") for query in QUERIES]
    for name, asked in (("mine", QUERIES), ("other", other)):
        write_jsonl_run(
            tmp_path / f"{name}.jsonl", asked, corpus, "bm25", {q.id: [Hit("a", 1.0)] for q in asked}
        )
        info = RunInfo(
            "bm25", name, "single", corpus.fingerprint, fingerprint_queries(asked), "", "test", "bm25"
        )  # fmt: skip
        write_info(tmp_path / name, info)
    before = (tmp_path / "mine.jsonl").read_bytes()
    assert read(quotes, tmp_path / "mine", "--run", str(tmp_path / "mine.jsonl")) == 1
    assert "would replace" in capsys.readouterr().err
    assert (tmp_path / "mine.jsonl").read_bytes() == before
    assert read(quotes, tmp_path / "x", "--run", str(tmp_path / "other.jsonl")) == 1
    assert "was made with other queries" in capsys.readouterr().err
    (tmp_path / "other.info.json").unlink()
    assert read(quotes, tmp_path / "x", "--run", str(tmp_path / "other.jsonl")) == 1
    assert "'other-q1'" in capsys.readouterr().err
    assert read(quotes, tmp_path / "x", "--run", str(tmp_path / "mine.jsonl")) == 0
