"""``grls judge``: what a person marks becomes a data set, in a terminal or a pipe."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from failing import fails
from fixture_types import Capsys, Patch

import grls
from grls.cli import main
from grls.commands import judge as commands
from grls.data.corpus import Corpus
from grls.data.dataset import check_data, read_split
from grls.data.types import Hit
from grls.evaluation.significance import compare
from grls.fitting import judging as judging_module
from grls.fitting.judging import Judging, apart, open_candidates, read_questions
from grls.fitting.options import FitOptions
from grls.fitting.splits import read_data
from grls.io.seal import seal
from grls.io.work import alone_in
from grls.retrieve.base import Retriever
from grls.retrieve.fusion.retriever import Fusion, fusion_spec
from grls.retrieve.spec import FORMAT

CORPUS = [
    {"_id": name, "title": title, "text": text, "metadata": metadata}
    for name, title, text, metadata in (
        ("den", "Holt", "The den of an otter is a holt.", {"file": "a.md", "line": 3}),
        ("food", "Food", "The otter eats fish, fish, fish.", {"file": "b.pdf", "page": 2}),
        ("fish", "Fish", "Fish live in rivers.\x1b[2J", {}),
        ("river", "Wey", "The Wey is a river with an otter.", {}),
    )
]
DEN, FISH = "where is the den of an otter?", "which fish live in a river?"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``grls fit`` leaves: two candidates that differ."""
    place = tmp_path_factory.mktemp("judge") / "R"
    grls.BM25(CORPUS, output=place / "members" / "long")
    grls.BM25(CORPUS, k1=0.1, b=1.0, output=place / "members" / "short")
    (place / "fit.jsonl").touch()
    return place


def begun(fitted: Path, output: Path, *questions: str, k: int = 2) -> Judging:
    candidates = open_candidates({"R": str(fitted)}, "cpu")
    return Judging(candidates, output, [grls.Query("", text) for text in questions], k)


def typed(patch: Patch, capsys: Capsys, lines: str, *arguments: object) -> str:
    patch.setattr("sys.stdin", io.StringIO(lines))
    assert main(["judge", *map(str, arguments), "--device=cpu"]) == 0
    return capsys.readouterr().out


def numbers(fitted: Path, place: Path, question: str, *ids: str) -> str:
    """What is typed to mark these passages."""
    judging = begun(fitted, place / "nothing", question, k=5)
    asked = judging.asked()
    assert asked is not None
    shown = [hit.id for hit in asked.hits]
    return " ".join(str(shown.index(id) + 1) for id in ids)


def test_what_is_marked_is_a_data_set(
    fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    output = tmp_path / "judged"
    gold = numbers(fitted, tmp_path, FISH, "river", "fish")
    den = numbers(fitted, tmp_path, DEN, "den")
    words = [
        FISH,
        "",
        "9",
        2 * f"{gold.split()[0]} ",
        f"t {den}",
        gold,
        DEN,
        den,
        "u",
        den,
        "fish?",
        "n",
        DEN,
    ]
    lines = "".join(f"{word}\n" for word in words)
    out = typed(monkeypatch, capsys, lines, fitted, f"--output={output}")
    asked, _, end = out.rpartition("2 questions with gold, 1 without")
    assert "long" not in asked.replace("along", "")
    assert "short" not in asked
    assert {line.split()[0] for line in end.splitlines()[2:]} == {"long", "short"}
    assert "\x1b" not in out
    assert "Holt (a.md, line 3)" in out
    assert "Food (b.pdf, page 2)" in out
    assert out.count("expected numbers from 1 to ") == 3
    assert "judged already" in out
    queries, qrels = read_split(output, "dev", Corpus.read(output))
    assert [(query.text, query.evidence) for query in queries] == [(FISH, ("river", "fish")), (DEN, ("den",))]
    assert qrels == {query.id: dict.fromkeys(query.evidence, 1) for query in queries}
    assert check_data(output, Corpus.read(output)).faults == []
    assert Corpus.read(output).metadata_of([0]) == [{"file": "a.md", "line": 3}]
    again = typed(monkeypatch, capsys, "u\nn\n", fitted, f"--output={output}")
    assert "3 judged, 0 to judge" in again
    assert "\nfish?\n" in again


def test_fit_takes_it_as_it_is(fitted: Path, tmp_path: Path, capsys: Capsys) -> None:
    judging = begun(fitted, tmp_path / "judged", FISH, DEN)
    judging.judge(["fish"])
    judging.judge(["den"])
    judging.close()
    data = read_data(tmp_path / "judged", FitOptions())
    assert [*data.pseudo] == ["train"]
    assert len(data.qrels["dev"]) == 2
    options = ["--biencoder=none", "--generator=none", "--device=cpu", "--budget=5m"]
    assert main(["fit", str(tmp_path / "judged"), f"--output={tmp_path / 'R'}", *options]) == 0
    assert "queries: 2 dev" in capsys.readouterr().out
    both = open_candidates({"before": str(fitted), "after": str(tmp_path / "R")}, "cpu")  # over one corpus
    assert {"before/long", "before/short"} <= {*both}


def test_the_pool_does_not_tell_who_found_what(fitted: Path, tmp_path: Path) -> None:
    members = {name: str(fitted / "members" / name) for name in ("short", "long")}
    pools = []
    for folders in ({"R": str(fitted)}, members):
        asked = Judging(open_candidates(folders, "cpu"), tmp_path / "no", [grls.Query("1", FISH)], 2).asked()
        assert asked is not None
        pools.append([hit.id for hit in asked.hits])
    found = [[hit.id for hit in grls.load(folder).search(FISH, 2)] for folder in members.values()]
    assert pools[0] == pools[1]
    assert set(pools[0]) == {*found[0], *found[1]}
    assert not (tmp_path / "no").exists()


def test_a_log_is_asked_once_and_skipped_questions_again(
    fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    log = tmp_path / "log.txt"
    log.write_text(f"{DEN}\n{FISH}\n{DEN}\notters\n")
    command = (fitted, f"--queries={log}", f"--output={tmp_path / 'judged'}")
    assert "0 judged, 3 to judge" in typed(monkeypatch, capsys, "1\ns\nn\n", *command)
    out = typed(monkeypatch, capsys, "q\n", *command)
    assert "2 judged, 1 to judge" in out
    assert [line for line in out.splitlines() if line in (DEN, FISH, "otters")] == [FISH]
    log.with_suffix(".jsonl").write_text('{"_id": "a", "text": "otters"}\n{"_id": "b", "text": "rivers"}\n')
    command = (fitted, f"--queries={log.with_suffix('.jsonl')}", f"--output={tmp_path / 'judged'}")
    typed(monkeypatch, capsys, "1\n", *command)
    assert [query.id for query in read_split(tmp_path / "judged", "dev")[0]][1:] == ["b"]


def test_questions_come_from_a_pipe_and_answers_from_the_terminal(
    fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    (tmp_path / "terminal").write_text("1\nn\n")
    monkeypatch.setattr(commands, "_TERMINAL", str(tmp_path / "terminal"))
    command = (fitted, "--queries=-", f"--output={tmp_path / 'judged'}")
    assert "0 judged, 2 to judge" in typed(monkeypatch, capsys, f"{DEN}\n\n {FISH} \n", *command)
    assert [query.text for query in read_split(tmp_path / "judged", "dev")[0]] == [DEN]
    monkeypatch.setattr(commands, "_TERMINAL", str(tmp_path / "none"))
    monkeypatch.setattr("sys.stdin", io.StringIO(DEN))
    assert "--queries -: there is no terminal" in fails(capsys, "judge", *command)
    ends = os.pipe()
    os.write(ends[1], f"{DEN}\nrivers\n".encode())
    os.close(ends[1])
    command = (fitted, f"--queries=/dev/fd/{ends[0]}", f"--output={tmp_path / 'judged'}")
    assert "2 judged, 1 to judge" in typed(monkeypatch, capsys, "q\n", *command)


def test_members_of_a_fusion_are_searched_once(fitted: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    """It ranks as it does alone."""
    members = [f"../{name}" for name in ("long", "short")]
    fusion = fitted / "members" / "fused"
    fusion.mkdir()
    seal(fusion / "grls.json", {"format": FORMAT, **fusion_spec(members, Fusion("sum"), 20)})
    judging, asked, real = begun(fitted, tmp_path / "judged"), list[str](), judging_module.search_hits

    def searched(retriever: Retriever, *given: Any) -> list[list[Hit]]:
        asked.append(retriever.kind)
        return real(retriever, *given)

    monkeypatch.setattr(judging_module, "search_hits", searched)
    queries = [grls.Query("", DEN), grls.Query("", FISH)]
    found = {name: judging._rankings(name, queries) for name in ("long", "fused", "short", "fused")}
    assert asked == ["bm25", "bm25"]
    alone = grls.load(fusion).retriever.retrieve(queries, 20)
    assert found["fused"] == [[hit.id for hit in hits] for hits in alone]
    shutil.rmtree(fusion)


def test_a_kill_loses_nothing(fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    """In a pipe; the kill comes while it waits, and another one while it wrote."""
    output = tmp_path / "judged"
    command = [sys.executable, "-m", "grls", "judge", str(fitted), f"--output={output}", "--device=cpu"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{DEN}\n1\n{FISH}\n")
    process.stdin.flush()
    for line in process.stdout:
        if line == f"{FISH}\n":
            break
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(read_split(output, "dev")[0]) == 1
    with (output / "judged.jsonl").open("a") as stream:
        stream.write('{"_id": "half')
    (output / "qrels" / "dev.tsv").unlink()
    begun(fitted, output).close()
    assert len(read_split(output, "dev")[0]) == 1
    assert "1 judged, 0 to judge" in typed(monkeypatch, capsys, f"{FISH}\n1\n", fitted, f"--output={output}")
    assert len(read_split(output, "dev")[0]) == 2


def test_an_answer_is_taken_back(fitted: Path, tmp_path: Path) -> None:
    judging = begun(fitted, tmp_path / "judged", DEN, FISH)
    assert not judging.undo()
    judging.judge(["den"])
    assert judging.undo()
    assert not (tmp_path / "judged" / "qrels" / "dev.tsv").exists()
    assert [*judging.waiting] == [DEN, FISH]
    judging.judge(["den", "food"])
    (record,) = judging.journal
    assert record["evidence"] == ["den", "food"]
    assert {*record} == {"_id", "text", "metadata", "evidence"}


def test_an_answer_that_could_not_be_taken_back_stays(
    fitted: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    judging = begun(fitted, tmp_path / "judged", DEN, FISH)
    judging.judge(["den"])
    judging.judge(["fish"])

    def full(_: int) -> None:
        raise OSError("full")

    with monkeypatch.context() as patched:
        patched.setattr(judging.journal, "cut", full)
        with pytest.raises(OSError, match="full"):
            judging.undo()
    assert judging.undo()
    assert [record["text"] for record in judging.records] == [DEN]
    assert [record["text"] for record in judging.journal] == [DEN]


def test_a_question_waits_once(fitted: Path, tmp_path: Path) -> None:
    judging = begun(fitted, tmp_path / "judged", DEN, FISH)
    judging.ask(FISH)
    judging.ask("otters")
    judging.ask(FISH)
    assert [*judging.waiting] == [FISH, "otters", DEN]


def test_equal_candidates_are_one(fitted: Path) -> None:
    """And BM25 has no folder, wherever it is named."""
    folders = {"bm25": "bm25", "R": str(fitted), "copy": str(fitted / "members" / "short")}
    assert [*open_candidates(folders, "cpu")] == ["R/long", "R/short"]
    assert [*open_candidates({"bm25": "bm25", "copy": folders["copy"]}, "cpu")] == ["copy", "bm25"]


def test_lines_that_are_no_answers(
    fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    """They neither end the judging nor are they asked, and no warning names a candidate."""
    lines = "s\nn\nxylophone?\ns\nfrüh?\n".encode("latin-1") + f"{DEN}\n1\nq\nfish?\n".encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines), "utf-8"))
    assert main(["judge", str(fitted), f"--output={tmp_path / 'judged'}", "--device=cpu"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("expected a question") == 2
    assert captured.out.count("expected UTF-8 text") == 1
    assert "fish?" not in captured.out
    assert [query.text for query in read_split(tmp_path / "judged", "dev")[0]] == [DEN]
    assert "members" not in captured.err + caplog.text


def test_ctrl_c_says_where_the_answers_are(
    fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    judging = begun(fitted, tmp_path / "judged", FISH)
    judging.judge([])
    judging.close()

    def interrupted(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    out = typed(monkeypatch, capsys, "", fitted / "members" / "long", f"--output={tmp_path / 'judged'}")
    assert f"0 questions with gold, 1 without: {tmp_path / 'judged'}" in out
    assert "one candidate" in out


@pytest.mark.parametrize(("second", "differs", "told"), [
    ("food den", 8, "differ by 36.9 points of nDCG@10, which is more than chance."),
    ("food", 6, "differ by 75.0 points of R@5; a few more would tell them apart four times in five."),
])  # fmt: skip
def test_the_line_says_what_the_table_says(
    fitted: Path, tmp_path: Path, second: str, differs: int, told: str, monkeypatch: Patch
) -> None:
    """In eight questions the second candidate finds less; so does a third one in equally many."""
    questions = [f"question {n}" for n in range(8)]
    judging = begun(fitted, tmp_path / "judged", *questions)
    judging.candidates = {**judging.candidates, "third": judging.candidates["long"]}
    found = dict[tuple[str, str], list[str]]()
    monkeypatch.setattr(judging, "_rankings", lambda name, some: [found[name, one.text] for one in some])
    for n, text in enumerate(questions):
        for name, ids in (("long", "den food"), ("short", second), ("third", "fish")):
            found[name, text] = (ids if n < differs else "den food").split()
        judging.judge(["den"])
    assert judging.told().endswith(told)
    heads, best, other, _ = judging.table()
    assert (best[0], other[0]) == ("long", "short")
    assert heads[3].split()[0] in told
    assert (float(other[4]) < 0.05) == ("chance" in told)


def test_candidates_that_came_later_are_compared_too(fitted: Path, tmp_path: Path) -> None:
    first = Judging(
        open_candidates({"one": str(fitted / "members" / "long")}, "cpu"),
        tmp_path / "judged",
        [grls.Query("", FISH)],
    )
    first.judge(["fish"])
    first.close()
    both = begun(fitted, tmp_path / "judged")
    heads, *rows = both.table()
    assert heads[:3] == ["candidate", "R@5", "nDCG@10"]
    assert {row[0] for row in rows} == {"long", "short"}
    assert rows[0][1] == "100.0"
    assert both.told() == ""


MORE = " would tell them apart four times in five."


@pytest.mark.parametrize(("better", "other", "told"), [
    ([1], [1], "find equally much so far."),
    ([1] * 7, [0] * 7, "differ by 70.0 points of R@5, which is more than chance."),
    ([0.1] * 3, [0.3, 0, 0], "find equally much so far."),
    ([1] * 4, [0] * 4, "differ by 40.0 points of R@5; about 4 more" + MORE),
    ([1, 0, 1], [0, 1, 0], "differ by 10.0 points of R@5; about 243 more" + MORE),
])  # fmt: skip
def test_how_many_more_are_needed(better: list[float], other: list[float], told: str) -> None:
    """Of ten questions; both have the value 0 for those that are not listed."""
    rest = [0.0] * (10 - len(better))
    values = [*better, *rest], [*other, *rest]
    assert apart(*values, "R@5", compare(*values).p) == told


def test_what_cannot_be_judged(fitted: Path, tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    grls.BM25(["another corpus"], output=tmp_path / "other")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "queries.jsonl").write_text("mine")
    (tmp_path / "tab.jsonl").write_text('{"_id": "a\\tb", "text": "otters"}\n')
    judging = begun(fitted, tmp_path / "judged", DEN)
    judging.judge(["den"])
    judging.close()
    long = fitted / "members" / "long"
    for arguments, told in (
        ([tmp_path / "nowhere"], "no retriever here"),
        ([tmp_path / "data"], "no retriever here"),
        ([long, tmp_path / "other"], "is over another corpus"),
        ([long, f"long={fitted}"], "write name=folder for one"),
        ([long, f"--queries={tmp_path / 'empty.txt'}"], "the file is empty; expected a question a line"),
        ([long, f"--queries={tmp_path / 'none.txt'}"], "no such file; expected a question a line"),
        ([long, f"--output={tmp_path / 'data'}"], "holds no judged.jsonl"),
        ([long, f"--queries={tmp_path / 'tab.jsonl'}"], "holds a tab or a line end"),
        ([tmp_path / "other", f"--output={tmp_path / 'judged'}"], f"with --queries {tmp_path / 'judged'}"),
    ):
        assert told in fails(capsys, "judge", *arguments, "--device=cpu")
    with alone_in(tmp_path / "held"):
        assert "written by another run" in fails(capsys, "judge", long, f"--output={tmp_path / 'held'}")
    assert (tmp_path / "data" / "queries.jsonl").read_text() == "mine"
    assert typed(monkeypatch, capsys, "", fitted, f"--output={tmp_path / 'new'}").endswith(
        "no question has gold yet\n"
    )
    assert not (tmp_path / "new").exists()
    with pytest.raises(grls.errors.DataError):
        read_questions(tmp_path / "data" / "queries.jsonl")
    assert json.loads((tmp_path / "judged" / "queries.jsonl").read_text())["evidence"] == ["den"]
